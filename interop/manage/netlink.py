"""Speaks generic netlink under `utipc run`: the daemon answers the family TIPCv2, the kernel all others.

    utipc run --private -- python3 interop/manage/netlink.py
"""

import select
import socket
import struct

CONTROL, DONE, ERROR = 16, 3, 2
REQUEST, ACK, DUMP = 1, 4, 0x300
NAME_TABLE_GET, MEDIA_GET, LINK_GET = 16, 11, 8


def attribute(kind, value):
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + b"\0" * (-length % 4)


def attributes(data):
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack("=HH", data[:4])
        found[kind] = data[4:length]
        data = data[(length + 3) // 4 * 4:]
    return found


def message(family, flags, sequence, command, body=b""):
    payload = struct.pack("=BBH", command, 1, 0) + body
    return struct.pack("=IHHII", 16 + len(payload), family, flags, sequence, 0) + payload


def messages(data):
    """Yields family, sequence number, port and the rest of each message."""
    while len(data) >= 16:
        length, family, _, sequence, port = struct.unpack("=IHHII", data[:16])
        assert length >= 16
        yield family, sequence, port, data[16:length]
        data = data[(length + 3) // 4 * 4:]


def heads(data):
    return [(family, sequence) for family, sequence, _, _ in messages(data)]


sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
sock.settimeout(30)
sock.bind((0, 0))
own = sock.getsockname()[0]

# Another family stays with the kernel.
sock.send(message(CONTROL, REQUEST, 5, 3, attribute(2, b"nlctrl\0")))
assert heads(sock.recv(8192)) == [(CONTROL, 5)]

# The family; a poll loop sees the reply, and a peek leaves it in the queue.
sock.sendto(message(CONTROL, REQUEST | ACK, 6, 3, attribute(2, b"TIPCv2\0")), (0, 0))
poll = select.epoll()
poll.register(sock, select.EPOLLIN)
assert poll.poll(30)
small = bytearray(16)
length = sock.recv_into(small, 16, socket.MSG_PEEK | socket.MSG_TRUNC)
assert length > 16 and struct.unpack("=HHI", small[4:12])[::2] == (CONTROL, 6)
data, _, flags, sender = sock.recvmsg(8192)
assert len(data) == length and flags == 0 and sender == (0, 0)
(_, _, port, body), end = messages(data)
assert port == own and end[:2] == (ERROR, 6) and end[3][:4] == b"\0\0\0\0"
family = struct.unpack("=H", attributes(body[4:])[1])[0]

# Three replies wait, the kernel's own in the middle; each arrives complete and in order.
sock.send(message(family, REQUEST | DUMP, 7, NAME_TABLE_GET))
sock.send(message(CONTROL, REQUEST, 8, 3, attribute(2, b"nlctrl\0")))
sock.send(message(family, REQUEST | DUMP, 9, MEDIA_GET))
names, kernel, media = (heads(sock.recv(8192)) for _ in range(3))
assert names[-1] == (DONE, 7) and set(names[:-1]) == {(family, 7)}
assert kernel == [(CONTROL, 8)]
assert media == [(family, 9), (family, 9), (DONE, 9)]

# A socket gets error texts only if it has requested them.
unknown = attribute(4 | 0x8000, attribute(1, b"no-such-link\0"))
sock.send(message(family, REQUEST | ACK, 10, LINK_GET, unknown))
(kind, sequence, _, body), = messages(sock.recv(8192))
assert (kind, sequence, len(body)) == (ERROR, 10, 20) and struct.unpack("=i", body[:4])[0] == -22
sock.setsockopt(270, 11, 1)
sock.send(message(family, REQUEST | ACK, 11, LINK_GET, unknown))
(_, _, _, body), = messages(sock.recv(8192))
assert b"no-such-link" in attributes(body[20:])[1]

# A copy of the descriptor is the same socket, and no reply is left over.
copy = sock.dup()
copy.send(message(family, REQUEST | DUMP, 12, MEDIA_GET))
assert heads(sock.recv(8192))[-1] == (DONE, 12)
assert not poll.poll(0)

# The older family TIPC, as tipc-config speaks it: a separate header, records in network byte order.
sock.send(message(CONTROL, REQUEST, 13, 3, attribute(2, b"TIPC\0")))
(kind, sequence, _, body), = messages(sock.recv(8192))
resolved = attributes(body[4:])
legacy, head = struct.unpack("=H", resolved[1])[0], struct.unpack("=I", resolved[4])[0]
assert (kind, sequence, head) == (CONTROL, 13, 8) and legacy not in (family, CONTROL)


def record(kind, data):
    return struct.pack(">HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


UNSIGNED, TEXT, FAILED, ADDRESS, MEDIA, LINK_NAME, LINK, QUERY = 2, 5, 16, 17, 18, 20, 22, 25


def call(command, request=b""):
    """The records of the reply: type and data of each."""
    sock.send(message(legacy, REQUEST, 0, 1, struct.pack("=IHH", 0, command, 0) + request))
    (kind, sequence, _, body), = messages(sock.recv(65536))
    assert (kind, sequence) == (legacy, 0) and struct.unpack("=IHH", body[4:12]) == (0, command, 0)
    found, rest = [], body[12:]
    while rest:
        length, kind = struct.unpack(">HH", rest[:4])
        data = rest[4:length]
        found.append((kind, data.rstrip(b"\0") if kind == TEXT else data))
        rest = rest[(length + 3) // 4 * 4:]
    return found


assert call(0) == []
assert {data for kind, data in call(2) if kind == MEDIA} == {b"eth\0", b"udp\0"}
(kind, data), = call(0x400B)
assert (kind, struct.unpack(">I", data)) == (UNSIGNED, (4711,))
(kind, data), = call(5, record(QUERY, struct.pack(">IIII", 0x80000004, 0, 0, 0)))
lines = data.decode().splitlines()
assert kind == TEXT and lines[0].startswith("Type       Lower      Upper      Port Identity")
assert any(line.split()[:3] == ["1", "1", "1"] for line in lines), lines
(kind, data), = call(5, record(QUERY, struct.pack(">IIII", 1, 1, 0, 0)))
assert data.decode().splitlines()[1:] == ["1          "], data
assert b"".join(data for _, data in call(6)).count(b":") >= 1
links = [data for kind, data in call(4, record(ADDRESS, struct.pack(">I", 0))) if kind == LINK]
assert links and all(b"link" in data or b":" in data for data in links), links
(kind, data), = call(11, record(LINK_NAME, b"broadcast-link\0"))
assert kind == TEXT and b"Link <broadcast-link>" in data and b"TX naks:0" in data, data
# A wrong record, an obsolete command, a link that does not exist.
assert call(4) == [(FAILED, b"\x80\0")]
assert call(0x4005) == [(FAILED, b"\x84\0")]
(kind, data), = call(0x4107, record(24, struct.pack(">I", 500) + b"no-such-link\0"))
assert kind == FAILED and b"no-such-link" in data, data
assert not poll.poll(0)
print("netlink: ok")
