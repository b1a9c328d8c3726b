"""A client that knows a service address and nothing else. See hello_server.py."""

import utipc

HELLO = utipc.ServiceAddress(18888, 17)

with utipc.Node() as node, node.rdm() as socket:
    print(f"client: node {node.address:x} waits for {HELLO}", flush=True)
    node.wait_for_service(HELLO, timeout=30)

    socket.send_to(b"Hello World!!!", HELLO)
    answer = socket.receive(timeout=10)
    print(f'client: "{answer.data.decode()}" from {answer.source}')
