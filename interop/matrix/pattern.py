"""The bytes that both kinds of peer send: byte i is (7*i + i/256 + seed) mod 256, which reveals any shift or mix-up."""

import zlib

PERIOD = 65536
_BASE = bytes((i * 7 + (i >> 8)) & 255 for i in range(PERIOD))
_blocks = {}


def block(seed):
    """One whole period, twice, so that any range of up to one period is a plain slice."""
    seed &= 255
    if seed not in _blocks:
        shift = bytes((b + seed) & 255 for b in range(256))
        _blocks[seed] = _BASE.translate(shift) * 2
    return _blocks[seed]


def piece(seed, at, length):
    """Bytes at .. at+length of the endless pattern."""
    source = block(seed)
    start = at % PERIOD
    if start + length <= len(source):
        return source[start:start + length]
    out = bytearray()
    while len(out) < length:
        start = (at + len(out)) % PERIOD
        out += source[start:start + min(PERIOD, length - len(out))]
    return bytes(out)


def numbered(number, length):
    """A message with its own number: 4 bytes, big-endian, then the pattern seeded by the number."""
    head = number.to_bytes(4, "big")
    return (head + piece(number, 0, length - 4)) if length > 4 else head[4 - length:]


def checksum(data, start=1):
    """Adler-32, fast enough for an emulated CPU."""
    return zlib.adler32(data, start)
