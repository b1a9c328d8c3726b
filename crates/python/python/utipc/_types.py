"""Names of types, for annotations."""

from typing import Literal, Union

from ._utipc import PortId, ServiceAddress, ServiceRange

#: Kinds of sockets.
Kind = Literal["rdm", "dgram", "seqpacket", "stream"]
#: How far a binding is known.
Scope = Literal["cluster", "node"]
#: Importance of a message.
Importance = Literal["low", "medium", "high", "critical"]
#: What stands behind a node.
Engine = Literal["auto", "embedded", "daemon", "kernel"]
#: What may happen.
Change = Literal["service_up", "service_down", "node_up", "node_down", "link_up", "link_down", "expired"]
#: What a socket binds to and a subscriber follows.
Services = Union[ServiceAddress, ServiceRange]
#: Where a message goes.
Destination = Union[ServiceAddress, ServiceRange, PortId]
