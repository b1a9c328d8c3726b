"""Rows about encryption (tipc.md §12)."""

import itertools
import os
import time

from cluster import close_all
from flows import Flows
from net import until
from rows import row

ONE_MEDIUM = ("udp",)
# The library sets no keys of a kernel node.
WITH_KEYS = ("utipc", "kernel")

# AES keys of 16 bytes with 4 of salt.
ONE = "00112233445566778899aabbccddeeff01020304"
TWO = "ffeeddccbbaa99887766554433221100a0b0c0d0"
# The identities of nodes with the addresses 1.1.1 and 1.1.2.
A, B = "1001001", "1001002"
MARK = b"in clear text?" * 8


def settings(address, **keys):
    return dict(keys, address=address)


def exchange(c, pairs=None):
    """Connections, messages to a service, and a broadcast, in both directions or between `pairs` of nodes."""
    Flows(c, 3000, pairs=pairs).end(least=200)
    for sender, other in pairs or c.both:
        t = c.new_type()
        s, q = c.sock(other, "rdm", (t, 1))["s"], c.sock(sender, "rdm")["s"]
        c.await_name(sender, t, 1)
        for to in ({"name": [t, 1]}, {"range": [t, 0, 9]}):
            sender.call("send", s=q, length=0, text=MARK.decode(), to=to)
            c.equal(other.call("recv", s=s)["length"], len(MARK), "%s to %s" % (to, other.name))
        close_all(sender, q)
        close_all(other, s)


def recorded(c, run):
    """The traffic on the wire while `run` runs."""
    path = "/run/interop/encryption.pcap"
    c.net.tap(path)
    run()
    time.sleep(0.5)
    c.net.untap()
    with open(path, "rb") as file:
        data = file.read()
    os.unlink(path)
    return data


def linked(c, a, b):
    c.up(a, b)
    c.check(MARK not in recorded(c, lambda: exchange(c)), "the wire carries no clear text")
    c.no_reset()


@row(media=ONE_MEDIUM, fresh=True, seconds=60, snap=None)
def encryption_off(c):
    """Without a key the wire carries the messages as they are: the check of the other rows can fail."""
    c.up()
    c.check(MARK in recorded(c, lambda: exchange(c)), "the wire carries clear text")


@row(fresh=True, seconds=90, snap=None, peers=WITH_KEYS)
def encryption_cluster_key(c):
    """One key for all nodes; utipc is strict."""
    linked(c, settings("1.1.1", key=ONE), settings("1.1.2", key=ONE))


@row(media=ONE_MEDIUM, fresh=True, seconds=90, snap=None, peers=WITH_KEYS)
def encryption_node_keys(c):
    """A key for each node to send with."""
    keys = {A: ONE, B: TWO}
    linked(c, settings("1.1.1", node_keys=keys), settings("1.1.2", node_keys=keys))


@row(media=ONE_MEDIUM, fresh=True, seconds=240, snap=None, peers=WITH_KEYS)
def encryption_rekeying(c):
    """A master key; both nodes hand each other new session keys, twice, while messages are on their way."""
    c.up(settings("1.1.1", master=ONE), settings("1.1.2", master=ONE, rekeying=1))
    began = time.monotonic()
    flows = Flows(c, 700, 3000)
    for change in range(2):
        time.sleep(12)
        c.a.call("rekey")
        flows.go_on("after change %d" % (change + 1))
    messages = flows.end(least=12000)
    # The other node's own new key is due after a minute.
    time.sleep(max(0, 75 - (time.monotonic() - began)))
    c.check(MARK not in recorded(c, lambda: exchange(c)), "the wire carries no clear text")
    c.no_reset("no reset by new keys")
    c.note("keys changed during %d messages" % messages)


@row(fresh=True, seconds=180, snap=None, peers=WITH_KEYS)
def encryption_three_nodes(c):
    """Three nodes with a master key: each pair talks, also while all get new session keys."""
    c.up(settings("1.1.1", master=ONE), settings("1.1.2", master=ONE))
    pairs = list(itertools.permutations(c.add(settings("1.1.3", master=ONE)), 2))
    flows = Flows(c, 700, 3000, pairs=pairs)
    time.sleep(2)
    c.a.call("rekey")
    flows.go_on("after the change")
    flows.end(least=2000)
    c.check(MARK not in recorded(c, lambda: exchange(c, pairs)), "the wire carries no clear text")
    c.no_reset("no reset by new keys")


def strangers(c, a, b, problem):
    """Nodes that cannot read each other have no link; the program under test counts why."""
    c.begin(c.a, a)
    c.begin(c.b, b)
    time.sleep(4)
    for peer in (c.a, c.b):
        c.equal(peer.call("counts")["ups"], 0, "%s has no neighbour" % peer.name)
    if not c.b.is_kernel:
        until("node b counts %s" % problem, 10, lambda: c.b.call("problems")["problems"].get(problem, 0) >= 2, 0.3)
        c.checks += 1


@row(media=ONE_MEDIUM, fresh=True, seconds=60, snap=None, peers=WITH_KEYS)
def encryption_wrong_key(c):
    """Nodes with different keys have no link."""
    strangers(c, settings("1.1.1", key=ONE), settings("1.1.2", key=TWO), "wrong-key")


@row(media=ONE_MEDIUM, fresh=True, seconds=60, snap=None, peers=WITH_KEYS)
def encryption_without_key(c):
    """A node without a key cannot read, and reports that."""
    strangers(c, settings("1.1.1", key=ONE), settings("1.1.2"), "encrypted")


@row(media=ONE_MEDIUM, fresh=True, seconds=60, snap=None, peers=("utipc",))
def encryption_strict(c):
    """A strict node refuses a neighbour in clear text."""
    strangers(c, settings("1.1.1"), settings("1.1.2", key=ONE), "clear-text")


@row(fresh=True, seconds=120, snap=None, peers=WITH_KEYS)
def encryption_kernel_reboots(c):
    """The kernel's node vanishes and comes back with the same key: a strict neighbour takes it back."""
    a = settings("1.1.1", key=ONE)
    c.up(a, settings("1.1.2", key=ONE))
    exchange(c)
    c.reboot_a(a)
    until("b has its neighbour again", 30, lambda: c.b.call("counts")["ups"] == 2, 0.3)
    c.equal(c.b.call("counts")["downs"], 1, "b has lost it once")
    c.a.call("wait_up", timeout_ms=15000)
    c.check(MARK not in recorded(c, lambda: exchange(c)), "the wire carries no clear text")
