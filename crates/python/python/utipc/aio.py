"""utipc for asyncio.

>>> import asyncio, utipc
>>> from utipc import aio
>>> async def main() -> bytes:
...     node = utipc.Node(isolated=True, address=1)
...     echo = utipc.ServiceAddress(4711, 7)
...     async def serve(listener: aio.Listener) -> None:
...         async for connection in listener:
...             with connection:
...                 await connection.send((await connection.receive()).data)
...     with aio.listen(node, echo) as listener:
...         server = asyncio.create_task(serve(listener))
...         with await aio.connect(node, echo) as connection:
...             await connection.send(b"hello")
...             reply = await connection.receive()
...     await server
...     return reply.data
>>> asyncio.run(main())
b'hello'

The event loop watches the descriptors of sockets (`loop.add_reader`, `loop.add_writer`); no thread is used. Several
tasks may use one object. A task that is cancelled while it waits has had no effect: no message, connection or event is
lost; only `sendall` may have sent a part.

A task that is about to wait for a message first polls for one, in turns of about 10 microseconds between which other
tasks run, at most for 50 microseconds and only while that has paid lately. `Node(spin="parked")` switches that off.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Generator,
    Generic,
    Literal,
    Optional,
    TypeVar,
    Union,
)

import utipc

from ._errors import Closed, WouldBlock

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from ._types import Destination, GroupIncoming, Kind, Scope, Services

__all__ = [
    "Group",
    "Listener",
    "Socket",
    "Starting",
    "Topology",
    "connect",
    "join",
    "listen",
    "start",
    "topology",
    "wait_for_service",
]

T = TypeVar("T")

# Messages in a row that a task finds by polling before it lets the other tasks run.
_FINDS = 8


class _Watch:
    """The tasks that wait for one descriptor.

    An event loop takes one callback for each direction of a descriptor; this class shares it among any number of tasks.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._waiting: dict[str, set[asyncio.Future[None]]] = {"reader": set(), "writer": set()}

    async def ready(self, *directions: Literal["reader", "writer"]) -> None:
        """Waits until the descriptor is readable ("reader"), writable ("writer"), or either."""
        self._loop = asyncio.get_running_loop()
        future = self._loop.create_future()
        for direction in directions:
            waiting = self._waiting[direction]
            if not waiting:
                add = self._loop.add_reader if direction == "reader" else self._loop.add_writer
                add(self._descriptor, self._wake, direction)
            waiting.add(future)
        try:
            await future
        finally:
            for direction in directions:
                self._remove(direction, future)

    def _remove(self, direction: str, future: asyncio.Future[None]) -> None:
        waiting = self._waiting[direction]
        if future in waiting:
            waiting.remove(future)
            if not waiting:
                self._forget(direction)

    def _wake(self, direction: str) -> None:
        waiting = self._waiting[direction]
        self._forget(direction)
        for future in waiting:
            if not future.done():
                future.set_result(None)
        waiting.clear()

    def _forget(self, direction: str) -> None:
        if self._loop is not None and not self._loop.is_closed():
            remove = self._loop.remove_reader if direction == "reader" else self._loop.remove_writer
            remove(self._descriptor)

    def close(self) -> None:
        """Wakes all tasks, which then find their object closed."""
        for direction, waiting in self._waiting.items():
            if waiting:
                self._wake(direction)


class _Closing:
    """An object that a `with` block closes."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


class _Series(_Closing, Generic[T]):
    """An object that `async for` iterates over until it is closed."""

    async def _next_item(self) -> T:
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self._next_item()
        except Closed:
            raise StopAsyncIteration from None


class Socket(_Closing):
    """A `utipc.Socket` whose calls suspend the task instead of blocking the thread."""

    def __init__(self, socket: utipc.Socket) -> None:
        """Wraps a socket and makes it non-blocking."""
        socket.setblocking(False)
        self._socket = socket
        self._watch = _Watch(socket.fileno())
        self._found = 0
        self._connects = socket.kind in ("seqpacket", "stream")

    @property
    def socket(self) -> utipc.Socket:
        """The underlying socket, for addresses, bindings, options and counters."""
        return self._socket

    @property
    def port(self) -> utipc.PortId:
        """The socket's address."""
        return self._socket.port

    @property
    def peer(self) -> Optional[utipc.PortId]:
        """The address of the connection's peer."""
        return self._socket.peer

    async def _until(self, direction: Literal["reader", "writer"], call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except WouldBlock:
                await self._watch.ready(direction)

    async def _until_received(self, call: Callable[[], T]) -> T:
        """As `_until`, for receives: a message that comes within microseconds is found without a wake-up."""
        while True:
            found = self._socket._poll_busily()
            if found is None or (found and self._found >= _FINDS):
                # The event loop does its other work, and polls its descriptors.
                self._found = 0
                await asyncio.sleep(0)
                if found is None:
                    continue
            try:
                result = call()
                self._found += 1
                return result
            except WouldBlock:
                pass
            self._found = 0
            await self._watch.ready("reader")
            self._socket._slept()

    async def send_to(self, data: Buffer, to: Destination, *, node: Optional[int] = None) -> int:
        """See `utipc.Socket.send_to`. After a cancelled call that requests a connection the socket is useless."""
        requests = self._connects and self._socket.state == "open"
        sent = await self._until("writer", lambda: self._socket.send_to(data, to, node=node))
        if requests and sent > 0:
            await self._connected()
        return sent

    async def send(self, data: Buffer) -> int:
        """See `utipc.Socket.send`."""
        return await self._until("writer", lambda: self._socket.send(data))

    async def sendall(self, data: Buffer) -> None:
        """Sends all of the data on a stream."""
        left = memoryview(data).cast("B")
        while True:
            left = left[await self.send(left) :]
            if not left:
                return

    async def receive(self) -> utipc.Message:
        """See `utipc.Socket.receive`."""
        return await self._until_received(self._socket.receive)

    async def recv(self, size: int) -> bytes:
        """See `utipc.Socket.recv`."""
        return await self._until_received(lambda: self._socket.recv(size))

    async def recv_into(self, buffer: Buffer) -> int:
        """See `utipc.Socket.recv_into`."""
        return await self._until_received(lambda: self._socket.recv_into(buffer))

    async def accept(self) -> tuple[Socket, utipc.PortId]:
        """See `utipc.Socket.accept`."""
        socket, peer = await self._until("reader", self._socket.accept)
        return Socket(socket), peer

    async def connect(self, to: Destination, *, node: Optional[int] = None) -> None:
        """See `utipc.Socket.connect`. After a cancelled call the socket is useless: close it."""
        try:
            return self._socket.connect(to, node=node)
        except WouldBlock:
            await self._connected()

    async def _connected(self) -> None:
        """Waits for the reply to a connection request."""
        while True:
            # A refusal makes the socket readable, acceptance makes it writable.
            await self._watch.ready("reader", "writer")
            try:
                return self._socket.finish_connect()
            except WouldBlock:
                continue

    def shutdown(self) -> None:
        """See `utipc.Socket.shutdown`."""
        self._socket.shutdown()

    def fileno(self) -> int:
        """See `utipc.Socket.fileno`."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes the socket; tasks that wait for it get `utipc.Closed`."""
        # The loop forgets the descriptor before it is closed; tasks that are woken run after that.
        self._watch.close()
        self._socket.close()

    def __repr__(self) -> str:
        return f"<utipc.aio.Socket of {self._socket!r}>"


class Group(_Series["GroupIncoming"]):
    """A `utipc.Group` for tasks: `async for incoming in group`, until it is closed."""

    def __init__(self, group: utipc.Group) -> None:
        """Wraps a membership and makes its socket non-blocking."""
        self._group = group
        self._socket = Socket(group.socket)

    @property
    def group(self) -> utipc.Group:
        """The underlying membership."""
        return self._group

    @property
    def member(self) -> utipc.Member:
        """See `utipc.Group.member`."""
        return self._group.member

    @property
    def socket(self) -> Socket:
        """The underlying socket, for options and counters."""
        return self._socket

    async def broadcast(self, data: Buffer, *, key: int = 0) -> int:
        """See `utipc.Group.broadcast`."""
        return await self._socket._until("writer", lambda: self._group.broadcast(data, key=key))

    async def multicast(self, instance: int, data: Buffer, *, key: int = 0) -> int:
        """See `utipc.Group.multicast`."""
        return await self._socket._until(
            "writer", lambda: self._group.multicast(instance, data, key=key)
        )

    async def anycast(self, instance: int, data: Buffer) -> int:
        """See `utipc.Group.anycast`."""
        return await self._socket._until("writer", lambda: self._group.anycast(instance, data))

    async def send(
        self, to: Union[utipc.Member, utipc.PortId], data: Buffer, *, key: int = 0
    ) -> int:
        """See `utipc.Group.send`."""
        return await self._socket._until("writer", lambda: self._group.send(to, data, key=key))

    async def receive(self) -> GroupIncoming:
        """See `utipc.Group.receive`."""
        return await self._socket._until("reader", self._group.receive)

    def close(self) -> None:
        """Leaves the group and closes the socket; tasks that wait for it get `utipc.Closed`."""
        self._socket.close()

    async def _next_item(self) -> GroupIncoming:
        return await self.receive()


class Listener(_Series[Socket]):
    """A `utipc.Listener` for tasks: `async for connection in listener`, until it is closed."""

    def __init__(self, listener: utipc.Listener) -> None:
        """Wraps a listener."""
        self._socket = Socket(listener.socket)

    async def accept(self) -> Socket:
        """Waits for a client; returns its connection."""
        connection, _ = await self._socket.accept()
        return connection

    @property
    def socket(self) -> Socket:
        """The underlying socket, for options and further bindings."""
        return self._socket

    def close(self) -> None:
        """Closes the listener: waiting clients are refused, connections stay open."""
        self._socket.close()

    async def _next_item(self) -> Socket:
        return await self.accept()


class Topology(_Series[utipc.Event]):
    """A `utipc.Topology` for tasks: `async for event in topology`, until it is closed."""

    def __init__(self, topology: utipc.Topology) -> None:
        """Wraps a topology connection."""
        self._topology = topology
        self._watch = _Watch(topology.fileno())

    @property
    def topology(self) -> utipc.Topology:
        """The underlying topology connection, for subscriptions."""
        return self._topology

    async def next(self) -> utipc.Event:
        """The next event."""
        while True:
            event = self._topology.next(0)
            if event is not None:
                return event
            await self._watch.ready("reader")

    def close(self) -> None:
        """Closes the connection, which ends all subscriptions."""
        self._watch.close()
        self._topology.close()

    async def _next_item(self) -> utipc.Event:
        return await self.next()


class Starting:
    """A node that starts in another thread: `await` it, or use it in `async with`, which closes the node at the end."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._node: Optional[utipc.Node] = None

    async def _start(self) -> utipc.Node:
        return await asyncio.to_thread(lambda: utipc.Node(**self._options))

    def __await__(self) -> Generator[Any, None, utipc.Node]:
        return self._start().__await__()

    async def __aenter__(self) -> utipc.Node:
        self._node = await self._start()
        return self._node

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._node is not None:
            await asyncio.to_thread(self._node.close)


def start(**options: Any) -> Starting:
    """Starts a `utipc.Node(...)` in another thread, because with a bearer to other hosts that takes about a second.

    `node = await aio.start(...)`, or `async with aio.start(...) as node:`.
    """
    return Starting(options)


def listen(
    node: utipc.Node, service: Services, kind: Literal["seqpacket", "stream"] = "seqpacket"
) -> Listener:
    """See `utipc.Node.listen`."""
    return Listener(node.listen(service, kind))


def join(
    node: utipc.Node,
    service: int,
    instance: int,
    *,
    events: bool = False,
    loopback: bool = False,
    scope: Scope = "cluster",
    slow: Optional[Literal["wait", "drop", "conflate", "evict"]] = None,
    keys: int = 1024,
    bytes: int = 1_048_576,
    evict_after: Optional[float] = None,
) -> Group:
    """See `utipc.Node.join`."""
    return Group(
        node.join(
            service,
            instance,
            events=events,
            loopback=loopback,
            scope=scope,
            slow=slow,
            keys=keys,
            bytes=bytes,
            evict_after=evict_after,
        )
    )


async def connect(
    node: utipc.Node,
    to: Destination,
    kind: Kind = "seqpacket",
    *,
    on: Optional[int] = None,
) -> Socket:
    """Opens a connection in one step; `on`: look the service up on that node only."""
    socket = Socket(node.socket(kind))
    try:
        await socket.connect(to, node=on)
    except BaseException:
        socket.close()
        raise
    return socket


async def topology(node: utipc.Node, server: Optional[int] = None) -> Topology:
    """See `utipc.Node.topology`; connects in another thread, because that may take a while."""
    return Topology(await asyncio.to_thread(node.topology, server))


async def wait_for_service(node: utipc.Node, service: Services) -> utipc.PortId:
    """Waits until a socket is bound in `service`; returns its address. For a timeout, use `asyncio.wait_for`."""
    with await topology(node) as watcher:
        watcher.topology.services(service)
        while True:
            event = await watcher.next()
            if event.is_up:
                return event.port
