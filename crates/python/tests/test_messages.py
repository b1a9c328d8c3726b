"""Datagrams between sockets of one node."""

import utipc


def test_a_message_and_its_answer() -> None:
    hello = utipc.ServiceAddress(18888, 17)
    with utipc.Node(isolated=True, address=1) as node, node.rdm() as server, node.rdm() as client:
        server.bind(hello)
        assert client.send_to(b"Hello World", hello) == 11
        request = server.receive(timeout=10)
        assert request.data == b"Hello World"
        assert request.source == client.port
        server.send_to(b"Uh ?", request.source)
        assert client.receive(timeout=10).data == b"Uh ?"
