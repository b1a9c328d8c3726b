import utipc
with utipc.Node() as node, node.rdm() as server, node.rdm() as client:
    hello = utipc.ServiceAddress(18888, 1)
    server.bind(hello)
    client.send_to(b"Hello World", hello)
    print(server.receive().data.decode(), "at", hello)
