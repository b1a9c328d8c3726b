"""Round trips of 64 bytes between two asyncio loops, for the row asyncio of `utipc bench targets`.

Arguments as those of epoll.c. TCP uses the loop's own socket calls, which have the form of utipc.aio's.
"""

import asyncio
import os
import resource
import socket
import statistics
import sys
import time

import utipc
from utipc import aio

SIZE = 64
SERVICE = 19618


class Tcp:
    def __init__(self, stream: socket.socket) -> None:
        stream.setblocking(False)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = stream

    async def receive(self) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self.stream, SIZE)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.stream, data)


class Tipc:
    def __init__(self, stream: aio.Socket) -> None:
        self.stream = stream

    async def receive(self) -> bytes:
        return await self.stream.recv(SIZE)

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)


async def echo(stream):
    try:
        while data := await stream.receive():
            await stream.send(data)
    except OSError:
        pass  # The client has ended.


async def serve(family: str) -> None:
    loop = asyncio.get_running_loop()
    tasks = []

    async def accept() -> None:
        if family == "tcp":
            listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
            listener.setblocking(False)
            print("ready", listener.getsockname()[1], flush=True)
            while True:
                stream, _ = await loop.sock_accept(listener)
                tasks.append(asyncio.create_task(echo(Tcp(stream))))
        with aio.listen(utipc.Node(), utipc.ServiceAddress(SERVICE, os.getpid())) as listener:
            print("ready", os.getpid(), flush=True)
            async for connection in listener:
                tasks.append(asyncio.create_task(echo(Tipc(connection))))

    tasks.append(asyncio.create_task(accept()))
    ended = loop.create_future()
    loop.add_reader(sys.stdin, lambda: ended.done() or ended.set_result(None))
    await ended


async def drive(family: str, idle: int, port: int, seconds: float, messages: int) -> None:
    node = utipc.Node() if family == "tipc" else None
    streams, tasks = [], []
    for _ in range(idle + 1):
        if node is None:
            stream = Tcp(socket.create_connection(("127.0.0.1", port)))
        else:
            stream = Tipc(await aio.connect(node, utipc.ServiceAddress(SERVICE, port)))
        streams.append(stream)
    active = streams.pop()
    tasks = [asyncio.create_task(stream.receive()) for stream in streams]
    times, data, clock = [], bytes(SIZE), time.perf_counter_ns
    warm, end = (time.monotonic() + share * seconds for share in (0.2, 1.0))
    while len(times) < messages if messages else time.monotonic() < end:
        sent = clock()
        await active.send(data)
        if len(await active.receive()) != SIZE:
            sys.exit("the server has ended the connection")
        times.append(clock() - sent)
        if not messages and warm and time.monotonic() >= warm:
            times, warm = [], 0.0
    print("median", statistics.median(times))
    for task in tasks:
        task.cancel()


_, role, family, idle, core, *rest = sys.argv
if int(core) >= 0:
    try:
        os.sched_setaffinity(0, {int(core)})
    except OSError:
        pass  # The scheduler chooses the core.
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
if role == "serve":
    asyncio.run(serve(family))
else:
    asyncio.run(drive(family, int(idle), int(rest[0]), float(rest[1]), int(rest[2])))
