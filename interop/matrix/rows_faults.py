"""Rows about faulty networks and hosts."""

import os
import signal
import time

from cluster import GONE_S, close_all
from net import until
from rows import row


def exchange(c, count=1500, length=700):
    """Connected messages, messages to a service and a broadcast, in both directions at once; nothing may be lost."""
    jobs = []
    for sender, other in c.both:
        x, y, l = c.connection(sender, other, "seqpacket")
        jobs.append((sender, x, other, [y], count, length, None, [l]))
        t = c.new_type()
        s = c.sock(other, "rdm", (t, 1))["s"]
        q = c.sock(sender, "rdm")["s"]
        c.await_name(sender, t, 1)
        jobs.append((sender, q, other, [s], count // 3, 300, {"name": [t, 1]}, []))
        m = c.new_type()
        two = [c.sock(other, "rdm", (m, 1))["s"] for _ in range(2)]
        q2 = c.sock(sender, "rdm")["s"]
        sender.call("option", s=q2, name="mcast", value="broadcast")
        c.await_name(sender, m, 1)
        jobs.append((sender, q2, other, two, count // 6, 2000, {"range": [m, 0, 9]}, []))
    running = []
    for sender, s, other, into, n, size, to, _ in jobs:
        sends = sender.begin("send_many", s=s, count=n, length=size, to=to, gap_us=2000 if to else 0, timeout_ms=60000)
        reads = [other.begin("recv_many", s=r, count=n, length=size, idle_ms=15000, timeout_ms=60000) for r in into]
        running.append((sender, n, size, sends, reads))
    for sender, n, size, sends, reads in running:
        c.equal(sends.result(90), {"sent": n, "error": None}, "%s sends %d × %d" % (sender.name, n, size))
        for read in reads:
            got = read.result(90)
            c.equal({k: got[k] for k in ("got", "missing", "late", "broken", "error")},
                    {"got": n, "missing": 0, "late": 0, "broken": 0, "error": None},
                    "%d × %d from %s arrive once and in order" % (n, size, sender.name))
    for sender, s, other, into, _, _, _, more in jobs:
        close_all(sender, s)
        close_all(other, *into, *more)


def under(c, spec, shows):
    """The exchange under netem's `spec`; the counter that `shows` the fault must have increased."""
    before = counters(c)
    c.net.fault(spec)
    try:
        exchange(c)
        dropped = c.net.dropped()
    finally:
        c.net.fault(None)
    c.no_reset("no reset under " + spec)
    seen = {k: v - before[k] for k, v in counters(c).items()}
    seen["dropped"] = dropped
    c.check(seen[shows] >= 5, "the fault really happened: %s" % seen)
    c.note(", ".join("%s %d" % pair for pair in seen.items()))


def counters(c):
    """The kernel's counters of its link."""
    links = c.a.call("links")["links"]
    return {k: sum(l[k] for l in links) for k in ("deferred", "duplicates", "retransmitted")}


@row(seconds=120, snap=128)
def loss_1_percent(c):
    under(c, "delay 1ms loss 1%", "dropped")


@row(seconds=120, snap=128)
def loss_5_percent(c):
    under(c, "delay 1ms loss 5%", "dropped")


@row(seconds=120, snap=128)
def reordering(c):
    under(c, "delay 4ms reorder 75% 50%", "deferred")


@row(seconds=120, snap=128)
def duplication(c):
    under(c, "delay 1ms duplicate 10%", "duplicates")


@row(seconds=180, snap=128, fresh=True)
def loss_20_percent(c):
    """Resets are allowed and counted; 10 MB of SEQPACKET in each direction complete, or both ends report the break."""
    c.up()
    for sender, other in c.both:
        x, y, l = c.connection(sender, other, "seqpacket")
        before = [p.call("counts")["downs"] for p in (c.a, c.b)]
        c.net.fault("delay 1ms loss 20%")
        sends = sender.begin("send_many", s=x, count=1000, length=10000, timeout_ms=60000)
        got = other.call("recv_many", 90, s=y, count=1000, length=10000, idle_ms=20000, timeout_ms=62000)
        sent = sends.result(30)
        c.net.fault(None)
        for peer in (c.a, c.b):
            until("%s has its neighbour again" % peer.name, 15,
                  lambda p=peer: (lambda n: n["ups"] > n["downs"])(p.call("counts")), 0.2)
        resets = [p.call("counts")["downs"] - b for p, b in zip((c.a, c.b), before)]
        whole = got["got"] == 1000 and sent["sent"] == 1000
        broken = got["error"] not in (None, "EAGAIN") and sent["error"] not in (None, "EAGAIN")
        c.check(whole or broken, "%s to %s: sent %s, got %s, resets %s" % (sender.name, other.name, sent, got, resets))
        c.equal((got["missing"], got["late"], got["broken"]), (0, 0, 0), "what arrived is a prefix of what was sent")
        c.check(whole or any(resets), "a break without a reset: %s %s" % (sent, got))
        c.note("%s to %s: %s, resets %s" % (sender.name, other.name, "whole" if whole else "broke at both ends", resets))
        close_all(sender, x)
        close_all(other, y, l)


@row(seconds=90, fresh=True)
def cut_off(c):
    """Nothing passes: at both ends connections break and bindings vanish within the tolerance; then all recovers."""
    c.up()
    pairs, types = [], []
    for client, server in c.both:
        x, y, _ = c.connection(client, server, "seqpacket")
        pairs.append((client, x, server, y))
        t = c.new_type()
        c.sock(server, "rdm", (t, 1))
        c.await_name(client, t, 1)
        types.append((client, t))
    began = time.monotonic()
    c.net.fault("loss 100%")
    for client, x, server, y in pairs:
        c.broken(client, x, "cut off")
        c.broken(server, y, "cut off")
    for client, t in types:
        c.await_name(client, t, 1, "withdrawn", GONE_S)
    took = time.monotonic() - began
    c.check(took <= GONE_S, "all within %.1f s, took %.1f" % (GONE_S, took))
    c.note("gone after %.1f s" % took)
    c.net.fault(None)
    began = time.monotonic()
    for peer in (c.a, c.b):
        until("%s sees its neighbour again" % peer.name, 15, lambda p=peer: p.call("counts")["ups"] == 2)
        c.equal(peer.call("counts")["downs"], 1, "%s saw one down" % peer.name)
    c.note("back in %.1f s" % (time.monotonic() - began))
    for client, t in types:
        c.await_name(client, t, 1)
    c.connection(c.a, c.b, "seqpacket")
    c.connection(c.b, c.a, "stream")


@row(seconds=90, fresh=True, peers=("utipc",))
def stopped_for_5_s(c):
    """SIGSTOP for 5 s: one down and one clean rejoin, seen alike at both ends."""
    c.up()
    x, y, _ = c.connection(c.a, c.b, "seqpacket")
    t = c.new_type()
    c.sock(c.b, "rdm", (t, 1))
    c.await_name(c.a, t, 1)
    c.b.signal(signal.SIGSTOP)
    time.sleep(5)
    c.b.signal(signal.SIGCONT)
    for peer in (c.a, c.b):
        until("%s sees its neighbour again" % peer.name, 15, lambda p=peer: p.call("counts")["ups"] == 2)
    time.sleep(3)
    for peer in (c.a, c.b):
        counts = peer.call("counts")
        c.equal((counts["ups"], counts["downs"]), (2, 1), "%s: one down, one rejoin, %s" % (peer.name, counts["log"]))
    c.broken(c.a, x, "broken by the stop")
    c.broken(c.b, y, "broken by the stop")
    c.await_name(c.a, t, 1)
    c.connection(c.a, c.b, "seqpacket")
    c.connection(c.b, c.a, "seqpacket")


def chatter(c, seconds, both_media):
    """Light traffic of every kind on all clusters for a given time; no link may reset."""
    lines = []
    for k in both_media:
        for client, server in k.both:
            x, y, _ = k.connection(client, server, "seqpacket")
            lines.append((k, client, x, server, y))
    end = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < end:
        for k, client, x, server, y in lines:
            client.call("send_many", s=x, count=20, length=1000)
            got = server.call("recv_many", 60, s=y, count=20, length=1000, idle_ms=20000)
            k.equal((got["got"], got["missing"], got["late"], got["broken"]), (20, 0, 0, 0), "round %d" % rounds)
            t = k.new_type()
            s = k.sock(server, "rdm", (t, 1))["s"]
            k.await_name(client, t, 1, seconds=20)
            server.call("close", s=s)
        rounds += 1
        time.sleep(min(2.0, max(0.0, end - time.monotonic())))
    for k in both_media:
        k.no_reset()
    c.note("%d rounds" % rounds)


def soak(c, seconds):
    """Real time on both media at once without a reset."""
    with c.second() as other:
        c.up()
        other.up()
        chatter(c, seconds, (c, other))
        c.checks += other.checks


@row(media=("both",), fresh=True, seconds=120, snap=128)
def soak_1_minute(c):
    soak(c, 60)


@row(media=("both",), fresh=True, seconds=240, snap=128, by_name=True)
def soak_3_minutes(c):
    soak(c, 180)


@row(media=("both",), fresh=True, seconds=200, snap=128)
def cpu_oversubscribed_2_minutes(c):
    """The CPU four times oversubscribed for 2 minutes at the default tolerance: no false node-down."""
    with c.second() as other:
        c.up()
        other.up()
        spinners = [spin() for _ in range(4 * (os.cpu_count() or 1))]
        try:
            chatter(c, 120, (c, other))
        finally:
            for pid in spinners:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        c.checks += other.checks


def spin():
    pid = os.fork()
    if pid:
        return pid
    while True:
        pass
