"""Calls that wait: threads, signals, descriptors."""

from __future__ import annotations

import _thread
import select
import selectors
import signal
import threading
import time
from types import FrameType
from typing import Callable, Optional

import pytest
import utipc

from conftest import LIMIT


def test_other_threads_run_while_a_call_waits(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with node.rdm() as server:
        server.bind(service)
        received: list[bytes] = []
        threads = [
            threading.Thread(target=lambda: received.append(server.receive(timeout=LIMIT).data)) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        with node.rdm() as client:
            for number in range(4):
                client.send_to(b"%d" % number, service)
            for thread in threads:
                thread.join(LIMIT)
        assert sorted(received) == [b"0", b"1", b"2", b"3"]


Blocking = Callable[[utipc.Node, utipc.ServiceAddress], object]
BLOCKING: dict[str, Blocking] = {
    "receive": lambda node, service: node.rdm().receive(),
    "recv": lambda node, service: node.rdm().recv(10),
    "accept": lambda node, service: node.listen(service).accept(),
    "listener": lambda node, service: next(iter(node.listen(service))),
    "topology": lambda node, service: next(iter(node.topology())),
    "wait_for_service": lambda node, service: node.wait_for_service(service),
}


@pytest.mark.parametrize("call", BLOCKING)
def test_interrupt_ends_a_call(node: utipc.Node, service: utipc.ServiceAddress, call: str) -> None:
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        BLOCKING[call](node, service)
    assert time.monotonic() - begin < LIMIT
    timer.join()


def test_call_continues_after_a_signal_handler(node: utipc.Node) -> None:
    with node.rdm() as socket, node.rdm() as other:

        def handler(number: int, frame: Optional[FrameType]) -> None:
            other.send_to(b"from the handler", socket.port)

        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            assert socket.receive(timeout=LIMIT).data == b"from the handler"
        finally:
            signal.signal(signal.SIGALRM, before)


def test_close_ends_calls_of_other_threads(node: utipc.Node) -> None:
    socket = node.rdm()
    errors: list[BaseException] = []

    def receive() -> None:
        try:
            socket.receive()
        except utipc.Error as error:
            errors.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    time.sleep(0.1)
    socket.close()
    thread.join(LIMIT)
    assert [type(error) for error in errors] == [utipc.Closed]


def test_descriptors_in_poll_loops(node: utipc.Node) -> None:
    with node.rdm() as one, node.rdm() as other:
        one.setblocking(False)
        assert select.select([one], [one], [], 0)[:2] == ([], [one])
        other.send_to(b"one", one.port)
        assert select.select([one], [], [], LIMIT)[0] == [one]
        poll = select.poll()
        poll.register(one, select.POLLIN)
        assert poll.poll(LIMIT * 1000)
        with selectors.DefaultSelector() as selector:
            selector.register(one, selectors.EVENT_READ)
            assert [key.fileobj for key, _ in selector.select(LIMIT)] == [one]
            assert one.receive().data == b"one"
            assert selector.select(0) == []
        with pytest.raises(utipc.WouldBlock):
            one.receive()


def test_wait_reason(node: utipc.Node, engine: str) -> None:
    with node.rdm() as socket:
        with pytest.raises(utipc.WouldBlock):
            socket.receive(timeout=0)
        reason = socket.wait_reason()
        assert reason is None if engine == "kernel" else "receive queue is empty" in str(reason)
