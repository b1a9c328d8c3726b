"""Watches the bindings of a service, as this node or another one sees them: service_watch.py [NODE], in hexadecimal."""

import sys

import utipc

WATCHED = utipc.ServiceRange(2222, 0, 99)
OWN = utipc.ServiceAddress(2222, 5)


def wait_for_node(node: utipc.Node, wanted: int) -> None:
    """Waits for a node: a program that has just started does not know its peers yet."""
    with node.topology() as topology:
        topology.nodes()
        while (event := topology.next(timeout=10)) is not None:
            if event.change == "node_up" and event.node == wanted:
                return


def main() -> None:
    with utipc.Node() as node:
        server = int(sys.argv[1], 16) if len(sys.argv) > 1 else node.address
        if server != node.address:
            wait_for_node(node, server)
        # The topology server of another node is used like that of this node.
        with node.topology(server) as topology, node.rdm() as socket:
            print(f"watching {WATCHED} as node {server:x} sees it", flush=True)
            topology.services(WATCHED)

            socket.bind(OWN)
            while (event := topology.next(timeout=10)) is not None:
                service = utipc.ServiceAddress(event.found.service, event.found.lower)
                print(f"service {service} is {'up' if event.is_up else 'down'} at {event.port}", flush=True)
                if not event.is_up:
                    break
                # Closing the socket withdraws its bindings.
                socket.close()
    print("done")


if __name__ == "__main__":
    main()
