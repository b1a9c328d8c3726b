"""Rows about discovery, bindings and single messages."""

import time

from cluster import GONE_S, UP_S, close_all
from net import until
from rows import ALL_MEDIA, row

SIZES = (1, 1400, 1500, 20000, 66000)
NO_PORT = 2                                              # TIPC_ERR_NO_PORT


def discovered(c, seconds):
    c.check(seconds <= UP_S, "both up within %.1f s of enabling the bearer, took %.2f s" % (UP_S, seconds))
    c.note("up in %.2f s" % seconds)
    addresses = [p.call("address")["address"] for p in (c.a, c.b)]
    c.check(addresses[0] and addresses[1] and addresses[0] != addresses[1], "two addresses: %s" % addresses)
    for peer, other in ((c.a, addresses[1]), (c.b, addresses[0])):
        counts = peer.call("counts")
        c.equal([entry[1:] for entry in counts["log"]], [["published", other]], "%s sees the other node" % peer.name)


@row(media=ALL_MEDIA, fresh=True, seconds=40)
def discovery_identity(c):
    """Both nodes choose their address from a 128-bit identity."""
    discovered(c, c.up(a={"identity": "alpha"}, b={"identity": "beta"}))


@row(fresh=True, seconds=40)
def discovery_legacy(c):
    """Both nodes have an explicit <Z.C.N> address."""
    discovered(c, c.up())
    c.equal([p.call("address")["address"] for p in (c.a, c.b)], [0x1001001, 0x1001002], "addresses as given")


@row(fresh=True, seconds=40)
def discovery_mixed(c):
    """The kernel has a legacy address, the other an identity."""
    discovered(c, c.up(b={"identity": "beta"}))


@row(fresh=True, media=("eth",), seconds=60)
def discovery_address_clash(c):
    """Two identities hash to one address: the later node takes another one."""
    c.begin(c.a, {"identity": "ABCDEFGHEFGHABCD".encode().hex()})
    until("node a has its address", 10, lambda: c.a.call("address")["address"])
    c.join({"identity": "ABCDABCDEFGHEFGH".encode().hex()})
    addresses = [p.call("address")["address"] for p in (c.a, c.b)]
    c.equal(addresses[0], 0x4546474c, "the first keeps its address")
    c.check(addresses[1] not in (0, addresses[0]), "the second took another: %s" % addresses)


@row(fresh=True, media=("eth",), seconds=40)
def other_cluster_ignored(c):
    """A node with another cluster id on the same wire is ignored."""
    c.begin(c.a, {"address": "1.1.1"})
    c.begin(c.b, {"address": "1.1.2", "cluster": 9999})
    time.sleep(3)
    for peer in (c.a, c.b):
        c.equal(peer.call("counts")["ups"], 0, "%s sees no node" % peer.name)


@row(seconds=120)
def bindings_1000(c):
    """1,000 bindings on each side, half withdrawn: the same table at both ends."""
    mine = [(p, c.sock(p)["s"], c.new_type()) for p in (c.a, c.b)]
    types = {t for _, _, t in mine}

    def tables():
        return [[n for n in p.call("names", 60)["names"] if n[0] in types] for p in (c.a, c.b)]

    def same(count):
        first, second = tables()
        return len(first) == count and first == second

    for p, s, t in mine:
        p.call("bind_many", 60, s=s, type=t, count=1000)
    until("both tables hold the same 2,000 bindings", 30, lambda: same(2000), 0.3)
    for p, s, t in mine:
        p.call("unbind_many", 60, s=s, type=t, count=1000, step=2)
    until("both tables hold the same 1,000 bindings", 30, lambda: same(1000), 0.3)
    instances = {n[1] % 2 for n in tables()[0]}
    c.equal(instances, {1}, "the odd instances are left")
    for p, s, _ in mine:
        close_all(p, s)
    until("closing withdraws the rest", 30, lambda: same(0), 0.3)
    c.checks += 3


@row(fresh=True, seconds=60)
def bindings_before_link(c):
    """Bindings that exist before the link are transferred in bulk."""
    c.net.fault("loss 100%")
    for peer, number, address in ((c.a, 1, "1.1.1"), (c.b, 2, "1.1.2")):
        peer.call("start", address=address)
        peer.call("watch")
        peer.call("enable", **c.bearer(number))
        s, t = c.sock(peer)["s"], c.new_type()
        peer.call("bind_many", s=s, type=t, count=200)
        peer.call("bind", s=s, type=t + 1, lower=10, upper=99)
        peer.call("bind", s=s, type=t + 2, lower=1, upper=1, scope="node")
    c.equal([len(p.call("names")["names"]) for p in (c.a, c.b)], [201, 201], "each knows its own bindings")
    c.net.fault(None)
    for peer in (c.a, c.b):
        peer.call("wait_up", timeout_ms=20000)

    def tables():
        return [p.call("names")["names"] for p in (c.a, c.b)]

    until("both tables hold the same 402 bindings", 20,
          lambda: len(tables()[0]) == 402 and tables()[0] == tables()[1], 0.3)
    c.checks += 1


@row(seconds=60)
def rdm_unicast(c):
    """To a service address, and back to the port; the receiver learns the service address that was used."""
    for client, server in c.both:
        t = c.new_type()
        s = c.sock(server, "rdm", (t, 10, 20))
        q = c.sock(client, "rdm")
        c.await_name(client, t, 15)
        client.call("send", s=q["s"], length=0, text="hello", to={"name": [t, 15]})
        got = server.call("recv", s=s["s"])
        c.equal(bytes.fromhex(got["head"]), b"hello", "by name to %s" % server.name)
        c.equal(got["from"], q["port"], "the sender's port")
        c.equal(got["name"], [t, 15, 15], "the name that was used")
        server.call("send", s=s["s"], length=0, text="reply", to={"port": got["from"]})
        back = client.call("recv", s=q["s"])
        c.equal(bytes.fromhex(back["head"]), b"reply", "by port to %s" % client.name)
        c.equal(back["from"], s["port"], "the replier's port")
        for importance in range(4):
            client.call("option", s=q["s"], name="importance", value=importance)
            client.call("send", s=q["s"], length=100, seed=importance, to={"name": [t, 10]})
            c.equal(server.call("recv", s=s["s"])["length"], 100, "importance %d" % importance)
        # With the lookup domain of the server's node, and to an unbound service.
        node = server.call("address")["address"]
        client.call("send", s=q["s"], length=7, to={"name": [t, 11, node]})
        c.equal(server.call("recv", s=s["s"])["length"], 7, "with a lookup domain")
        code = client.refused("send", s=q["s"], length=7, to={"name": [t, 99]})
        c.equal(code, "EHOSTUNREACH", "%s sends to an unknown name" % client.name)
        d = c.sock(client, "dgram")
        client.call("send", s=d["s"], length=9, to={"name": [t, 12]})
        c.equal(server.call("recv", s=s["s"])["length"], 9, "SOCK_DGRAM")
        close_all(server, s["s"])
        close_all(client, q["s"], d["s"])


@row(seconds=60)
def rdm_anycast_round_robin(c):
    """Three sockets bound to one service take turns."""
    for client, server in c.both:
        t = c.new_type()
        socks = [c.sock(server, "rdm", (t, 1))["s"] for _ in range(3)]
        q = c.sock(client, "rdm")["s"]
        until("%s knows three bindings" % client.name, 10,
              lambda: sum(n[0] == t for n in client.call("names")["names"]) == 3, 0.1)
        client.call("send_many", s=q, count=12, length=100, to={"name": [t, 1]})
        order = []
        for s in socks:
            for _ in range(4):
                got = server.call("recv", s=s)
                order.append(int(got["head"][:8], 16))
            c.equal(server.refused("recv", s=s, timeout_ms=200), "EAGAIN", "no socket gets more than its share")
        c.equal(sorted(order), list(range(12)), "each message once")
        for i in range(3):
            share = order[i * 4:i * 4 + 4]
            c.equal([b - a for a, b in zip(share, share[1:])], [3, 3, 3], "socket %d gets every third" % i)
        close_all(server, *socks)
        close_all(client, q)


@row(seconds=90)
def rdm_multicast(c):
    """To every socket whose range overlaps, on both nodes, by broadcast and by replicast."""
    for sender, other in c.both:
        t = c.new_type()
        inside = [(sender, c.sock(sender, "rdm", (t, 0, 99))), (other, c.sock(other, "rdm", (t, 50, 50))),
                  (other, c.sock(other, "rdm", (t, 40, 60)))]
        outside = c.sock(other, "rdm", (t, 70, 80))["s"]
        until("%s knows four bindings" % sender.name, 10,
              lambda: sum(n[0] == t for n in sender.call("names")["names"]) == 4, 0.1)
        q = c.sock(sender, "rdm")["s"]
        for mode in (None, "broadcast", "replicast"):
            if mode:
                sender.call("option", s=q, name="mcast", value=mode)
            for length in (9, 3000, 20000):
                sent = sender.call("send", s=q, length=length, seed=length, to={"range": [t, 45, 55]})
                for peer, s in inside:
                    got = peer.call("recv", s=s["s"])
                    c.equal((got["length"], got["adler"]), (length, sent["adler"]), "%s gets %d bytes by %s from %s"
                            % (peer.name, length, mode or "default", sender.name))
        c.equal(other.refused("recv", s=outside, timeout_ms=300), "EAGAIN", "a range that does not overlap gets nothing")
        for peer, s in inside:
            close_all(peer, s["s"])
        close_all(other, outside)
        close_all(sender, q)


@row(media=ALL_MEDIA, seconds=90)
def message_sizes(c):
    """1 to 66,000 bytes, connectionless and connected, in each direction."""
    for client, server in c.both:
        t = c.new_type()
        s = c.sock(server, "rdm", (t, 1))["s"]
        q = c.sock(client, "rdm")["s"]
        c.await_name(client, t, 1)
        x, y, l = c.connection(client, server, "seqpacket")
        for length in SIZES:
            for out, into, to in ((q, s, {"name": [t, 1]}), (x, y, None)):
                sent = client.call("send", s=out, length=length, seed=length, to=to)
                got = server.call("recv", s=into)
                c.equal((got["length"], got["adler"]), (length, sent["adler"]),
                        "%d bytes from %s %s" % (length, client.name, "by name" if to else "by connection"))
            sent = server.call("send", s=y, length=length, seed=length + 1)
            got = client.call("recv", s=x)
            c.equal((got["length"], got["adler"]), (length, sent["adler"]), "%d bytes back" % length)
        code = client.refused("send", s=q, length=66001, to={"name": [t, 1]})
        c.equal(code, "EMSGSIZE", "one byte more than 66,000")
        close_all(client, q, x)
        close_all(server, s, y, l)


@row(seconds=60)
def returned_message(c):
    """A message to a closed port is returned with its error code and data."""
    for client, server in c.both:
        gone = c.sock(server, "rdm")
        q = c.sock(client, "rdm", droppable=0)["s"]
        server.call("close", s=gone["s"])
        for length, kept in ((18, 18), (3000, 1024)):
            client.call("send", s=q, length=length, seed=5, to={"port": gone["port"]})
            got = client.call("recv", s=q)
            c.equal((got["length"], got["error"]), (0, NO_PORT), "%s: an empty message with the error" % client.name)
            c.equal(got["returned"] and got["returned"]["length"], kept, "bytes of %d that come back" % length)
            c.equal(got["from"], gone["port"], "from the port that was addressed")
        c.equal(client.refused("send", s=q, length=1, to={"port": [5, 0x1001009]}), "EHOSTUNREACH", "the node does not exist")
        client.call("option", s=q, name="droppable", value=1)
        client.call("send", s=q, length=18, to={"port": gone["port"]})
        c.equal(client.refused("recv", s=q, timeout_ms=500), "EAGAIN", "a droppable message is not returned")
        close_all(client, q)


@row(seconds=60)
def remote_topology(c):
    """A subscription at the other node's topology server."""
    for client, server in c.both:
        t = c.new_type()
        node = server.call("address")["address"]
        ports = client.call("subscribe", type=t, lower=0, upper=100, node=node)["s"]
        service = client.call("subscribe", type=t, lower=0, upper=100, filter="service", node=node)["s"]
        time.sleep(0.5)
        first = c.sock(server, "rdm", (t, 3, 7))
        got = client.call("event", s=ports)
        c.equal((got["event"], got["lower"], got["upper"], got["port"]), ("published", 3, 7, first["port"]), "first up")
        c.equal(client.call("event", s=service)["event"], "published", "service up")
        second = c.sock(server, "rdm", (t, 5, 60))
        got = client.call("event", s=ports)
        c.equal((got["event"], got["lower"], got["upper"], got["port"]), ("published", 5, 60, second["port"]), "second up")
        server.call("close", s=first["s"])
        got = client.call("event", s=ports)
        c.equal((got["event"], got["lower"], got["port"]), ("withdrawn", 3, first["port"]), "first down")
        close_all(client, ports, service)
        timed = client.call("subscribe", type=t + 1, lower=0, upper=9, timeout_ms=500, node=node)["s"]
        c.equal(client.call("event", s=timed)["event"], "timeout", "a service that is never bound")
        nodes = client.call("subscribe", type=0, lower=0, upper=0xFFFFFFFF, node=node)["s"]
        seen = {client.call("event", s=nodes)["lower"] for _ in range(2)}
        c.equal(seen, {p.call("address")["address"] for p in (c.a, c.b)}, "the nodes that %s sees" % server.name)
        close_all(client, timed, nodes)
        close_all(server, second["s"])


@row(seconds=60)
def names_vanish_with_their_socket(c):
    """A closed socket's bindings vanish at both ends, and subscribers are notified."""
    for client, server in c.both:
        t = c.new_type()
        s = c.sock(server, "rdm", (t, 1))["s"]
        watch = client.call("subscribe", type=t, lower=0, upper=9)["s"]
        c.equal(client.call("event", s=watch)["event"], "published", "%s is notified" % client.name)
        server.call("close", s=s)
        c.equal(client.call("event", s=watch, timeout_ms=int(GONE_S * 1000))["event"], "withdrawn", "and of its withdrawal")
        close_all(client, watch)
