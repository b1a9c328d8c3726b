"""Datagrams between sockets of one node."""

from __future__ import annotations

import array
import time

import pytest
import utipc

from conftest import LIMIT, Opener


def test_request_and_reply(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with node.rdm() as server, node.rdm() as client:
        server.bind(service)
        assert client.send_to(b"Hello World", service) == 11
        request = server.receive(timeout=LIMIT)
        assert request.data == b"Hello World"
        assert request.source == client.port
        assert request.destination == utipc.ServiceRange(service.service, 17, 17)
        assert request.returned is None
        assert server.send_to(b"Uh ?", request.source) == 4
        answer = client.receive(timeout=LIMIT)
        assert (answer.data, answer.source, answer.destination) == (b"Uh ?", server.port, None)
        assert server.stats()["received_messages"] == 1


def test_multicast_reaches_all(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    sockets = [node.rdm() for _ in range(3)]
    for instance, socket in enumerate(sockets):
        socket.bind(utipc.ServiceAddress(service.service, instance))
    node.rdm().send_to(b"all of you", utipc.ServiceRange(service.service))
    for socket in sockets:
        message = socket.receive(timeout=LIMIT)
        assert message.data == b"all of you"
        assert message.destination == utipc.ServiceRange(service.service)
        socket.close()


def test_bytes_like_objects_can_be_sent(node: utipc.Node) -> None:
    with node.rdm() as one, node.rdm() as other:
        for data in (bytearray(b"abc"), memoryview(b"xabcx")[1:4], array.array("B", b"abc")):
            one.send_to(data, other.port)
            assert other.recv(100, timeout=LIMIT) == b"abc"
        with pytest.raises(TypeError):
            one.send_to("text", other.port)  # type: ignore[arg-type]


def test_recv_into_buffer(node: utipc.Node) -> None:
    with node.rdm() as one, node.rdm() as other:
        memory = bytearray(8)
        one.send_to(b"abcdef", other.port)
        assert other.recv_into(memory, peek=True, timeout=LIMIT) == 6
        assert other.recv_into(memoryview(memory)[2:5], timeout=LIMIT) == 3
        assert memory == b"ababcf\0\0"
        one.send_to(b"not lost", other.port)
        with pytest.raises(TypeError, match="read-only"):
            other.recv_into(b"constant")
        assert other.recv(100, timeout=LIMIT) == b"not lost"


def test_importance_and_returned_messages(node: utipc.Node, engine: str) -> None:
    with node.rdm() as one, node.rdm() as other:
        one.set_importance("high")
        one.send_to(b"now", other.port)
        message = other.receive(timeout=LIMIT)
        assert message.importance == ("low" if engine == "kernel" else "high")  # The kernel does not report it.
        gone = other.port
        other.close()
        one.set_returned(True)
        one.send_to(b"undeliverable", gone)
        back = one.receive(timeout=LIMIT).returned
        assert back is not None
        assert (back.code, back.reason) == (2, "there is no such socket")
        assert back.data == b"undeliverable"
        assert "came back" not in repr(back) and "no such socket" in repr(back)


def test_bindings_are_listed_and_withdrawn(node: utipc.Node, service: utipc.ServiceAddress, engine: str) -> None:
    with node.rdm() as socket:
        socket.bind(service)
        socket.bind(utipc.ServiceRange(service.service, 20, 30), scope="node")
        assert node.wait_for_service(service, LIMIT) == socket.port
        assert node.lookup(service) == socket.port
        mine = {(b.range.lower, b.scope) for b in node.bindings() if b.port == socket.port}
        assert mine == {(17, "cluster"), (20, "node")}
        socket.unbind(service)
        assert node.lookup(service) is None
        socket.unbind()
        assert not [b for b in node.bindings() if b.port == socket.port]
        with pytest.raises(utipc.Error):
            socket.unbind()
        for seconds in (0, 65.536, 1e300):
            with pytest.raises(utipc.Error):
                socket.set_connect_timeout(seconds)
        with pytest.raises(utipc.Error):
            socket.set_nodelay(True)
        if engine != "kernel":  # Linux accepts this.
            with pytest.raises(utipc.Error):
                socket.unbind(service)


def test_timeouts(node: utipc.Node) -> None:
    with node.rdm() as socket:
        assert socket.gettimeout() is None
        begin = time.monotonic()
        with pytest.raises(TimeoutError) as caught:
            socket.receive(timeout=0.12)
        assert 0.1 < time.monotonic() - begin < LIMIT
        assert isinstance(caught.value, utipc.Timeout)
        socket.settimeout(0)
        with pytest.raises(BlockingIOError) as blocked:
            socket.recv(10)
        assert isinstance(blocked.value, utipc.WouldBlock)
        socket.setblocking(True)
        assert socket.gettimeout() is None
        socket.settimeout(1e300)
        assert socket.gettimeout() is None
        for wrong in (-1, float("nan")):
            with pytest.raises(ValueError, match="timeout"):
                socket.settimeout(wrong)


def test_closed_socket_raises_closed(node: utipc.Node) -> None:
    socket = node.rdm()
    assert socket.fileno() >= 0
    assert f"{socket.port}" in repr(socket)
    socket.close()
    socket.close()
    assert socket.closed and socket.fileno() == -1 and "closed" in repr(socket)
    with pytest.raises(utipc.Closed, match="closed"):
        socket.receive()


def test_messages_between_two_handles(opener: Opener, service: utipc.ServiceAddress) -> None:
    with opener().rdm() as server, opener().rdm() as client:
        server.bind(service)
        for _ in range(100):
            client.send_to(b"x" * 66000, service)
            assert len(server.receive(timeout=LIMIT).data) == 66000
