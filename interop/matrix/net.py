"""Two nodes on an emulated network: namespace a, a switch in namespace m, namespace b.

Both ends keep their veth unchanged, because faults happen at the switch, per packet: b's segmentation offload is undone
before the switch, so 5 % loss loses 5 % of the packets, not of the 64 KiB batches.
"""

import json
import subprocess
import time


def sh(*args):
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError("%s: %s" % (" ".join(args), (done.stderr or done.stdout).strip()))
    return done.stdout


def batch(tool, namespace, lines):
    """Runs many commands of ip or tc in one process, because starting processes is slow on an emulated CPU."""
    done = subprocess.run([tool] + (["-n", namespace] if namespace else []) + ["-batch", "-"],
                          input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError("%s -batch in %s: %s" % (tool, namespace, (done.stderr or done.stdout).strip()))


# Two kernel nodes in one kernel recognize each other by word 13 of the discovery message and then pass data directly
# from socket to socket. Clearing the word at ingress keeps all traffic on the wire. A user-space node is never
# recognized.
ESTRANGE = [
    "qdisc add dev w clsact",
    "filter add dev w ingress pref 1 protocol 0x88ca u32 match u8 0x5a 0xfe at 0 action pedit munge offset 52 u32 set 0",
    "filter add dev w ingress pref 2 protocol ip u32 match ip protocol 17 0xff match u16 0 0x3fff at 6"
    " match u8 0x5a 0xfe at 28 action pedit munge offset 80 u32 set 0",
    "filter add dev w ingress pref 3 protocol ipv6 u32 match u8 17 0xff at 6 match u8 0x5a 0xfe at 48"
    " action pedit munge offset 100 u32 set 0",
]


class Network:
    """Namespaces PREFIXa and PREFIXb, each with device w (10.0.0.1, 10.0.0.2), joined by a switch."""

    def __init__(self, prefix=""):
        self.a, self.b, self.m = prefix + "a", prefix + "b", prefix + "m"
        self.c, self.prefix = None, prefix
        self.taps = []
        batch("ip", None, ["netns add " + n for n in (self.a, self.b, self.m)])
        batch("ip", self.m, ["link add s type bridge mcast_snooping 0", "link set s up"])
        self.plug(self.a, 1)
        self.plug(self.b, 2)

    def plug(self, end, number):
        port = "p%d" % number
        batch("ip", end, [
            "link set lo up",
            "link add w type veth peer name %s netns %s" % (port, self.m),
            "link set w address 02:00:00:00:00:0%d gso_max_segs 1" % number,
            "addr add 10.0.0.%d/24 dev w" % number,
            "addr add fd00::%d/64 dev w nodad" % number,
            "link set w up",
            "route add 224.0.0.0/4 dev w",
        ])
        batch("ip", self.m, ["link set %s master s up" % port])
        batch("tc", end, ESTRANGE)

    def extend(self):
        """Adds namespace PREFIXc, with device w (10.0.0.3). Faults are not for it."""
        self.c = self.prefix + "c"
        batch("ip", None, ["netns add " + self.c])
        self.plug(self.c, 3)

    def replace(self, number):
        """Replaces namespace a (1) or b (2), with the same port and address, like a rebooted host."""
        end = (self.a, self.b)[number - 1]
        batch("ip", self.m, ["link del p%d" % number])
        batch("ip", None, ["netns del " + end, "netns add " + end])
        self.plug(end, number)

    def fault(self, spec):
        """Applies netem options to every packet, in both directions; None removes them."""
        for port in ("p1", "p2"):
            if spec:
                batch("tc", self.m, ["qdisc replace dev %s root netem limit 20000 %s" % (port, spec)])
            else:
                subprocess.run(["tc", "-n", self.m, "qdisc", "del", "dev", port, "root"], capture_output=True, check=False)

    def cut(self, media):
        """Drops the packets of one medium (`eth` or `udp`), or of none (None), in both directions."""
        match = {"eth": "protocol 0x88ca u32 match u8 0 0 at 0",
                 "udp": "protocol ip u32 match ip protocol 17 0xff match ip dport 6118 0xffff"}
        for port in ("p1", "p2"):
            subprocess.run(["tc", "-n", self.m, "qdisc", "del", "dev", port, "clsact"], capture_output=True, check=False)
            if media:
                batch("tc", self.m, ["qdisc add dev %s clsact" % port,
                                     "filter add dev %s ingress pref 1 %s action drop" % (port, match[media])])

    def dropped(self):
        """Number of packets that the current faults have dropped."""
        return sum(q["drops"] for port in ("p1", "p2")
                   for q in json.loads(sh("tc", "-n", self.m, "-s", "-j", "qdisc", "show", "dev", port))
                   if q["kind"] == "netem")

    def carried(self):
        """Number of bytes that passed the switch, in both directions."""
        return sum(json.loads(sh("ip", "-n", self.m, "-s", "-j", "link", "show", "dev", port))[0]["stats64"]["rx"]["bytes"]
                   for port in ("p1", "p2"))

    def fragments_from_b(self):
        """Number of IP fragments that node b's system has created."""
        lines = sh("ip", "netns", "exec", self.b, "cat", "/proc/net/snmp").splitlines()
        names, values = [l.split() for l in lines if l.startswith("Ip:")]
        return int(values[names.index("FragCreates")])

    def tap(self, path, snap=0):
        """Records the traffic at a's end until `untap`."""
        process = subprocess.Popen(["ip", "netns", "exec", self.a, "tcpdump", "-Z", "root", "--immediate-mode", "-U", "-s", str(snap),
                                    "-B", "16384", "-i", "w", "-w", path], stderr=subprocess.PIPE)
        self.taps.append(process)
        said = line = process.stderr.readline()
        while line and b"listening on" not in line:
            line = process.stderr.readline()
            said += line
        if not line:
            raise RuntimeError("tcpdump does not start: " + said.decode(errors="replace").strip())

    def untap(self):
        for process in self.taps:
            process.terminate()
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        self.taps = []

    def remove(self):
        self.untap()
        for namespace in filter(None, (self.a, self.b, self.c, self.m)):
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


def until(what, seconds, condition, every=0.05):
    """Waits for `condition()`; returns its last value. Raises AssertionError naming `what` was awaited."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("not within %.1f s: %s" % (seconds, what))
        time.sleep(every)
