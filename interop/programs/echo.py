"""An echo server with a single selector, for the tests on one node and between two."""

import selectors


def selected(listening, selector, ended=lambda: False, wait=None):
    """Echoes data on each connection until `ended`, which is checked every `wait` seconds."""
    selector.register(listening, selectors.EVENT_READ)
    while not ended():
        for key, _ in selector.select(wait):
            if key.fileobj is listening:
                peer, _ = listening.accept()
                peer.setblocking(False)
                selector.register(peer, selectors.EVENT_READ)
                continue
            try:
                data = key.fileobj.recv(1000)
            except ConnectionResetError:
                data = b""
            if data:
                key.fileobj.send(data)
            else:
                selector.unregister(key.fileobj)
                key.fileobj.close()
