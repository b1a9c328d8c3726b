"""Prints events of nodes and links in the cluster: topology_watch.py [SECONDS]."""

import sys
import time

import utipc


def main() -> None:
    end = time.monotonic() + float(sys.argv[1]) if len(sys.argv) > 1 else None
    with utipc.Node() as node, node.topology() as topology:
        print(f"the view of node {node.address:x}", flush=True)
        topology.nodes()
        topology.links()
        while True:
            left = None if end is None else max(0, end - time.monotonic())
            event = topology.next(timeout=left)
            if event is None:
                return
            what = "link to node" if event.change.startswith("link") else "node"
            print(f"{what} {event.node:x} is {'up' if event.is_up else 'down'}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
