"""A cluster of many nodes on one switch: kernel nodes and utipc nodes, each in a network namespace.

Threads of this process that have entered the namespaces operate the kernel nodes: a process for each of them would take
too long to start.
"""

import concurrent.futures
import fcntl
import os
import socket
import struct
import subprocess

import kernel_peer
from net import batch
from peer import Peer, enter

PREFIX = "ring"
SWITCH = PREFIX + "s"
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
SIOCBRADDIF, SIOCBRDELIF = 0x89A2, 0x89A3


class Inside:
    """Calls functions in a thread that has entered a namespace."""

    def __init__(self, namespace):
        self.pool = concurrent.futures.ThreadPoolExecutor(1, initializer=enter, initargs=(namespace,))

    def begin(self, call, *args, **named):
        return self.pool.submit(call, *args, **named)

    def call(self, call, *args, **named):
        return self.begin(call, *args, **named).result(60)

    def leave(self):
        self.pool.shutdown(wait=False, cancel_futures=True)


class KernelNode:
    """A kernel node with the calls of `Peer`."""

    is_kernel = True

    def __init__(self, name, namespace):
        self.name = name
        self.inside = Inside(namespace)
        self.peer = kernel_peer.Peer()

    def begin(self, op, **args):
        return self.inside.begin(getattr(self.peer, "op_" + op), **args)

    def call(self, op, **args):
        return self.begin(op, **args).result(60)

    def kill(self):
        """Leaves the namespace, which is the node's."""
        self.call("unwatch")
        self.inside.leave()


class Ring:
    """`count` nodes with the addresses 1.1.1 to 1.1.COUNT; those whose numbers are in `others` run `program`, or are
    kernel nodes too if that is None."""

    def __init__(self, count, others, program, log):
        self.numbers = range(1, count + 1)
        self.spaces = ["%s%d" % (PREFIX, n) for n in self.numbers]
        self.nodes, self.switch = {}, None
        try:
            self.wire()
            for n in self.numbers:
                if n in others and program:
                    self.nodes[n] = Peer("node %d (utipc)" % n, self.spaces[n - 1], program, log)
                    self.nodes[n].is_kernel = False
                else:
                    self.nodes[n] = KernelNode("node %d" % n, self.spaces[n - 1])
        except BaseException:
            self.remove()
            raise

    def wire(self):
        """One switch; node N is on its port pN with device w."""
        batch("ip", None, ["netns add " + name for name in [SWITCH] + self.spaces])
        self.switch = Inside(SWITCH)
        self.switch.call(without_ipv6)
        batch("ip", SWITCH, ["link add s type bridge mcast_snooping 0", "link set s up"]
              + ["link add p%d up master s type veth peer name w netns %s" % (n, name) for n, name in zip(self.numbers, self.spaces)])
        # Two kernel nodes must not recognize each other (net.py). Here the switch clears their mark.
        batch("tc", SWITCH, [line for n in self.numbers for line in (
            "qdisc add dev p%d clsact" % n,
            "filter add dev p%d ingress pref 1 protocol 0x88ca u32 match u8 0x5a 0xfe at 0"
            " action pedit munge offset 52 u32 set 0" % n)])

    def each(self, op, of=None, **args):
        """Calls an operation on all nodes, or on those with the numbers `of`, at once; returns the results by node."""
        pending = {n: self.nodes[n].begin(op, **args) for n in of or self.nodes}
        return {n: p.result(90) for n, p in pending.items()}

    def start(self):
        """Starts the nodes one after another: at once, the messages of all links that come up would overload the machine."""
        for n, node in self.nodes.items():
            inside = node.inside if node.is_kernel else Inside(node.namespace)
            inside.call(join, node, n)
            if not node.is_kernel:
                inside.leave()

    def plug(self, n, is_in):
        """Plugs node `n` into the switch, or pulls it out: both directions are silent, its device stays up."""
        self.switch.call(bridge_port, n, SIOCBRADDIF if is_in else SIOCBRDELIF)

    def sent(self):
        """Number of packets that each node has sent."""
        return self.switch.call(received, ["p%d" % n for n in self.numbers])

    def remove(self):
        for node in self.nodes.values():
            node.kill()
        if self.switch:
            self.switch.leave()
        subprocess.run(["ip", "-n", SWITCH, "-force", "-batch", "-"], input="".join("link del p%d\n" % n for n in self.numbers),
                       text=True, capture_output=True, check=False)
        for name in self.spaces + [SWITCH]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def join(node, n):
    """Starts a node; runs in its namespace."""
    set_up("w")
    calls = [("start", {"address": "1.1.%d" % n} if node.is_kernel else {"address": "1.1.%d" % n, "daemon": True}),
             ("watch", {}), ("enable", {"media": "eth", "device": "w"})]
    for op, args in calls:
        if node.is_kernel:
            getattr(node.peer, "op_" + op)(**args)
        else:
            node.call(op, **args)


def address(n):
    return 1 << 24 | 1 << 12 | n


def without_ipv6():
    """No packets of IPv6's own from devices that are made from now on in this namespace."""
    for which in ("all", "default"):
        with open("/proc/sys/net/ipv6/conf/%s/disable_ipv6" % which, "w") as file:
            file.write("1")


def set_up(device):
    without_ipv6()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = fcntl.ioctl(sock, SIOCGIFFLAGS, struct.pack("16sH22x", device.encode(), 0))
        flags = struct.unpack("16sH22x", request)[1]
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH22x", device.encode(), flags | IFF_UP))


def bridge_port(n, request):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, request, struct.pack("16si20x", b"s", socket.if_nametoindex("p%d" % n)))


def received(ports):
    """Packets that these ports of the switch have received, in their order."""
    # `self` would be this process, and not this thread with its own namespace.
    with open("/proc/thread-self/net/dev") as file:
        counts = {line.split(":")[0].strip(): int(line.split(":")[1].split()[1]) for line in file if ":" in line}
    return [counts[port] for port in ports]


def busy_s():
    """Seconds of processor time that this machine has used."""
    with open("/proc/stat") as file:
        fields = list(map(int, file.readline().split()[1:9]))
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
