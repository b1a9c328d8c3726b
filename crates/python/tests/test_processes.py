"""Fork and multiprocessing."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Callable

import pytest
import utipc

from conftest import LIMIT, serving
from test_connections import connected


def forked(work: Callable[[], object]) -> str:
    """Returns the text of `work()` run in a forked child, or of the exception that it raised."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = str(work())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as result:
        text = result.read()
    assert os.waitpid(child, 0) == (child, 0)
    return text


def test_child_inherits_sockets_of_a_daemon(daemon: Path, service: utipc.ServiceAddress) -> None:
    with utipc.Node(daemon=daemon) as node, node.rdm() as server, node.rdm() as client:
        server.bind(service)
        client.send_to(b"for the child", service)

        def work() -> str:
            message = server.receive(timeout=LIMIT)
            server.send_to(b"from the child", message.source)
            return message.data.decode()

        assert forked(work) == "for the child"
        assert client.receive(timeout=LIMIT).data == b"from the child"


def test_child_serves_an_accepted_connection(daemon: Path, service: utipc.ServiceAddress) -> None:
    with utipc.Node(daemon=daemon) as node, node.listen(service) as listener:
        client, connection = connected(node, listener, service)

        def work() -> str:
            connection.send(connection.receive(timeout=LIMIT).data.upper())
            return "served"

        client.send(b"hello")
        assert forked(work) == "served"
        connection.close()
        assert client.receive(timeout=LIMIT).data == b"HELLO"
        client.close()


def test_embedded_node_stays_with_its_process() -> None:
    with utipc.Node(engine="embedded", isolated=True, address=1) as node, node.rdm() as socket:
        text = forked(lambda: socket.send_to(b"", socket.port))
        assert text.startswith("Error: [Errno 95]") and "start a node after the fork" in text
        # The child can start its own node.
        own = forked(lambda: utipc.Node(engine="embedded", isolated=True, address=2).rdm().port.node)
        assert own == "2"
        # The parent's node is unaffected.
        socket.send_to(b"still here", socket.port)
        assert socket.receive(timeout=LIMIT).data == b"still here"


def reply_once(daemon: str, service: utipc.ServiceAddress) -> None:
    """A multiprocessing worker, which gets only its arguments."""
    with utipc.Node(daemon=daemon) as node, node.rdm() as socket:
        socket.bind(service)
        request = socket.receive(timeout=LIMIT)
        socket.send_to(b"from %d" % os.getpid(), request.source)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_workers(daemon: Path, service: utipc.ServiceAddress, method: str) -> None:
    multiprocessing.set_start_method(method, force=True)
    worker = multiprocessing.Process(target=reply_once, args=(str(daemon), service))
    with utipc.Node(daemon=daemon) as node, node.rdm() as client:
        worker.start()
        node.wait_for_service(service, LIMIT)
        client.send_to(b"who are you?", service)
        assert client.receive(timeout=LIMIT).data == b"from %d" % (worker.pid or 0)
        worker.join(LIMIT)
        assert worker.exitcode == 0


def test_program_exits_with_open_sockets(tmp_path: Path) -> None:
    """The interpreter exits silently although nodes are open and threads wait."""
    program = tmp_path / "leaves.py"
    program.write_text(
        "import threading, utipc\n"
        "node = utipc.Node(engine='embedded', isolated=True, address=1)\n"
        "socket, topology = node.rdm(), node.topology()\n"
        "threading.Thread(target=socket.receive, daemon=True).start()\n"
        "threading.Thread(target=topology.next, daemon=True).start()\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, timeout=LIMIT, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_socket_resumes_with_the_next_daemon(tmp_path: Path, service: utipc.ServiceAddress) -> None:
    at = tmp_path / "d.sock"
    with serving(at):
        node = utipc.Node(daemon=at, resume=True)
        server = node.rdm()
        server.bind(service)
        fleeting = utipc.Node(daemon=at).rdm()
    with pytest.raises(utipc.ConnectionLost):
        fleeting.receive(timeout=LIMIT)
    with serving(at), node, server:
        with pytest.raises(utipc.Resumed, match="restarted"):
            server.receive(timeout=LIMIT)
        with utipc.Node(daemon=at) as other, other.rdm() as client:
            other.wait_for_service(service, timeout=LIMIT)
            client.send_to(b"to the resumed socket", service)
            assert server.receive(timeout=LIMIT).data == b"to the resumed socket"
