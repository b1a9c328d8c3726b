"""Reads the kernel node of the calling thread's namespace over netlink (linux/tipc_netlink.h). With many nodes on an
emulated CPU the tool `tipc`, a process for each question, would take so long that links fail."""

import socket
import struct

GENERIC, CONTROL, REQUEST, DUMP, ERROR, DONE = 16, 16, 1, 0x300, 2, 3
LINK_GET, MON_SET, MON_GET, MON_PEER_GET = 8, 17, 18, 19
LINK, MON, MON_PEER = 4, 9, 10
# Statistics of links.
STATISTICS = {"rx_states": 21, "rx_probes": 22, "tx_states": 25, "tx_probes": 26}


def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def attributes(data):
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack("=HH", data[:4])
        found[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) // 4 * 4:]
    return found


def u32(value):
    return struct.unpack("=I", value)[0]


class Netlink:
    """A socket for requests to the kernel's TIPC."""

    def __init__(self):
        self.sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, GENERIC)
        self.sock.settimeout(30)
        name = attribute(2, b"TIPCv2\0")
        self.family = struct.unpack("=H", self.ask(CONTROL, 3, 1, name, 0)[0][1])[0]

    def ask(self, family, command, version, body=b"", flags=DUMP):
        """The attributes of each message of the answer."""
        self.sock.send(struct.pack("=IHHIIBBH", 20 + len(body), family, REQUEST | flags, 1, 0, command, version, 0) + body)
        found = []
        while True:
            data = self.sock.recv(1 << 18)
            while len(data) >= 16:
                length, kind = struct.unpack("=IH", data[:6])
                if kind == DONE:
                    return found
                if kind == ERROR:
                    code = struct.unpack("=i", data[16:20])[0]
                    if code:
                        raise OSError(-code, "netlink command %d" % command)
                    return found
                found.append(attributes(data[20:length]))
                data = data[(length + 3) // 4 * 4:]
            if flags != DUMP and found:
                return found

    def links(self):
        """(peer's address, whether it is up, statistics) of each link."""
        for entry in self.ask(self.family, LINK_GET, 1):
            link = attributes(entry[LINK])
            name = link[1].rstrip(b"\0").decode()
            if "-" in name and ":" in name and 4 not in link:
                yield int(name.split("-")[1].split(":")[0], 16), 5 in link, attributes(link[8])

    def monitor(self):
        """Whether the monitor of bearer 0 is active, and its nodes, this one first."""
        active = 3 in attributes(self.ask(self.family, MON_GET, 1)[0][MON])
        entries = self.ask(self.family, MON_PEER_GET, 1, attribute(MON, attribute(2, struct.pack("=I", 0))))
        return active, [attributes(entry[MON_PEER]) for entry in entries]

    def set_threshold(self, nodes):
        self.ask(self.family, MON_SET, 1, attribute(MON, attribute(1, struct.pack("=I", nodes))), 4)
