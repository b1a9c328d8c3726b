"""Connections: three ways to set one up, streams, shutdown and reset."""

from __future__ import annotations

import errno
import threading
import time
from typing import Literal

import pytest
import utipc

from conftest import LIMIT

Kind = Literal["seqpacket", "stream"]
KINDS: list[Kind] = ["seqpacket", "stream"]


def connected(node: utipc.Node, listener: utipc.Listener, to: utipc.ServiceAddress) -> tuple[utipc.Socket, utipc.Socket]:
    """The client's end and the server's. The client must not wait, because the setup needs the server's accept."""
    client = node.socket(listener.socket.kind)
    try:
        client.connect(to, timeout=0)
    except utipc.WouldBlock:
        pass
    server = listener.accept(timeout=LIMIT)
    client.finish_connect(timeout=LIMIT)
    return client, server


@pytest.mark.parametrize("kind", KINDS)
def test_set_up_by_request(node: utipc.Node, service: utipc.ServiceAddress, kind: Kind) -> None:
    with node.listen(service, kind) as listener:
        assert not listener.closed and listener.fileno() >= 0
        client, server = connected(node, listener, service)
        assert client.peer == server.port and server.peer == client.port
        assert client.state == "established"
        client.sendall(b"hello")
        assert server.receive(timeout=LIMIT).data == b"hello"
        server.shutdown()
        assert client.receive(timeout=LIMIT).data == b""
        client.close()
        server.close()


def test_set_up_by_data(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with node.listen(service) as listener, node.seqpacket() as client:
        client.settimeout(0)  # a call that may wait returns when the server has accepted
        client.send_to(b"first data", service)
        client.settimeout(LIMIT)
        with listener.accept(timeout=LIMIT) as server:
            assert server.recv(100, timeout=LIMIT) == b"first data"
            server.send(b"answer")
            assert client.recv(100, timeout=LIMIT) == b"answer"


@pytest.mark.parametrize("kind", KINDS)
def test_set_up_by_data_in_a_loop(node: utipc.Node, service: utipc.ServiceAddress, kind: Kind) -> None:
    """The first call waits for the server, also for longer than one slice of time; the address is ignored later."""
    with node.listen(service, kind) as listener:
        received: list[bytes] = []

        def serve() -> None:
            time.sleep(0.2)
            with listener.accept(timeout=LIMIT) as server:
                while len(b"".join(received)) < 9:
                    received.append(server.recv(100, timeout=LIMIT))

        server = threading.Thread(target=serve)
        server.start()
        with node.socket(kind) as client:
            client.settimeout(LIMIT)
            assert [client.send_to(word, service) for word in (b"one", b"two", b"six")] == [3, 3, 3]
            server.join(LIMIT)
        assert b"".join(received) == b"onetwosix"


def test_set_up_by_data_in_time(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with node.listen(service), node.seqpacket() as client:
        client.settimeout(0.12)
        assert client.send_to(b"first data", service) == 10
        assert client.state == "connecting"
        with pytest.raises(utipc.Error) as caught:
            client.send_to(b"more", service)
        assert caught.value.errno == errno.ENOTCONN


def test_set_up_in_one_step(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with node.listen(service) as listener:
        accepted: list[utipc.Socket] = []
        server = threading.Thread(target=lambda: accepted.append(listener.accept(timeout=LIMIT)))
        server.start()
        with node.connect(service) as client:
            server.join(LIMIT)
            assert client.peer == accepted[0].port
            accepted[0].close()


def test_connect_to_unbound_service(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with pytest.raises(utipc.Unreachable) as caught:
        node.connect(service)
    assert caught.value.errno == 113
    assert "wait_for_service" in caught.value.remedy
    assert caught.value.remedy in str(caught.value)


def test_connect_to_socket_that_does_not_listen(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with node.seqpacket() as bound:
        bound.bind(service)
        with pytest.raises(ConnectionRefusedError) as caught:
            node.connect(service)
        assert isinstance(caught.value, utipc.Refused)


def test_stream_in_pieces(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    data = bytes(range(256)) * 4000
    with node.listen(service, "stream") as listener:

        def send() -> None:
            with node.connect(service, "stream") as client:
                client.set_nodelay(True)
                client.sendall(memoryview(data))
                client.shutdown()

        sender = threading.Thread(target=send)
        sender.start()
        with listener.accept(timeout=LIMIT) as server:
            assert server.recv(1000, wait_all=True, timeout=LIMIT) == data[:1000]
            assert server.recv(10, peek=True, timeout=LIMIT) == data[1000:1010][: len(server.recv(10, peek=True))]
            memory = bytearray(len(data) - 1000)
            assert server.recv_into(memory, wait_all=True, timeout=LIMIT) == len(memory)
            assert memory == data[1000:]
            # The stream ends before the buffer is full.
            assert server.recv(100, wait_all=True, timeout=LIMIT) == b""
        sender.join(LIMIT)


def test_timeout_returns_data_received_so_far(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with node.listen(service, "stream") as listener:
        client, server = connected(node, listener, service)
        with client, server:
            client.sendall(b"abc")
            assert server.recv(10, timeout=LIMIT, peek=True) == b"abc"
            assert server.recv(10, wait_all=True, timeout=0.1) == b"abc"


def test_listener_iterates_over_clients(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    listener = node.listen(service)
    seen: list[bytes] = []

    def serve() -> None:
        for connection in listener:
            with connection:
                seen.append(connection.receive(timeout=LIMIT).data)
                connection.send(b"ok")
                connection.receive(timeout=LIMIT)

    server = threading.Thread(target=serve)
    server.start()
    for number in range(3):
        with node.connect(service) as client:
            client.send(b"%d" % number)
            assert client.receive(timeout=LIMIT).data == b"ok"
            client.shutdown()
    # A close in this thread ends the iteration in the other one.
    listener.close()
    server.join(LIMIT)
    assert not server.is_alive()
    assert seen == [b"0", b"1", b"2"]


def test_connection_reset(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with node.listen(service) as listener:
        client, server = connected(node, listener, service)
        client.send(b"not read")
        server.close()
        with pytest.raises(ConnectionResetError) as caught:
            client.receive(timeout=LIMIT)
        assert isinstance(caught.value, utipc.ConnectionLost)
        assert caught.value.remedy == "connect again"
