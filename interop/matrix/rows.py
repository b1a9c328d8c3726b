"""The list of rows, with their requirements and time limits."""

BOTH_MEDIA = ("eth", "udp")
ALL_MEDIA = ("eth", "udp", "udp-remote", "udp6")
ROWS = []


class Row:
    def __init__(self, run, media, fresh, seconds, snap, utipc_only):
        self.run, self.media, self.fresh, self.seconds = run, media, fresh, seconds
        self.snap, self.utipc_only = snap, utipc_only
        self.name = run.__name__.replace("_", "-")


def row(media=BOTH_MEDIA, fresh=False, seconds=60, snap=0, utipc_only=False):
    """Declares a row.

    fresh    starts with two namespaces and no node; otherwise with two linked nodes that may have served other rows
    seconds  time limit
    snap     bytes of each packet that are recorded (0: all, None: no recording)
    """
    def declare(run):
        ROWS.append(Row(run, media, fresh, seconds, snap, utipc_only))
        return run
    return declare
