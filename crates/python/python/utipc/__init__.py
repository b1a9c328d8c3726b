"""TIPC in user space: service addresses, reliable messages, connections and topology.

>>> import utipc
>>> node = utipc.Node(isolated=True, address=1)
>>> hello = utipc.ServiceAddress(18888, 17)
>>> server, client = node.rdm(), node.rdm()
>>> server.bind(hello)
>>> client.send_to(b"Hello World", hello)
11
>>> server.receive().data
b'Hello World'

`Node` opens sockets, `Socket` is a socket of any kind, `Listener` accepts connections, `Group` is a membership in a
communication group, and `Topology` reports services, nodes and links. `utipc.aio` has the same for asyncio.
"""

from ._errors import (
    Broken,
    Closed,
    ConnectionLost,
    Error,
    NotAllowed,
    Refused,
    Resumed,
    Timeout,
    Unreachable,
    WouldBlock,
)
from ._utipc import (
    Binding,
    Event,
    Evicted,
    Group,
    GroupMessage,
    Joined,
    Left,
    Link,
    Listener,
    Member,
    MemberStatus,
    Message,
    Node,
    Peer,
    PortId,
    Returned,
    ServiceAddress,
    ServiceRange,
    Socket,
    Topology,
    __version__,
)

__all__ = [
    "Binding",
    "Broken",
    "Closed",
    "ConnectionLost",
    "Error",
    "Event",
    "Evicted",
    "Group",
    "GroupMessage",
    "Joined",
    "Left",
    "Link",
    "Listener",
    "Member",
    "MemberStatus",
    "Message",
    "Node",
    "NotAllowed",
    "Peer",
    "PortId",
    "Refused",
    "Resumed",
    "Returned",
    "ServiceAddress",
    "ServiceRange",
    "Socket",
    "Timeout",
    "Topology",
    "Unreachable",
    "WouldBlock",
    "__version__",
]
