"""One message to all sockets bound in a range of instances."""

import utipc

WEATHER = 1000

with utipc.Node() as node:
    stations = {}
    for instance in (10, 20, 30):
        stations[instance] = node.rdm()
        stations[instance].bind(utipc.ServiceAddress(WEATHER, instance))
    # A socket may have many bindings, also of whole ranges.
    archive = node.rdm()
    archive.bind(utipc.ServiceRange(WEATHER))

    sender = node.rdm()
    sender.send_to(b"rain in the south", utipc.ServiceRange(WEATHER, 0, 25))
    sender.send_to(b"sun everywhere", utipc.ServiceRange(WEATHER, 0, 99))

    for instance, socket in stations.items():
        for _ in range(2 if instance <= 25 else 1):
            print(f"station {instance}: {socket.receive().data.decode()}", flush=True)
    for _ in range(2):
        message = archive.receive()
        print(f"archive: {message.data.decode()} (sent to {message.destination})", flush=True)
