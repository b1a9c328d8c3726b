"""Exceptions: each is an `OSError` with the errno that an AF_TIPC program would see, and names the remedy."""

from __future__ import annotations

import errno as numbers
from typing import Optional


class Error(OSError):
    """A call of utipc failed: `errno`; `strerror` names what failed, why, and the remedy."""

    #: The remedy; empty if the reason is enough.
    remedy: str = ""


class WouldBlock(Error, BlockingIOError):
    """The call would have to wait, but the socket is non-blocking: wait until `fileno()` is ready."""


class Timeout(Error, TimeoutError):
    """The call ran out of time, or the server did not answer."""


class Refused(Error, ConnectionRefusedError):
    """The destination of a connection request does not listen."""


class ConnectionLost(Error, ConnectionResetError):
    """The peer, its node or the daemon is gone."""


class Resumed(Error):
    """The daemon has restarted, and the socket is attached to it again: messages may have been lost; go on."""


class Broken(Error, BrokenPipeError):
    """The connection is already shut down."""


class NotAllowed(Error, PermissionError):
    """A reserved service type, or the daemon's policy forbids it."""


class Unreachable(Error):
    """No socket is bound there, or the node is unreachable."""


class Closed(Error):
    """The object was closed, possibly by another thread."""


_CLASSES: dict[int, type[Error]] = {
    numbers.EAGAIN: WouldBlock,
    numbers.ETIMEDOUT: Timeout,
    numbers.ECONNREFUSED: Refused,
    numbers.ECONNRESET: ConnectionLost,
    numbers.ECONNABORTED: ConnectionLost,
    numbers.ENETRESET: Resumed,
    numbers.EPIPE: Broken,
    numbers.EACCES: NotAllowed,
    numbers.EPERM: NotAllowed,
    numbers.EHOSTUNREACH: Unreachable,
    numbers.EBADF: Closed,
}

#: Remedies for reasons that do not name one.
_REMEDIES: dict[int, str] = {
    numbers.EHOSTUNREACH: "start the server, or wait for it with Node.wait_for_service",
    numbers.ECONNREFUSED: "let the server listen before it binds, as Node.listen does",
    numbers.ECONNRESET: "connect again",
    numbers.ECONNABORTED: "connect again",
    numbers.EPIPE: "connect with another socket",
    numbers.ENOTCONN: "connect first",
    numbers.EISCONN: "use another socket",
    numbers.EDESTADDRREQ: "use send_to, or connect first",
    numbers.ETIMEDOUT: "check whether the server accepts connections",
    numbers.EACCES: "use a service type of 64 or above",
}


def _remedy_in(text: str) -> Optional[str]:
    """The text in parentheses at the end of a message."""
    if not text.endswith(")"):
        return None
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[place], 0)
        if depth == 0:
            return text[place + 1 : -1]
    return None


def make(number: int, text: str) -> Error:
    """Makes the exception for an error of the native part."""
    remedy = _remedy_in(text)
    if remedy is None and number in _REMEDIES:
        remedy = _REMEDIES[number]
        text = f"{text} ({remedy})"
    error = _CLASSES.get(number, Error)(number, text)
    error.remedy = remedy or ""
    return error
