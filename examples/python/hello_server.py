"""A server without a host or port number: it binds to a service address, and clients find it wherever it runs.

Start it in one terminal and hello_client.py in another, in any order, with no arguments.
"""

import utipc

HELLO = utipc.ServiceAddress(18888, 17)

with utipc.Node() as node, node.rdm() as socket:
    socket.bind(HELLO)
    print(f"server: bound to {HELLO} on node {node.address:x}", flush=True)

    request = socket.receive()
    print(f'server: "{request.data.decode()}" from {request.source}', flush=True)
    socket.send_to(b"Uh ?", request.source)

    # The reply to another node travels over a link: stay until that node has left, so that the reply arrives.
    if request.source.node != node.address:
        with node.topology() as topology:
            topology.nodes()
            while (event := topology.next(timeout=10)) is not None:
                if event.change == "node_down" and event.node == request.source.node:
                    break
    print("server: done")
