"""Type names for annotations."""

from typing import Literal, Union

from ._utipc import Evicted, GroupMessage, Joined, Left, PortId, ServiceAddress, ServiceRange

#: Kinds of sockets.
Kind = Literal["rdm", "dgram", "seqpacket", "stream"]
#: Scopes of a binding.
Scope = Literal["cluster", "node"]
#: Importance of a message.
Importance = Literal["low", "medium", "high", "critical"]
#: Engines of a node.
Engine = Literal["auto", "embedded", "daemon", "kernel"]
#: Changes that an event reports.
Change = Literal["service_up", "service_down", "node_up", "node_down", "link_up", "link_down", "expired"]
#: What a member of a group receives.
GroupIncoming = Union[GroupMessage, Joined, Left, Evicted]
#: Services to bind or to subscribe to.
Services = Union[ServiceAddress, ServiceRange]
#: Destinations of a message.
Destination = Union[ServiceAddress, ServiceRange, PortId]
