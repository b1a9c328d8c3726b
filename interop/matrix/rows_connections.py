"""Rows about connections: setup, streams, flow control, ends."""

import time

from cluster import GONE_S, close_all
from net import until
from rows import row

MIB = 1 << 20
# Bytes that a writer may have in flight to a reader that does not read: the receive buffer, the link's queues, and some
# slack.
STALL_BYTES = 6 * MIB
# Permitted growth of a node's process during that time.
STALL_RSS_KIB = 24 * 1024


@row(seconds=90)
def seqpacket_setup(c):
    """connect/accept in each direction, messages in each direction, shutdown seen by the peer."""
    for client, server in c.both:
        x, y, l = c.connection(client, server, "seqpacket")
        for a, s, b, r in ((client, x, server, y), (server, y, client, x)):
            sending = a.begin("send_many", s=s, count=200, length=500)
            got = b.call("recv_many", s=r, count=200, length=500)
            c.equal(sending.result(), {"sent": 200, "error": None}, "%s sends 200 messages" % a.name)
            c.equal((got["got"], got["missing"], got["late"], got["broken"]), (200, 0, 0, 0), "200 messages from %s" % a.name)
        client.call("shutdown", s=x)
        c.broken(server, y, "after %s's shutdown" % client.name)
        close_all(client, x)
        close_all(server, y)
        # The other way round: the server ends it.
        c2 = client.call("socket", kind="seqpacket")["s"]
        accepting = server.begin("accept", s=l)
        client.call("connect", s=c2, to={"name": [c.last_type, 1]})
        y2 = accepting.result()["s"]
        server.call("close", s=y2)
        c.broken(client, c2, "after %s's close" % server.name)
        close_all(client, c2)
        close_all(server, l)


@row(seconds=60)
def stream_setup(c):
    """connect/accept in each direction; bytes have no boundaries; end of stream."""
    for client, server in c.both:
        x, y, l = c.connection(client, server, "stream")
        for piece in ("abc", "def"):
            client.call("send", s=x, length=0, text=piece)
        got = b""
        while len(got) < 6:
            reply = server.call("recv", s=y)
            got += bytes.fromhex(reply["head"])
        c.equal(got, b"abcdef", "the bytes of two writes")
        writing = server.begin("write", s=y, length=200000, seed=3)
        read = client.call("read", s=x, length=200000, seed=3)
        c.equal((read["length"], read["wrong_at"], read["error"]), (200000, None, None), "200,000 bytes back")
        c.equal(writing.result()["adler"], read["adler"], "checksum")
        client.call("shutdown", s=x)
        c.broken(server, y, "end of stream")
        close_all(client, x)
        close_all(server, y, l)


@row(seconds=60)
def implied_setup(c):
    """The first message sets up the connection, SEQPACKET and STREAM, in each direction."""
    for client, server in c.both:
        for kind in ("seqpacket", "stream"):
            t = c.new_type()
            l = c.sock(server, kind, (t, 1))["s"]
            server.call("listen", s=l)
            c.await_name(client, t, 1)
            x = client.call("socket", kind=kind)["s"]
            accepting = server.begin("accept", s=l)
            client.call("send", s=x, length=0, text="first data", to={"name": [t, 1]})
            y = accepting.result()["s"]
            c.equal(bytes.fromhex(server.call("recv", s=y)["head"]), b"first data", "%s by data to %s" % (kind, server.name))
            server.call("send", s=y, length=0, text="answer")
            c.equal(bytes.fromhex(client.call("recv", s=x)["head"]), b"answer", "answer")
            client.call("send", s=x, length=0, text="more")
            c.equal(bytes.fromhex(server.call("recv", s=y)["head"]), b"more", "more")
            client.call("close", s=x)
            c.broken(server, y, "after the client's close")
            close_all(server, y, l)


@row(seconds=60)
def connect_refused(c):
    """To an unbound service, to a socket that does not listen, to a listener that closes."""
    for client, server in c.both:
        x = client.call("socket", kind="seqpacket")["s"]
        t = c.new_type()
        code = client.refused("connect", s=x, to={"name": [t, 1]}, timeout_ms=3000)
        c.check(code in ("EHOSTUNREACH", "ECONNREFUSED"), "%s connects to an unbound service: %s" % (client.name, code))
        bound = c.sock(server, "seqpacket", (t, 2))["s"]
        c.await_name(client, t, 2)
        x2 = client.call("socket", kind="seqpacket")["s"]
        c.equal(client.refused("connect", s=x2, to={"name": [t, 2]}, timeout_ms=3000), "ECONNREFUSED", "not listening")
        l = c.sock(server, "seqpacket", (t, 3))["s"]
        server.call("listen", s=l)
        c.await_name(client, t, 3)
        x3 = client.call("socket", kind="seqpacket")["s"]
        connecting = client.begin("connect", s=x3, to={"name": [t, 3]}, timeout_ms=8000)
        time.sleep(0.5)
        server.call("close", s=l)
        try:
            connecting.result()
            code = None
        except Exception as error:
            code = getattr(error, "code", str(error))
        c.equal(code, "ECONNREFUSED", "the listener closed before it accepted")
        close_all(client, x, x2, x3)
        close_all(server, bound)


@row(seconds=240, snap=None)
def stream_100_mb(c):
    """100 MB in each direction through a STREAM, every byte compared, without a reset."""
    total = 100 * 1000 * 1000
    carried, fragments = c.net.carried(), c.net.fragments_from_b()
    for client, server in c.both:
        x, y, l = c.connection(client, server, "stream")
        began = time.monotonic()
        writing = client.begin("write", s=x, length=total, seed=9, timeout_ms=110000)
        read = server.call("read", 120, s=y, length=total, seed=9, timeout_ms=110000)
        took = time.monotonic() - began
        wrote = writing.result()
        c.equal((wrote["length"], wrote["error"]), (total, None), "%s wrote" % client.name)
        c.equal((read["length"], read["wrong_at"], read["error"]), (total, None, None), "%s read" % server.name)
        c.equal(read["adler"], wrote["adler"], "checksum")
        c.note("%s to %s %.1f MB/s" % (client.name, server.name, total / took / 1e6))
        close_all(client, x)
        close_all(server, y, l)
    c.check(c.net.carried() - carried >= 2 * total, "all data crossed the wire")
    if not c.b.is_kernel:
        c.equal(c.net.fragments_from_b() - fragments, 0, "packets that IP had to fragment")
    c.no_reset()


@row(seconds=120, snap=128)
def slow_reader(c):
    """A writer outruns its reader: it stalls with bounded memory, and nothing is lost."""
    total = 12 * MIB
    for client, server in c.both:
        x, y, l = c.connection(client, server, "stream")
        before = 0 if server.program is None else server.rss_kib()
        stalled = client.call("write", s=x, length=total, seed=4, timeout_ms=2000)
        c.equal(stalled["error"], "EAGAIN", "%s's write times out" % client.name)
        c.check(0 < stalled["length"] <= STALL_BYTES, "stalled after %d bytes, at most %d" % (stalled["length"], STALL_BYTES))
        if before:
            grown = server.rss_kib() - before
            c.check(grown <= STALL_RSS_KIB, "the reader's process grew by %d KiB, at most %d" % (grown, STALL_RSS_KIB))
        writing = client.begin("write", s=x, length=total, at=stalled["length"], seed=4, timeout_ms=60000)
        read = server.call("read", 70, s=y, length=total, seed=4, chunk=32768, pause_us=3000, timeout_ms=60000)
        c.equal((read["length"], read["wrong_at"], read["error"]), (total, None, None), "every byte eventually")
        c.equal(writing.result()["length"], total, "the writer continued")
        c.note("%s stalled after %d KiB" % (client.name, stalled["length"] // 1024))
        close_all(client, x)
        close_all(server, y, l)
    c.no_reset()


@row(seconds=60, snap=128)
def slow_seqpacket_reader(c):
    """The same with messages: the sender stalls, every message arrives once and in order."""
    for client, server in c.both:
        x, y, l = c.connection(client, server, "seqpacket")
        sent = client.call("send_many", s=x, count=3000, length=4000, timeout_ms=2000)
        c.equal(sent["error"], "EAGAIN", "%s stalls" % client.name)
        c.check(sent["sent"] * 4000 <= STALL_BYTES, "stalled after %d messages" % sent["sent"])
        more = client.begin("send_many", s=x, count=3000 - sent["sent"], first=sent["sent"], length=4000, timeout_ms=40000)
        got = server.call("recv_many", 50, s=y, count=3000, length=4000, timeout_ms=40000)
        c.equal((got["got"], got["missing"], got["late"], got["broken"]), (3000, 0, 0, 0), "every message")
        c.equal(more.result()["error"], None, "the sender continued")
        close_all(client, x)
        close_all(server, y, l)


@row(seconds=60, fresh=True)
def kernel_process_killed(c):
    """The process with the kernel's sockets is killed: connections break, bindings vanish, the link stays up."""
    c.up()
    x, y, _ = c.connection(c.b, c.a, "seqpacket")
    x2, y2, _ = c.connection(c.a, c.b, "seqpacket")
    del y, x2
    t = c.new_type()
    c.sock(c.a, "rdm", (t, 1))
    c.await_name(c.b, t, 1)
    c.a.kill()
    c.broken(c.b, x, "its server was killed")
    c.broken(c.b, y2, "its client was killed")
    c.await_name(c.b, t, 1, "withdrawn", GONE_S)
    counts = c.b.call("counts")
    c.equal((counts["ups"], counts["downs"]), (1, 0), "the node is still up")
    c.restart_a()
    c.connection(c.b, c.a, "seqpacket")


@row(seconds=90, fresh=True)
def node_killed(c):
    """Node b fails silently: the kernel's connections break and b's bindings vanish within the tolerance; b rejoins."""
    c.up()
    x, y, _ = c.connection(c.a, c.b, "seqpacket")
    x2, y2, _ = c.connection(c.b, c.a, "stream")
    del y, x2
    t = c.new_type()
    c.sock(c.b, "rdm", (t, 1))
    c.await_name(c.a, t, 1)
    began = time.monotonic()
    c.kill_b()
    c.broken(c.a, x, "its server's node is gone")
    c.broken(c.a, y2, "its client's node is gone")
    c.await_name(c.a, t, 1, "withdrawn", GONE_S)
    until("the kernel sees the node go", GONE_S, lambda: c.a.call("counts")["downs"] == 1)
    took = time.monotonic() - began
    c.check(took <= GONE_S, "all within %.1f s, took %.1f" % (GONE_S, took))
    c.note("gone after %.1f s" % took)
    c.note("back in %.2f s" % c.rejoin_b())
    c.equal([c.a.call("counts")[k] for k in ("ups", "downs")], [2, 1], "the kernel saw one down and one up")
    c.connection(c.a, c.b, "seqpacket")
    c.connection(c.b, c.a, "seqpacket")
