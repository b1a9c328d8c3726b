"""Rows about clusters in which the nodes supervise each other in a ring."""

import dataclasses
import math
import os
import statistics
import time

from net import until
from ring import Ring, address, busy_s
from rows import row

# Limits in s: all contacts after the last start, agreement of the monitors, loss of one node, loss of all by the node
# that is cut off.
UP_S, SETTLED_S, LOST_S, ALONE_S = 60.0, 90.0, 10.0, 15.0
# Time in which probes are counted.
QUIET_S = 10.0
# Number of nodes above which the monitor is active by default.
THRESHOLD = 32


@dataclasses.dataclass(frozen=True)
class Plan:
    """Nodes 1 to `count`; those in `others` are utipc's, if the peer is. The kernel node `cut` is cut off, the node `killed`
    of the others is killed. The monitor is active above `threshold` nodes."""

    count: int
    others: tuple
    cut: int
    killed: int
    threshold: int = THRESHOLD

    @property
    def domain(self):
        """Members of a node's domain. A kernel node counts them when a node near it changes, and every two to three
        minutes: until then its domain may be smaller."""
        return math.isqrt(self.count - 1)


def kinds(ring):
    """The numbers of the nodes by kind."""
    some = {"kernel": [n for n in ring.nodes if ring.nodes[n].is_kernel],
            "utipc": [n for n in ring.nodes if not ring.nodes[n].is_kernel]}
    return {kind: numbers for kind, numbers in some.items() if numbers}


def logs(ring, of=None):
    """The observations of each node: (time, whether the node came, its number)."""
    return {n: [(at, event == "published", node & 0xFFF) for at, event, node in counts["log"]]
            for n, counts in ring.each("counts", of).items()}


def all_in_contact(ring):
    """Whether each node sees all others."""
    everyone = set(ring.nodes)
    return all({node for node, came in {node: came for _, came, node in log}.items() if came} == everyone - {n}
               for n, log in logs(ring).items())


def spread(values, form="%.2f"):
    return "%s / %s / %s" % tuple(form % v for v in (min(values), statistics.median(values), max(values)))


def disagreeing(plan, ring, shown):
    """The nodes of a monitor whose domains do not agree with its ring; all, if the ring is not complete."""
    if not shown["active"] or len(shown["ring"]) < plan.count:
        return shown["ring"]

    def agrees(node):
        least = 1 if ring.nodes[node["address"] & 0xFFF].is_kernel else plan.domain
        return (node["up"] and not node["other"] and set(node["domain"]) == {"U"}
                and least <= len(node["domain"]) <= plan.domain)

    return [node for node in shown["ring"] if not agrees(node)]


def heads(ring, begin):
    """Distances of the heads in a monitor's ring: from `begin` on, each is the first after the previous one's domain."""
    found = []
    while begin < len(ring):
        found.append(begin)
        begin += 1 + len(ring[begin]["domain"])
    return found


def uncovered(ring):
    """Distances of the nodes that neither the monitor's node nor a domain that it relies on supervises."""
    own = len(ring[0]["domain"])
    covered = set(range(own + 1))
    for at, node in enumerate(ring):
        if node["direct"] and at > own:
            covered.update(range(at, at + 1 + len(node["domain"])))
    return [at for at in range(len(ring)) if at not in covered]


def monitors(c, plan, ring):
    """Checks the monitors of all nodes: the kernel's show the domains of utipc's nodes, and the other way round."""
    left, end, shown = set(ring.nodes), time.monotonic() + SETTLED_S, {}
    while left:
        shown.update(ring.each("monitor", left))
        left = {n for n in left if disagreeing(plan, ring, shown[n])}
        c.check(not left or time.monotonic() < end, "monitors that do not agree with the ring: %s" % {
            n: disagreeing(plan, ring, shown[n])[:4] for n in sorted(left)})
        time.sleep(0.5)
    direct = {}
    for n, monitor in shown.items():
        name, nodes = ring.nodes[n].name, monitor["ring"]
        expected = [(n + i - 1) % plan.count + 1 for i in range(plan.count)]
        c.equal([r["address"] & 0xFFF for r in nodes], expected, name + ": its ring")
        c.equal(uncovered(nodes), [], name + ": distances of nodes without a supervisor on which it relies")
        direct[n] = [at for at, r in enumerate(nodes) if r["direct"] and at]
        if not ring.nodes[n].is_kernel:
            expected = [*range(1, plan.domain + 1), *heads(nodes, plan.domain + 1)]
            c.equal(direct[n], expected, name + ": distances of the nodes that it supervises")
    for kind, numbers in kinds(ring).items():
        domains = [len(shown[n]["ring"][0]["domain"]) for n in numbers]
        c.note("%s: %s in its domain, supervises %s" % (
            kind, spread(domains, "%d"), spread([len(direct[n]) for n in numbers], "%d")))


def rates(c, ring):
    """Counts probes and packets of a quiet time, by kind of the node; each node has a link to all others."""
    before, busy, began, sent = ring.each("supervision"), busy_s(), time.monotonic(), ring.sent()
    time.sleep(QUIET_S)
    sent, took, busy = [b - a for a, b in zip(sent, ring.sent())], time.monotonic() - began, busy_s() - busy
    after = ring.each("supervision")
    for n, shown in after.items():
        c.equal(shown["up"], [address(m) for m in ring.numbers if m != n], "%s: links that are up" % ring.nodes[n].name)
    for kind, numbers in kinds(ring).items():
        probes, answered = (statistics.mean((after[n][key] - before[n][key]) / (after[n]["at"] - before[n]["at"])
                                            for n in numbers) for key in ("tx_probes", "rx_probes"))
        packets = statistics.mean(sent[n - 1] / took for n in numbers)
        c.note("%s: a node sends %.1f probes/s, gets %.1f, sends %.1f packets/s" % (kind, probes, answered, packets))
    c.note("%.0f %% of %d processors" % (100 * busy / took / os.cpu_count(), os.cpu_count()))


def losses(c, ring, lost, began, observers, seconds):
    """Waits until each of `observers` has lost each of `lost`; notes the times by kind: first, median, last."""
    def times():
        log = logs(ring, observers)
        return {n: [min((at - began for at, came, node in log[n] if node == m and not came and at >= began), default=None)
                    for m in lost] for n in observers}

    found = times()
    while any(None in f for f in found.values()) and time.monotonic() < began + seconds:
        time.sleep(0.3)
        found = times()
    late = {n: [m for m, t in zip(lost, f) if t is None] for n, f in found.items() if None in f}
    c.check(not late, "nodes that were not lost within %.0f s, by the nodes that should have: %s" % (seconds, late))
    for kind, numbers in kinds(ring).items():
        of_kind = [t for n in numbers if n in found for t in found[n]]
        if of_kind:
            c.note("%s: %s s" % (kind, spread(of_kind)))


def failures(c, plan, ring):
    """A node is cut off and comes back, another one is killed; no other node is lost."""
    everyone = set(ring.nodes)
    others = sorted(everyone - {plan.cut})
    c.note("node %d is cut off" % plan.cut)
    began = time.monotonic()
    ring.plug(plan.cut, False)
    losses(c, ring, [plan.cut], began, others, LOST_S)
    c.note("it loses the others")
    losses(c, ring, others, began, [plan.cut], ALONE_S)
    ring.plug(plan.cut, True)
    back = time.monotonic()
    until("node %d is back" % plan.cut, UP_S, lambda: all_in_contact(ring), 0.5)
    c.note("back after %.0f s" % (time.monotonic() - back))

    others = sorted(everyone - {plan.killed})
    c.note("node %d is killed" % plan.killed)
    began = time.monotonic()
    if ring.nodes[plan.killed].is_kernel:
        ring.plug(plan.killed, False)                     # a kernel node lives in the namespace, not in a process
    else:
        ring.nodes[plan.killed].kill()
    losses(c, ring, [plan.killed], began, others, LOST_S)
    time.sleep(3)
    for n, log in logs(ring, others).items():
        gone = sorted(node for _, came, node in log if not came)
        expected = [*everyone - {plan.cut}, plan.killed] if n == plan.cut else [plan.cut, plan.killed]
        c.equal(gone, sorted(expected), "%s: the nodes that it has lost" % ring.nodes[n].name)


def whole(c, plan):
    """The steps of a row."""
    ring = Ring(plan.count, plan.others, c.program, c.log)
    try:
        began = time.monotonic()
        ring.start()
        if plan.threshold != THRESHOLD:
            ring.each("threshold", nodes=plan.threshold)
        until("all nodes see all others", UP_S, lambda: all_in_contact(ring), 0.5)
        c.note("all in contact after %.0f s" % (time.monotonic() - began))
        monitors(c, plan, ring)
        rates(c, ring)
        c.note("without the monitor")
        ring.each("threshold", nodes=plan.count)
        rates(c, ring)
        c.note("with it again")
        ring.each("threshold", nodes=plan.threshold)
        monitors(c, plan, ring)
        failures(c, plan, ring)
    finally:
        ring.remove()


@row(media=("eth",), fresh=True, seconds=240, snap=None, peers=("utipc", "kernel"), by_name=True)
def ring_of_12(c):
    """12 nodes with the monitor from 9 on: each supervises a few; a node is cut off, another one is killed."""
    whole(c, Plan(count=12, others=(3, 6, 7, 10), cut=5, killed=7, threshold=8))


@row(media=("eth",), fresh=True, seconds=600, snap=None, peers=("utipc", "kernel"), by_name=True)
def ring_of_35(c):
    """As `ring_of_12` with 35 nodes, so that the monitor is active by default. Each domain has nodes of both kinds."""
    whole(c, Plan(count=35, others=(3, 7, 8, 12, 17, 22, 27, 32), cut=15, killed=22))
