"""Python's own AF_TIPC sockets between two nodes: all four types, select, poll, epoll, asyncio, socketserver, topology.

    python3 across.py --serve TYPE              on one node: the servers; prints `serving`, ends when a client requests
    it python3 across.py --peer TYPE [NAME...]     on the other node: the tests, one line each and a summary
"""

import asyncio
import contextlib
import os
import select
import selectors
import signal
import socket
import socketserver
import struct
import sys
import threading
import time

import echo

# Instances of the service type, one for each kind of server.
CONTROL, DATAGRAM, RELIABLE, STREAM, PACKET, SELECT, POLL, EPOLL, ASYNC, FORKING = range(1, 11)
MEMBERS = 100  # the tests bind and unbind instances from here on
SELECTORS = {SELECT: selectors.SelectSelector, POLL: selectors.PollSelector, EPOLL: selectors.EpollSelector}
SIZES = (1, 1000, 1500, 14000, 66000)
LIMIT = 30  # seconds for a single wait


def name(instance):
    return (socket.TIPC_ADDR_NAME, TYPE, instance, 0)


def span(lower, upper):
    return (socket.TIPC_ADDR_NAMESEQ, TYPE, lower, upper)


def tipc(kind):
    fd = socket.socket(socket.AF_TIPC, kind)
    fd.settimeout(LIMIT)
    return fd


def bound(kind, instance):
    fd = socket.socket(socket.AF_TIPC, kind)
    fd.bind(span(instance, instance))
    if kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        fd.listen()
    return fd


# ---- servers ----

def until_closed(fd):
    """Yields received data until the client closes: TIPC reports a close as a reset, and a shutdown as an end."""
    while True:
        try:
            data = fd.recv(70000)
        except ConnectionResetError:
            return
        if not data:
            return
        yield data


def echo_messages(fd):
    while True:
        data, sender = fd.recvfrom(70000)
        fd.sendto(data, sender)


def echo_connections(listening):
    def one(peer):
        with peer:
            for data in until_closed(peer):
                peer.sendall(data)
    while True:
        threading.Thread(target=one, args=(listening.accept()[0],), daemon=True).start()


def title_lines(ready):
    async def handle(reader, writer):
        while line := await reader.readline():
            writer.write(line.title())
            await writer.drain()
            if line == b"end\n":
                break
        writer.close()

    async def serve():
        fd = socket.socket(socket.AF_TIPC, socket.SOCK_STREAM)  # asyncio itself calls listen(), which works once only
        fd.bind(name(ASYNC))
        server = await asyncio.start_server(handle, sock=fd)
        ready.set()
        await server.serve_forever()
    asyncio.run(serve())


def reverse_lines(listening):
    """A socketserver with a process for each connection."""
    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            with contextlib.suppress(ConnectionResetError):
                for line in self.rfile:
                    self.wfile.write(line[-2::-1] + b"\n")

    class Server(socketserver.ForkingMixIn, socketserver.TCPServer):
        address_family = socket.AF_TIPC
    server = Server(None, Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    server.serve_forever()


def serve():
    """Runs a thread for each server and a process for the forking one. Control starts last, when all others are ready."""
    listens = threading.Event()
    parts = [(echo_messages, (bound(socket.SOCK_DGRAM, DATAGRAM),)), (echo_messages, (bound(socket.SOCK_RDM, RELIABLE),)),
             (echo_connections, (bound(socket.SOCK_STREAM, STREAM),)), (echo_connections, (bound(socket.SOCK_SEQPACKET, PACKET),)),
             (title_lines, (listens,))]
    for instance, selector in SELECTORS.items():
        listening = bound(socket.SOCK_STREAM, instance)
        listening.setblocking(False)
        parts.append((echo.selected, (listening, selector())))
    forking = bound(socket.SOCK_STREAM, FORKING)
    child = os.fork()
    if child == 0:
        reverse_lines(forking)
    forking.close()
    for run, args in parts:
        threading.Thread(target=run, args=args, daemon=True).start()
    listens.wait(LIMIT)
    member, control = socket.socket(socket.AF_TIPC, socket.SOCK_RDM), bound(socket.SOCK_RDM, CONTROL)
    print("serving", flush=True)
    while True:
        words, sender = control.recvfrom(100)
        command, *args = words.decode().split()
        answer = b"ok"
        if command == "bind":
            member.bind(span(int(args[0]), int(args[1])))
        elif command == "unbind":
            member.bind((socket.TIPC_ADDR_NAMESEQ, TYPE, int(args[0]), int(args[1]), -socket.TIPC_CLUSTER_SCOPE))
        elif command == "heard":
            member.settimeout(LIMIT)
            answer = member.recv(100)
        control.sendto(answer, sender)
        if command == "quit":
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os._exit(0)  # threads never end


# ---- tests ----

def subscription(lower, upper):
    """Connects to the topology server and subscribes to this type's bindings."""
    fd = tipc(socket.SOCK_SEQPACKET)
    fd.connect((socket.TIPC_ADDR_NAME, socket.TIPC_TOP_SRV, socket.TIPC_TOP_SRV, 0))
    fd.send(struct.pack("=5I8s", TYPE, lower, upper, 0xFFFFFFFF, socket.TIPC_SUB_PORTS, b"handle"))
    return fd


def event(fd):
    """Returns (event, lower, upper, node)."""
    fields = struct.unpack("=10I8s", fd.recv(100))
    return fields[0], fields[1], fields[2], fields[4]


def ask(words):
    with tipc(socket.SOCK_RDM) as fd:
        fd.sendto(words, name(CONTROL))
        return fd.recv(100)


def elsewhere(fd, address):
    """The address of a port on another node."""
    assert address[0] == socket.TIPC_ADDR_ID, address
    assert address[1] != fd.getsockname()[1], address


def connectionless(kind, instance):
    with tipc(kind) as fd:
        for size in SIZES:
            fd.sendto(b"x" * size, name(instance))
            data, sender = fd.recvfrom(70000)
            assert data == b"x" * size, len(data)
            elsewhere(fd, sender)
            fd.sendto(b"to the port", sender)
            assert fd.recvfrom(100) == (b"to the port", sender)
        for first in range(0, 60, 20):
            for i in range(first, first + 20):
                fd.sendto(b"%d" % i, name(instance))
            for i in range(first, first + 20):
                assert fd.recv(100) == b"%d" % i
        fd.connect(name(instance))
        fd.send(b"connected")
        data, ancillary, flags, _ = fd.recvmsg(100, 1024)
        assert (data, ancillary, flags) == (b"connected", [], 0), (data, ancillary, flags)
        try:
            fd.sendto(b"unbound", name(MEMBERS + 50))
            raise AssertionError("sent to an unbound service")
        except OSError as error:
            assert error.errno == 113, error


def dgram():
    connectionless(socket.SOCK_DGRAM, DATAGRAM)


def rdm():
    connectionless(socket.SOCK_RDM, RELIABLE)


def connected(kind, instance):
    fd = tipc(kind)
    fd.connect(name(instance))
    elsewhere(fd, fd.getpeername())
    return fd


def received(fd, size):
    data = b""
    while len(data) < size:
        more = fd.recv(70000)
        assert more, "the connection has ended"
        data += more
    return data


def stream():
    with connected(socket.SOCK_STREAM, STREAM) as fd:
        for size in SIZES:
            fd.sendall(b"y" * size)
            assert received(fd, size) == b"y" * size
        much = bytes(i % 251 for i in range(1 << 18))
        writer = threading.Thread(target=fd.sendall, args=(much,))
        writer.start()
        assert received(fd, len(much)) == much
        writer.join()
        fd.shutdown(socket.SHUT_RDWR)


def seqpacket():
    with connected(socket.SOCK_SEQPACKET, PACKET) as fd:
        for size in SIZES:
            fd.send(b"z" * size)
            assert fd.recv(70000) == b"z" * size
        for i in range(50):
            fd.send(b"%d" % i * i or b"-")
        for i in range(50):
            assert fd.recv(1000) == (b"%d" % i * i or b"-")


def make_file():
    with connected(socket.SOCK_STREAM, FORKING) as fd, fd.makefile("rw") as lines:
        for word in ("one", "two", "three"):
            lines.write(word + "\n")
            lines.flush()
            assert lines.readline() == word[::-1] + "\n"


def forking_server():
    fds = [connected(socket.SOCK_STREAM, FORKING) for _ in range(5)]
    for k, fd in enumerate(fds):
        fd.sendall(b"from %d\n" % k)
    for k, fd in enumerate(fds):
        assert received(fd, 7) == (b"from %d" % k)[::-1] + b"\n"
        fd.close()


def many(instance, clients=8, rounds=3):
    """Uses the same single-threaded selector server as the other node; connections are non-blocking."""
    with SELECTORS[instance]() as selector:
        asked = {}
        for k in range(clients):
            fd = tipc(socket.SOCK_STREAM)
            fd.setblocking(False)
            assert fd.connect_ex(name(instance)) in (0, 115)
            selector.register(fd, selectors.EVENT_WRITE, k)
        while selector.get_map():
            ready = selector.select(LIMIT)
            assert ready, "nothing happens"
            for key, events in ready:
                fd, k = key.fileobj, key.data
                if events & selectors.EVENT_WRITE:
                    assert fd.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
                    elsewhere(fd, fd.getpeername())
                    selector.modify(fd, selectors.EVENT_READ, k)
                    asked[k] = 0
                else:
                    try:
                        data = fd.recv(1000)
                    except BlockingIOError:
                        continue
                    assert data == b"%d/%d" % (k, asked[k]), data
                    asked[k] += 1
                if asked[k] < rounds:
                    fd.send(b"%d/%d" % (k, asked[k]))
                else:
                    selector.unregister(fd)
                    fd.close()
        assert sorted(asked) == list(range(clients))


def with_select():
    many(SELECT)


def with_poll():
    many(POLL)


def with_epoll():
    many(EPOLL)


def waits():
    """Each way to poll, with each type of socket: nothing, then readable, then nothing again."""
    def by_select(fd, seconds):
        return bool(select.select([fd], [], [], seconds)[0])

    def by_poll(fd, seconds):
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return poll.poll(seconds * 1000) == [(fd.fileno(), select.POLLIN)]

    def by_epoll(fd, seconds):
        with select.epoll() as epoll:
            epoll.register(fd, select.EPOLLIN)
            return epoll.poll(seconds) == [(fd.fileno(), select.EPOLLIN)]

    kinds = {socket.SOCK_DGRAM: DATAGRAM, socket.SOCK_RDM: RELIABLE, socket.SOCK_STREAM: STREAM, socket.SOCK_SEQPACKET: PACKET}
    for kind, instance in kinds.items():
        with tipc(kind) as fd, select.epoll() as edges:
            fd.connect(name(instance))
            fd.setblocking(False)
            for wait in (by_select, by_poll, by_epoll):
                assert not wait(fd, 0), (kind, wait)
                fd.send(b"question")
                assert wait(fd, LIMIT), (kind, wait)
                assert fd.recv(100) == b"question"
                assert not wait(fd, 0), (kind, wait)
            edges.register(fd, select.EPOLLIN | select.EPOLLET)
            for i in range(5):
                assert edges.poll(0) == [], kind
                fd.send(b"%d" % i)
                assert edges.poll(LIMIT) == [(fd.fileno(), select.EPOLLIN)], kind
                assert fd.recv(100) == b"%d" % i


def with_asyncio():
    """Many connections and connectionless sockets in one loop."""
    async def main():
        loop = asyncio.get_running_loop()

        async def converse(kind, instance, k):
            with tipc(kind) as fd:
                fd.setblocking(False)
                await loop.sock_connect(fd, name(instance))
                for i in range(5):
                    await loop.sock_sendall(fd, b"%d %d" % (k, i))
                    assert await loop.sock_recv(fd, 1000) == b"%d %d" % (k, i)
        kinds = [(socket.SOCK_STREAM, STREAM), (socket.SOCK_SEQPACKET, PACKET), (socket.SOCK_RDM, RELIABLE), (socket.SOCK_DGRAM, DATAGRAM)]
        await asyncio.wait_for(asyncio.gather(*(converse(kind, instance, k) for k in range(4) for kind, instance in kinds)), LIMIT * 2)
    asyncio.run(main())


def asyncio_streams():
    async def one(k):
        fd = tipc(socket.SOCK_STREAM)
        fd.setblocking(False)
        await asyncio.get_running_loop().sock_connect(fd, name(ASYNC))
        reader, writer = await asyncio.open_connection(sock=fd)
        for line in (b"hello %d\n" % k, b"world\n", b"end\n"):
            writer.write(line)
            assert await reader.readline() == line.title()
        with contextlib.suppress(ConnectionResetError):  # the server closes
            assert await reader.read() == b""
        writer.close()

    async def main():
        await asyncio.wait_for(asyncio.gather(*(one(k) for k in range(4))), LIMIT * 2)
    asyncio.run(main())


def topology():
    """Bindings of the other node appear and disappear."""
    with subscription(MEMBERS, MEMBERS + 50) as fd:
        assert ask(b"bind %d %d" % (MEMBERS, MEMBERS + 10)) == b"ok"
        what, lower, upper, node = event(fd)
        assert (what, lower, upper) == (socket.TIPC_PUBLISHED, MEMBERS, MEMBERS + 10)
        assert node != fd.getsockname()[1]
        assert ask(b"unbind %d %d" % (MEMBERS, MEMBERS + 10)) == b"ok"
        assert event(fd) == (socket.TIPC_WITHDRAWN, MEMBERS, MEMBERS + 10, node)


def multicast():
    """Multicasts to a range with members on both nodes."""
    with tipc(socket.SOCK_RDM) as fd, tipc(socket.SOCK_RDM) as here, subscription(MEMBERS, MEMBERS + 50) as events:
        assert ask(b"bind %d %d" % (MEMBERS + 20, MEMBERS + 20)) == b"ok"
        assert event(events)[:2] == (socket.TIPC_PUBLISHED, MEMBERS + 20)
        here.bind(span(MEMBERS + 30, MEMBERS + 30))
        fd.sendto(b"to all", span(MEMBERS, MEMBERS + 40))
        assert here.recv(100) == b"to all"
        assert ask(b"heard") == b"to all"
        assert ask(b"unbind %d %d" % (MEMBERS + 20, MEMBERS + 20)) == b"ok"


TESTS = [rdm, dgram, stream, seqpacket, make_file, forking_server, with_select, with_poll, with_epoll, waits, with_asyncio, asyncio_streams,
         topology, multicast]


def peer(names):
    chosen = [t for t in TESTS if not names or t.__name__ in names]
    failed = 0
    with subscription(CONTROL, CONTROL) as fd:
        assert event(fd)[:2] == (socket.TIPC_PUBLISHED, CONTROL)
    for test in chosen:
        began = time.monotonic()
        try:
            test()
            print("ok %s, %.1f s" % (test.__name__, time.monotonic() - began), flush=True)
        except Exception as error:  # report each test's failure
            failed += 1
            import traceback
            traceback.print_exc()
            print("FAILED %s: %r" % (test.__name__, error), flush=True)
    ask(b"quit")
    print("across: %d passed, %d failed" % (len(chosen) - failed, failed))
    sys.exit(1 if failed or not chosen else 0)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("--serve", "--peer"):
        sys.exit(__doc__)
    TYPE = int(sys.argv[2])
    serve() if sys.argv[1] == "--serve" else peer(sys.argv[3:])
