"""The list of rows, with their requirements and time limits."""

BOTH_MEDIA = ("eth", "udp")
ALL_MEDIA = ("eth", "udp", "udp-remote", "udp6")
# Node b: utipc's, a second kernel node that Python uses, or one that utipc's library uses.
PEERS = ("utipc", "kernel", "kernel-engine")
ROWS = []


class Row:
    def __init__(self, run, media, fresh, seconds, snap, peers, by_name):
        self.run, self.media, self.fresh, self.seconds = run, media, fresh, seconds
        self.snap, self.peers, self.by_name = snap, peers, by_name
        self.name = run.__name__.replace("_", "-")


def row(media=BOTH_MEDIA, fresh=False, seconds=60, snap=0, peers=PEERS, by_name=False):
    """Declares a row.

    fresh    starts with two namespaces and no node; otherwise with two linked nodes that may have served other rows
    seconds  time limit
    snap     bytes of each packet that are recorded (0: all, None: no recording)
    peers    the nodes b for which the row holds
    by_name  runs only if it is named
    """
    def declare(run):
        ROWS.append(Row(run, media, fresh, seconds, snap, peers, by_name))
        return run
    return declare
