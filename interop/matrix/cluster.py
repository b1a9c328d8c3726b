"""The environment of a row: two linked nodes, counted checks, and waiting."""

import contextlib
import itertools
import os
import time

from net import Network, until
from peer import Peer, Refused

# A node is lost when nothing was received for the tolerance (1.5 s by default) and probes went unanswered; the rest of
# the limit allows for an emulated, busy CPU.
GONE_S = 6.0
# A link must be up this soon after its bearer was enabled, including the trial second of a self-chosen address.
UP_S = 3.0

_types = itertools.count(10000, 10)


class Failed(AssertionError):
    """A check of a row failed."""


class Cluster:
    """Two nodes: node a is the kernel's; node b is the program under test, or a second kernel node. A row may add node c,
    which is of b's kind."""

    def __init__(self, media, program, log, prefix=""):
        self.media, self.program, self.log, self.prefix = media, program, log, prefix
        self.checks, self.notes, self.last_type = 0, [], 0
        self.net = Network(prefix)
        self.a = self.b = self.c = None
        self.b_was = {}
        try:
            self.a = Peer("a", self.net.a)
            self.b = Peer("b", self.net.b, program, log)
        except BaseException:
            self.remove()
            raise

    @property
    def both(self):
        return ((self.a, self.b), (self.b, self.a))

    def bearer(self, number):
        """Arguments of `enable` for end 1, 2 or 3."""
        kind, _, how = self.media.partition("-")
        if kind == "eth":
            return {"media": "eth", "device": "w"}
        if kind == "two":
            return {"media": "two", "device": "w", "local": "10.0.0.%d" % number}
        form = "fd00::%d" if kind == "udp6" else "10.0.0.%d"
        more = {"remote": form % (3 - number)} if how == "remote" else {}
        return dict(more, media="udp", device="w", local=form % number)

    def begin(self, peer, settings):
        """Starts a node without waiting for a link."""
        peer.call("start", **settings)
        peer.call("watch")
        peer.call("enable", **self.bearer(1 + (self.a, self.b, self.c).index(peer)))

    def up(self, a=None, b=None):
        """Starts and links both nodes; returns the seconds from enabling the second bearer until both see each other."""
        self.begin(self.a, a or {"address": "1.1.1"})
        return self.join(b or {"address": "1.1.2"})

    def join(self, b):
        """Starts node b and links it."""
        self.b_was = b
        self.b.call("start", **b)
        self.b.call("watch")
        began = time.monotonic()
        self.b.call("enable", **self.bearer(2))
        for peer in (self.a, self.b):
            peer.call("wait_up", timeout_ms=20000)
        return time.monotonic() - began

    def add(self, settings):
        """Starts node c; returns all three once each knows the others."""
        self.net.extend()
        self.c = Peer("c", self.net.c, self.program, self.log)
        self.begin(self.c, settings)
        nodes = (self.a, self.b, self.c)
        for peer in nodes:
            until("%s has two neighbours" % peer.name, 20, lambda peer=peer: peer.call("counts")["ups"] == 2)
        return nodes

    def kill_b(self):
        """Node b fails silently."""
        self.b.kill()
        if self.b.is_kernel:
            # A kernel node lives in the namespace, not in the process: silence it, then delete the namespace.
            self.net.fault("loss 100%")

    def rejoin_b(self):
        """Node b returns with the same address."""
        if self.b.is_kernel:
            self.net.replace(2)
            self.net.fault(None)
        self.b = Peer("b", self.net.b, self.program, self.log)
        return self.join(self.b_was)

    def reboot_a(self, a):
        """Node a, which is the kernel's, vanishes and comes back with the settings `a`."""
        self.a.kill()
        self.net.replace(1)
        self.a = Peer("a", self.net.a)
        self.begin(self.a, a)

    def restart_a(self):
        """Restarts the process with node a's sockets; the node itself is the kernel's and stays."""
        self.a.kill()
        self.a = Peer("a", self.net.a)
        self.a.call("watch")
        self.a.call("wait_up", timeout_ms=5000)

    @contextlib.contextmanager
    def second(self):
        """A second cluster on UDP, for as long as the row needs it."""
        other = Cluster("udp", self.program, self.log, self.prefix + "2")
        try:
            yield other
        finally:
            other.remove()

    def remove(self):
        for peer in (self.c, self.b, self.a):
            if peer:
                peer.kill()
        self.net.remove()

    # -- checks

    def check(self, holds, what):
        self.checks += 1
        if not holds:
            raise Failed(what)

    def equal(self, got, expected, what):
        self.check(got == expected, "%s: got %r, expected %r" % (what, got, expected))

    def note(self, text):
        self.notes.append(text)

    def no_reset(self, what="the link stayed up"):
        """Checks that no node has lost another."""
        nodes = [peer for peer in (self.a, self.b, self.c) if peer]
        for peer in nodes:
            counts = peer.call("counts")
            self.equal((counts["ups"], counts["downs"]), (len(nodes) - 1, 0), "%s: %s, ups and downs %s" % (peer.name, what, counts["log"]))

    # -- common steps

    def new_type(self):
        self.last_type = next(_types)
        return self.last_type

    def sock(self, peer, kind="rdm", name=None, **options):
        s = peer.call("socket", kind=kind)
        for option, value in options.items():
            peer.call("option", s=s["s"], name=option, value=value)
        if name:
            peer.call("bind", s=s["s"], type=name[0], lower=name[1], upper=name[-1])
        return s

    def await_name(self, peer, type, instance, event="published", seconds=10.0):
        """Waits until `peer` knows (or no longer knows) a binding."""
        if event == "withdrawn":
            until("%s forgets {%d,%d}" % (peer.name, type, instance), seconds,
                  lambda: not any(n[0] == type and n[1] <= instance <= n[2] for n in peer.call("names")["names"]))
            return
        s = peer.call("subscribe", type=type, lower=instance, upper=instance)["s"]
        got = peer.call("event", s=s, timeout_ms=int(seconds * 1000))
        self.equal(got["event"], "published", "%s learns of {%d,%d}" % (peer.name, type, instance))
        peer.call("close", s=s)

    def connection(self, client, server, kind, timeout_ms=20000):
        """A connected pair of sockets: (the client's, the server's, the listener's)."""
        type = self.new_type()
        l = self.sock(server, kind, (type, 1))["s"]
        server.call("listen", s=l)
        self.await_name(client, type, 1)
        c = client.call("socket", kind=kind)["s"]
        accepting = server.begin("accept", s=l, timeout_ms=timeout_ms)
        client.call("connect", s=c, to={"name": [type, 1]}, timeout_ms=timeout_ms)
        return c, accepting.result()["s"], l

    def broken(self, peer, s, what, seconds=GONE_S):
        """Checks that the connection of `s` ends soon, with an error or end of file."""
        began = time.monotonic()
        try:
            got = peer.call("recv", s=s, timeout_ms=int(seconds * 1000), wait_s=seconds + 10)
            self.check(got["length"] == 0, "%s: %s: data instead of an end: %s" % (peer.name, what, got))
        except Refused as error:
            self.check(error.code != "EAGAIN", "%s: %s: did not end within %.1f s" % (peer.name, what, seconds))
        return time.monotonic() - began


def close_all(peer, *sockets):
    for s in sockets:
        peer.call("close", s=s)


def folder(path):
    os.makedirs(path, exist_ok=True)
    return path
