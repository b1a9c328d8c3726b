"""Rows about two links between two nodes."""

import time

from flows import Flows
from net import until
from rows import row

# Longer than the tolerance of a link, in s.
LINK_DOWN_S = 6.0
# A kernel's node resets both links if more than 93 packets wait for a link that is lost (tipc.md §5.13): fewer are sent
# in the time after which a link is lost.
KERNEL_GAP_US = 25000


def links_up(peer):
    """Media of the links that are up, as the kernel's node sees them."""
    states = peer.call("link_states")["states"]
    return {media for bearer, media in (("w", "eth"), ("U", "udp")) if states.get(bearer) == "up"}


@row(media=("two",), fresh=True, seconds=240, snap=128)
def failover_under_traffic(c):
    """Each link fails and comes back, three times, while both directions are busy: nothing lost, no node lost."""
    c.up()
    until("both links are up", 15, lambda: links_up(c.a) == {"eth", "udp"}, 0.3)
    flows = Flows(c, 700, 1000, KERNEL_GAP_US)
    failures = 0
    for media in ("eth", "udp", "eth"):
        c.net.cut(media)
        until("the link over %s is down" % media, LINK_DOWN_S, lambda m=media: m not in links_up(c.a), 0.2)
        failures += 1
        flows.go_on("after failure %d" % failures)
        c.net.cut(None)
        until("the link over %s is back" % media, 15, lambda: links_up(c.a) == {"eth", "udp"}, 0.2)
        time.sleep(0.5)
    messages = flows.end()
    c.no_reset("no node was lost")
    c.note("%d failovers, %d messages" % (failures, messages))
