"""A communication group: a coordinator, and workers that it knows by their membership."""

import utipc

JOBS = 4300
COORDINATOR = 1
WORKER = 2


def text(group: utipc.Group) -> str:
    """Receive a message. Without events, all that a member receives is messages."""
    incoming = group.receive()
    assert isinstance(incoming, utipc.GroupMessage)
    return incoming.data.decode()


def report(incoming: "utipc.GroupMessage | utipc.Joined | utipc.Left | utipc.Evicted") -> None:
    if isinstance(incoming, utipc.Joined):
        print(f"coordinator: instance {incoming.member.instance} has joined", flush=True)
    elif isinstance(incoming, (utipc.Left, utipc.Evicted)):
        print(f"coordinator: instance {incoming.member.instance} has left", flush=True)
    else:
        print(f"coordinator: {incoming.data.decode()} from instance {incoming.sender.instance}", flush=True)


with utipc.Node() as node, node.join(JOBS, COORDINATOR, events=True) as coordinator:
    workers = [node.join(JOBS, WORKER) for _ in range(2)]
    for _ in range(len(workers)):
        report(coordinator.receive())

    # To all; then to one of the workers each, in turn.
    coordinator.broadcast(b"start")
    coordinator.anycast(WORKER, b"a task")
    coordinator.anycast(WORKER, b"a task")
    for number, worker in enumerate(workers, start=1):
        for _ in range(2):
            print(f"worker {number}: {text(worker)}", flush=True)

    # To one member.
    workers[0].send(coordinator.member, b"done")
    report(coordinator.receive())
    workers[0].close()
    report(coordinator.receive())
