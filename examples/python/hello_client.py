"""A client that knows only a service address. See hello_server.py."""

import utipc

HELLO = utipc.ServiceAddress(18888, 17)

with utipc.Node() as node, node.rdm() as socket:
    print(f"client: node {node.address:x} waits for {HELLO}", flush=True)
    node.wait_for_service(HELLO, timeout=30)

    socket.send_to(b"Hello World!!!", HELLO)
    reply = socket.receive(timeout=10)
    print(f'client: "{reply.data.decode()}" from {reply.source}')
