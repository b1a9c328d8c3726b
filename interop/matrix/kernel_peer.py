"""One end of the matrix: a node that is the Linux kernel's TIPC in one network namespace.

It speaks the line protocol of README.md: one JSON object per line in each direction. `utipc-interop` speaks the same,
so rows of the matrix work with either. Each request runs in a separate thread.
"""

import ctypes
import errno
import json
import os
import select
import signal
import socket as S
import struct
import subprocess
import sys
import threading
import time

import pattern
from management import STATISTICS, Netlink, u32

SOL_TIPC = 271
IMPORTANCE, DEST_DROPPABLE, MCAST_BROADCAST, MCAST_REPLICAST, NODELAY = 127, 129, 133, 134, 138
GROUP_JOIN, EVENTS_OF_MEMBERS = 135, 2
ERRINFO, RETDATA, DESTNAME = 1, 2, 3
KINDS = {"rdm": S.SOCK_RDM, "dgram": S.SOCK_DGRAM, "seqpacket": S.SOCK_SEQPACKET, "stream": S.SOCK_STREAM}
SCOPES = {"node": 3, "cluster": 2}
TOP_PORTS, TOP_SERVICE, TOP_CANCEL = 1, 2, 4
EVENTS = {1: "published", 2: "withdrawn", 3: "timeout"}
FOREVER = 0xFFFFFFFF
libc = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """An error that the row may expect; its text is an errno name."""


def tool(*args):
    done = subprocess.run(("tipc",) + args, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError("tipc %s: %s" % (" ".join(args), (done.stderr or done.stdout).strip()))
    return done.stdout


def shown(node):
    """A node of the monitor, from its attributes."""
    applied, members = u32(node[3]), node.get(5, b"")
    up = struct.unpack("=Q", node[4])[0] if 4 in node else 0
    letters = ["U" if up >> i & 1 else "D" for i in range(len(members) // 4)]
    others = struct.unpack("=%dI" % len(letters), members)[applied:]
    return {"address": u32(node[1]), "up": 6 in node, "direct": 7 in node or 8 in node,
            "domain": "".join(letters[:applied]), "other": ["%x:%s" % o for o in zip(others, letters[applied:])]}


class Endpoint:
    """A socket as two Python objects, so that reading and writing have separate timeouts."""

    def __init__(self, sock):
        self.rx = sock
        self.tx = sock.dup()

    def close(self):
        self.rx.close()
        self.tx.close()


class Tally:
    """Results of a run of numbered messages."""

    def __init__(self, first=0):
        self.expected, self.got, self.late, self.broken, self.missing = first, 0, 0, 0, set()

    def take(self, data, length):
        number = int.from_bytes(data[:4], "big")
        if data != pattern.numbered(number, length):
            self.broken += 1
        self.got += 1
        if number < self.expected:
            self.late += 1
            self.missing.discard(number)
            return
        self.missing.update(range(self.expected, number))
        self.expected = number + 1

    def answer(self):
        return {"got": self.got, "missing": len(self.missing), "late": self.late, "broken": self.broken, "next": self.expected}


class Peer:
    def __init__(self):
        self.sockets = {}
        self.next = 1
        self.lock = threading.Lock()
        self.watched, self.watching = {"ups": 0, "downs": 0}, None
        self.log = []

    # -- node

    def op_start(self, address=None, identity=None, cluster=None, key=None, master=None, node_keys=None,
                 rekeying=None):
        if cluster:
            tool("node", "set", "clusterid", str(cluster))
        if address:
            tool("node", "set", "address", address)
        else:
            tool("node", "set", "identity", identity)
        if key:
            tool("node", "set", "key", "0x" + key)
        if master:
            tool("node", "set", "key", "0x" + master, "master")
        for node, its in (node_keys or {}).items():
            tool("node", "set", "key", "0x" + its, "nodeid", node)
        if rekeying:
            tool("node", "set", "key", "rekeying", str(rekeying))
        return {}

    def op_rekey(self):
        """Hands the other nodes a new session key."""
        tool("node", "set", "key", "rekeying", "now")
        return {}

    def op_enable(self, media, device, local=None, remote=None):
        if media in ("eth", "two"):
            tool("bearer", "enable", "media", "eth", "device", device)
        if media != "eth":
            more = ("remoteip", remote) if remote else ()
            tool("bearer", "enable", "media", "udp", "name", "U", "localip", local, *more)
        return {}

    def op_disable(self, media, device):
        tool("bearer", "disable", "media", media, *(("device", device) if media == "eth" else ("name", "U")))
        return {}

    def op_address(self):
        return {"address": int(tool("node", "get", "address").strip() or "0", 16)}

    def op_names(self):
        rows = json.loads(tool("-j", "nametable", "show") or "[]")
        return {"names": sorted([r["type"], r["lower"], r["upper"], r["port"]]
                                for r in rows if r["type"] > 2 and r["scope"] != "node")}

    def op_links(self):
        """For each link: packets received out of order, packets received twice, packets retransmitted."""
        links = [l for l in json.loads(tool("-j", "link", "stat", "show")) if l["link"] != "broadcast-link"]
        return {"links": [{"name": l["link"], "mtu": l["mtu"], "window": l["window"], "deferred": l["rx states"]["defs"],
                           "duplicates": l["rx states"]["dups"], "retransmitted": l["tx states"]["retrans"]}
                          for l in links if "rx states" in l]}

    def op_link_states(self):
        """`up` or `down` for each own bearer that has a link: w (Ethernet), U (UDP)."""
        lines = [line.rsplit(": ", 1) for line in tool("link", "list").splitlines()]
        return {"states": {name.split(":")[1].split("-")[0]: state for name, state in lines if "-" in name and ":" in name}}

    def op_supervision(self):
        """The peers with a link that is up, the sums of the links' counters, and the time."""
        at, links = time.monotonic(), list(Netlink().links())
        sums = {name: sum(u32(counts[kind]) for _, _, counts in links) for name, kind in STATISTICS.items()}
        return dict(sums, at=at, up=sorted(peer for peer, is_up, _ in links if is_up))

    def op_monitor(self):
        """The ring of the node's only bearer, this node first. `direct`: this node supervises it; `domain`: a letter for
        each member of its domain that agrees with the ring, U (up) or D (down); `other`: the other members."""
        active, nodes = Netlink().monitor()
        return {"active": active, "ring": [shown(node) for node in nodes]}

    def op_threshold(self, nodes):
        """Sets the number of nodes above which the monitor is active."""
        Netlink().set_threshold(nodes)
        return {}

    def op_memory(self):
        return {"rss_kib": None}                         # the kernel's buffers do not belong to a process

    def op_watch(self):
        """Starts counting nodes that come and go; `counts` returns the result."""
        own = self.op_address()["address"]               # 0 during the node's address trial
        server = self.topology(0)
        server.sendall(struct.pack("=5I8s", 0, 0, FOREVER, FOREVER, TOP_PORTS, b"watch---"))

        def follow():
            while True:
                try:
                    data = server.recv(48)
                except OSError:                           # `unwatch`
                    return
                if len(data) < 48:
                    return
                event, lower = struct.unpack("=2I", data[:8])
                if lower != (own or self.op_address()["address"]):
                    self.watched["ups" if event == 1 else "downs"] += 1
                    self.log.append([round(time.monotonic(), 3), EVENTS.get(event), lower])

        threading.Thread(target=follow, daemon=True).start()
        self.watching = server
        return {}

    def op_unwatch(self):
        """Ends `watch`: its thread would keep the namespace."""
        if self.watching:
            self.watching.shutdown(S.SHUT_RDWR)
        return {}

    def op_counts(self):
        return dict(self.watched, log=self.log[-200:])

    def op_wait_up(self, timeout_ms):
        """Waits until another node is up, as seen since `watch`."""
        deadline = time.monotonic() + timeout_ms / 1000
        while self.watched["ups"] <= self.watched["downs"]:
            if time.monotonic() > deadline:
                raise Failed("ETIMEDOUT")
            time.sleep(0.01)
        return {}

    # -- sockets

    def keep(self, sock):
        with self.lock:
            self.sockets[self.next] = Endpoint(sock)
            self.next += 1
            return self.next - 1

    def op_socket(self, kind):
        sock = S.socket(S.AF_TIPC, KINDS[kind])
        kept = self.keep(sock)
        _, node, ref = sock.getsockname()[:3]
        return {"s": kept, "port": [ref, node]}

    def op_option(self, s, name, value):
        sock = self.sockets[s].rx
        if name == "mcast":
            option = {"broadcast": MCAST_BROADCAST, "replicast": MCAST_REPLICAST}[value]
            sock.setsockopt(SOL_TIPC, option, None, 0)
        else:
            option = {"importance": IMPORTANCE, "droppable": DEST_DROPPABLE, "nodelay": NODELAY}[name]
            sock.setsockopt(SOL_TIPC, option, int(value))
        return {}

    def op_bind(self, s, type, lower, upper, scope="cluster"):
        self.sockets[s].rx.bind((S.TIPC_ADDR_NAMESEQ, type, lower, upper, SCOPES[scope]))
        return {}

    def op_unbind(self, s, type, lower, upper, scope="cluster"):
        self.sockets[s].rx.bind((S.TIPC_ADDR_NAMESEQ, type, lower, upper, -SCOPES[scope]))
        return {}

    def op_bind_many(self, s, type, count):
        """Instances 0 .. count-1 of `type`, one binding each."""
        for i in range(count):
            self.op_bind(s, type, i, i)
        return {}

    def op_unbind_many(self, s, type, count, step):
        for i in range(0, count, step):
            self.op_unbind(s, type, i, i)
        return {}

    def address(self, to):
        """A sockaddr_tipc, packed by hand because Python's tuples have no lookup domain."""
        if "name" in to:
            kind, instance, node = (to["name"] + [0])[:3]
            return struct.pack("=HBb3I", S.AF_TIPC, 2, 0, kind, instance, node)
        if "range" in to:
            return struct.pack("=HBb3I", S.AF_TIPC, 1, 0, *to["range"])
        ref, node = to["port"]
        return struct.pack("=HBb3I", S.AF_TIPC, 3, 0, ref, node, 0)

    def send_one(self, sock, data, to, deadline):
        """Sends one message; waits during congestion, until the deadline."""
        address = self.address(to) if to else None
        while True:
            r = libc.sendto(sock.fileno(), data, len(data), S.MSG_DONTWAIT, address, 16 if address else 0)
            if r >= 0:
                return
            code = ctypes.get_errno()
            left = deadline - time.monotonic()
            if code != errno.EAGAIN or left <= 0:
                raise Failed(errno.errorcode[code])
            # A connectionless socket is always writable: only the send shows congestion.
            wait = select.poll()
            wait.register(sock, select.POLLOUT)
            wait.poll(min(left, 0.5) * 1000)
            time.sleep(0.001)

    def op_send(self, s, length, seed=0, to=None, text=None, timeout_ms=10000):
        data = text.encode() if text is not None else pattern.piece(seed, 0, length)
        self.send_one(self.sockets[s].tx, data, to, time.monotonic() + timeout_ms / 1000)
        return {"adler": pattern.checksum(data)}

    def op_send_many(self, s, count, length, to=None, first=0, gap_us=0, timeout_ms=60000):
        """Sends messages first .. first+count-1, each with its number inside. Returns the number sent and any error.

        `to` may be a list: message N then goes to the entry N modulo its length.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        sent = 0
        for number in range(first, first + count):
            try:
                there = to[number % len(to)] if isinstance(to, list) else to
                self.send_one(self.sockets[s].tx, pattern.numbered(number, length), there, deadline)
            except Failed as error:
                return {"sent": sent, "error": str(error)}
            sent += 1
            if gap_us:
                time.sleep(gap_us / 1e6)
        return {"sent": sent, "error": None}

    def receive(self, sock, timeout_ms):
        sock.settimeout(timeout_ms / 1000)
        return sock.recvmsg(70000, 2048)

    def op_recv(self, s, timeout_ms=10000):
        data, ancillary, _, who = self.receive(self.sockets[s].rx, timeout_ms)
        reply = {"length": len(data), "adler": pattern.checksum(data), "head": data[:64].hex(), "error": 0,
                 "returned": None, "name": None, "from": [who[2], who[1]] if who else None}
        for level, kind, value in ancillary:
            if level == SOL_TIPC and kind == ERRINFO:
                reply["error"], _ = struct.unpack("=2I", value[:8])
            elif level == SOL_TIPC and kind == RETDATA:
                reply["returned"] = {"length": len(value), "adler": pattern.checksum(value)}
            elif level == SOL_TIPC and kind == DESTNAME:
                reply["name"] = list(struct.unpack("=3I", value[:12]))
        return reply

    def op_recv_many(self, s, count, length, first=0, timeout_ms=60000, idle_ms=5000):
        """Receives until `count` messages arrived, or none for `idle_ms`. Returns the numbers of faulty messages."""
        deadline = time.monotonic() + timeout_ms / 1000
        tally, error = Tally(first), None
        while tally.got < count:
            left = min(idle_ms / 1000, deadline - time.monotonic())
            try:
                data, ancillary, _, _ = self.receive(self.sockets[s].rx, max(left, 0.001) * 1000)
            except OSError as problem:
                error = name_of(problem)
                break
            if not data and not ancillary:
                error = "EOF"
                break
            if not data:
                error = "REJECTED"
                break
            tally.take(data, length)
        return dict(tally.answer(), error=error)

    # -- groups

    def op_join(self, s, type, instance, events=False):
        request = struct.pack("=4I", type, instance, SCOPES["cluster"], EVENTS_OF_MEMBERS if events else 0)
        self.sockets[s].rx.setsockopt(SOL_TIPC, GROUP_JOIN, request)
        return {}

    def op_member_event(self, s, timeout_ms=10000):
        """The next thing that a member receives must be an event: `joined` or `left`, and the member's port."""
        data, _, flags, who = self.receive(self.sockets[s].rx, timeout_ms)
        if data or not flags & S.MSG_OOB:
            raise Failed("a message, not an event")
        return {"event": "left" if flags & S.MSG_EOR else "joined", "port": [who[2], who[1]]}

    def op_recv_group(self, s, count, length, timeout_ms=60000, idle_ms=5000):
        """As `recv_many`, for a member: the messages of each sender have their own numbers, from 0. Events are counted."""
        deadline = time.monotonic() + timeout_ms / 1000
        tallies, error, events = {}, None, {"joined": 0, "left": 0}
        while sum(t.got for t in tallies.values()) < count:
            left = min(idle_ms / 1000, deadline - time.monotonic())
            try:
                data, _, flags, who = self.receive(self.sockets[s].rx, max(left, 0.001) * 1000)
            except OSError as problem:
                error = name_of(problem)
                break
            if flags & S.MSG_OOB:
                events["left" if flags & S.MSG_EOR else "joined"] += 1
                continue
            tallies.setdefault(who[1:3], Tally()).take(data, length)
        sums = {k: sum(t.answer()[k] for t in tallies.values()) for k in ("got", "missing", "late", "broken")}
        return dict(sums, error=error, senders=len(tallies), **events)

    # -- connections

    def op_listen(self, s):
        self.sockets[s].rx.listen(16)
        return {}

    def op_accept(self, s, timeout_ms=10000):
        sock = self.sockets[s].rx
        sock.settimeout(timeout_ms / 1000)
        accepted, who = sock.accept()
        return {"s": self.keep(accepted), "from": [who[2], who[1]]}

    def op_connect(self, s, to, timeout_ms=10000):
        sock = self.sockets[s].rx
        sock.settimeout(timeout_ms / 1000)
        sock.setblocking(True)
        sock.setsockopt(SOL_TIPC, 130, timeout_ms)        # TIPC_CONN_TIMEOUT
        if libc.connect(sock.fileno(), self.address(to), 16) < 0:
            raise Failed(errno.errorcode[ctypes.get_errno()])
        _, node, ref = sock.getpeername()[:3]
        return {"peer": [ref, node]}

    def op_write(self, s, length, at=0, seed=0, chunk=65536, timeout_ms=60000):
        """Writes pattern bytes at .. length to a stream. Returns how many were written and the error, if any."""
        sock = self.sockets[s].tx
        deadline = time.monotonic() + timeout_ms / 1000
        adler, error = 1, None
        while at < length:
            data = pattern.piece(seed, at, min(chunk, length - at))
            left = deadline - time.monotonic()
            if left <= 0:
                error = "EAGAIN"
                break
            sock.settimeout(left)
            try:
                sent = sock.send(data)
            except OSError as problem:
                error = name_of(problem)
                break
            adler = pattern.checksum(data[:sent], adler)
            at += sent
        return {"length": at, "adler": adler, "error": error}

    def op_read(self, s, length, seed=0, chunk=65536, pause_us=0, timeout_ms=60000):
        """Reads `length` pattern bytes from a stream. Returns the number read and the position of a wrong one."""
        sock = self.sockets[s].rx
        deadline = time.monotonic() + timeout_ms / 1000
        at, adler, error, wrong_at = 0, 1, None, None
        while at < length:
            left = deadline - time.monotonic()
            if left <= 0:
                error = "EAGAIN"
                break
            sock.settimeout(left)
            try:
                data = sock.recv(min(chunk, length - at))
            except OSError as problem:
                error = name_of(problem)
                break
            if not data:
                error = "EOF"
                break
            if wrong_at is None and data != pattern.piece(seed, at, len(data)):
                wrong_at = at
            adler = pattern.checksum(data, adler)
            at += len(data)
            if pause_us:
                time.sleep(pause_us / 1e6)
        return {"length": at, "adler": adler, "error": error, "wrong_at": wrong_at}

    def op_shutdown(self, s):
        self.sockets[s].rx.shutdown(S.SHUT_RDWR)
        return {}

    def op_close(self, s):
        self.sockets.pop(s).close()
        return {}

    # -- topology

    def topology(self, node):
        """Connects to the topology server of `node` (0: this node)."""
        sock = S.socket(S.AF_TIPC, S.SOCK_SEQPACKET)
        if libc.connect(sock.fileno(), self.address({"name": [1, 1, node]}), 16) < 0:
            raise Failed(errno.errorcode[ctypes.get_errno()])
        return sock

    def op_subscribe(self, type, lower, upper, filter="ports", timeout_ms=None, node=0):
        sock = self.topology(node)
        limit = FOREVER if timeout_ms is None else timeout_ms
        how = {"ports": TOP_PORTS, "service": TOP_SERVICE}[filter]
        sock.sendall(struct.pack("=5I8s", type, lower, upper, limit, how, b"interop-"))
        return {"s": self.keep(sock)}

    def op_event(self, s, timeout_ms=10000):
        sock = self.sockets[s].rx
        sock.settimeout(timeout_ms / 1000)
        data = sock.recv(48)
        if len(data) < 48:
            raise Failed("EOF")
        event, lower, upper, ref, node, type = struct.unpack("=6I", data[:24])
        return {"event": EVENTS.get(event, str(event)), "type": type, "lower": lower, "upper": upper, "port": [ref, node]}

    # -- the line protocol

    def serve(self, requests, replies):
        out = threading.Lock()

        def run(request):
            number = request.pop("id")
            try:
                op = getattr(self, "op_" + request.pop("op"))
                reply = {"id": number, "ok": op(**request)}
            except Failed as error:
                reply = {"id": number, "error": str(error)}
            except OSError as error:
                reply = {"id": number, "error": name_of(error)}
            except Exception as error:                    # a bug in the row or here: report it to the driver
                reply = {"id": number, "error": "%s: %s" % (type(error).__name__, error)}
            with out:
                replies.write(json.dumps(reply) + "\n")
                replies.flush()

        for line in requests:
            threading.Thread(target=run, args=(json.loads(line),), daemon=True).start()


def name_of(error):
    if isinstance(error, TimeoutError):
        return "EAGAIN"
    return errno.errorcode.get(error.errno, str(error))


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Peer().serve(sys.stdin, sys.stdout)
    os._exit(0)


if __name__ == "__main__":
    main()
