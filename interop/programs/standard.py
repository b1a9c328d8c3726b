"""Python's own AF_TIPC sockets: all four types, select, poll, epoll, asyncio, socketserver.

Prints a line per test and a summary.

    python3 standard.py [NAME...]
"""

import asyncio
import os
import select
import selectors
import socket
import socketserver
import sys
import threading

import echo

LOCK = threading.Lock()
NEXT = [0x20000000 + (os.getpid() << 8 & 0xFFFFF00)]


def a_type():
    with LOCK:
        NEXT[0] += 1
        return NEXT[0]


def name(kind, instance):
    return (socket.TIPC_ADDR_NAME, kind, instance, 0)


def seq(kind, lower, upper):
    return (socket.TIPC_ADDR_NAMESEQ, kind, lower, upper)


def tipc(kind):
    return socket.socket(socket.AF_TIPC, kind)


def listener(kind=socket.SOCK_STREAM):
    server, at = tipc(kind), a_type()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(seq(at, 0, 9))
    server.listen()
    return server, name(at, 5)


def connectionless(kind):
    with tipc(kind) as server, tipc(kind) as client:
        at = a_type()
        server.bind(seq(at, 100, 200))
        client.sendto(b"hello", name(at, 150))
        data, sender = server.recvfrom(100)
        assert data == b"hello", data
        assert sender == client.getsockname(), (sender, client.getsockname())
        assert sender[0] == socket.TIPC_ADDR_ID
        server.sendto(b"back", sender)
        assert client.recv(100) == b"back"
        client.connect(name(at, 111))
        client.send(b"connected")
        assert server.recv(100) == b"connected"
        client.sendto(b"x" * 66000, seq(at, 0, 1000))
        assert len(server.recv(70000)) == 66000
        try:
            client.sendto(b"unbound", name(at, 99))
            raise AssertionError("sent to an unbound service")
        except OSError as error:
            assert error.errno == 113, error
        data, ancillary, flags, _ = (client.sendto(b"named", name(at, 150)), server.recvmsg(100, 1024))[1]
        assert (data, flags) == (b"named", 0)
        assert [(level, kind) for level, kind, _ in ancillary] == [(socket.SOL_TIPC, 3)], ancillary


def dgram():
    connectionless(socket.SOCK_DGRAM)


def rdm():
    connectionless(socket.SOCK_RDM)


def connection(kind):
    server, address = listener(kind)
    with server:
        def serve():
            peer, sender = server.accept()
            with peer:
                assert sender[0] == socket.TIPC_ADDR_ID
                while data := peer.recv(70000):
                    peer.sendall(data)
                    if data.endswith(b"last"):
                        break
                peer.shutdown(socket.SHUT_RDWR)
        thread = threading.Thread(target=serve)
        thread.start()
        with tipc(kind) as client:
            client.settimeout(20)
            client.connect(address)
            assert client.getpeername()[0] == socket.TIPC_ADDR_ID
            for size in (1, 1000, 66000):
                client.sendall(b"y" * size)
                got = 0
                while got < size:
                    got += len(client.recv(70000))
            client.sendall(b"the last")
            assert client.recv(100) == b"the last"
            assert client.recv(100) == b""
        thread.join()


def stream():
    connection(socket.SOCK_STREAM)


def seqpacket():
    connection(socket.SOCK_SEQPACKET)


def make_file():
    server, address = listener()
    with server, tipc(socket.SOCK_STREAM) as client:
        def serve():
            peer, _ = server.accept()
            with peer, peer.makefile("rw") as lines:
                for line in lines:
                    lines.write(line.upper())
                    lines.flush()
                    if line == "bye\n":
                        break
        thread = threading.Thread(target=serve)
        thread.start()
        client.connect(address)
        with client.makefile("rw") as lines:
            for word in ("one", "two", "bye"):
                lines.write(word + "\n")
                lines.flush()
                assert lines.readline() == word.upper() + "\n"
        thread.join()


def options():
    with tipc(socket.SOCK_STREAM) as fd:
        for value in range(4):
            fd.setsockopt(socket.SOL_TIPC, socket.TIPC_IMPORTANCE, value)
            assert fd.getsockopt(socket.SOL_TIPC, socket.TIPC_IMPORTANCE) == value
        assert fd.getsockopt(socket.SOL_TIPC, socket.TIPC_CONN_TIMEOUT) == 8000
        assert fd.family == socket.AF_TIPC and fd.type == socket.SOCK_STREAM and fd.proto == 0
        fd.settimeout(0.1)
        try:
            fd.bind((socket.TIPC_ADDR_NAME, 5, 5, 0))
            raise AssertionError("bound a reserved type")
        except PermissionError:
            pass
        copy = socket.socket(fileno=os.dup(fd.fileno()))
        assert (copy.family, copy.type) == (socket.AF_TIPC, socket.SOCK_STREAM)
        copy.close()


def timeouts():
    with tipc(socket.SOCK_RDM) as fd:
        fd.settimeout(0.1)
        try:
            fd.recv(1)
            raise AssertionError("received nothing")
        except TimeoutError:
            pass
        fd.setblocking(False)
        try:
            fd.recv(1)
            raise AssertionError("received nothing")
        except BlockingIOError:
            pass


def pair():
    one, other = socket.socketpair(socket.AF_TIPC, socket.SOCK_SEQPACKET)
    with one, other:
        one.send(b"across")
        assert other.recv(100) == b"across"


def topology():
    """Subscribes to a service and then binds it, in both byte orders."""
    import struct
    for order in "<>":
        kind = a_type()
        with tipc(socket.SOCK_SEQPACKET) as server, tipc(socket.SOCK_RDM) as bound:
            server.settimeout(10)
            server.connect((socket.TIPC_ADDR_NAME, socket.TIPC_TOP_SRV, socket.TIPC_TOP_SRV, 0))
            server.send(struct.pack(order + "5I8s", kind, 0, 100, 0xFFFFFFFF, socket.TIPC_SUB_PORTS, b"handle"))
            bound.bind(name(kind, 17))
            event = struct.unpack(order + "10I8s", server.recv(100))
            assert event[:3] == (socket.TIPC_PUBLISHED, 17, 17), event
            assert event[3] == bound.getsockname()[2] or event[3] in bound.getsockname(), event
            bound.close()
            assert struct.unpack(order + "10I8s", server.recv(100))[0] == socket.TIPC_WITHDRAWN


def echo_loop(selector_class, clients=20, rounds=5):
    """A single-threaded selector server with many clients in one thread."""
    server, address = listener()
    done = threading.Event()

    def serve():
        with selector_class() as selector:
            echo.selected(server, selector, done.is_set, 0.2)
    thread = threading.Thread(target=serve)
    thread.start()
    fds = []
    for _ in range(clients):
        fd = tipc(socket.SOCK_STREAM)
        fd.settimeout(20)
        fd.connect(address)
        fds.append(fd)
    for i in range(rounds):
        for k, fd in enumerate(fds):
            fd.sendall(b"%d/%d" % (i, k))
        for k, fd in enumerate(fds):
            assert fd.recv(1000) == b"%d/%d" % (i, k)
    for fd in fds:
        fd.close()
    done.set()
    thread.join()
    server.close()


def with_select():
    echo_loop(selectors.SelectSelector)


def with_poll():
    echo_loop(selectors.PollSelector)


def with_epoll():
    echo_loop(selectors.EpollSelector)


def edge_epoll():
    with tipc(socket.SOCK_RDM) as fd, tipc(socket.SOCK_RDM) as sender, select.epoll() as epoll:
        at = a_type()
        fd.bind(name(at, 1))
        fd.setblocking(False)
        epoll.register(fd, select.EPOLLIN | select.EPOLLET)
        for i in range(10):
            sender.sendto(b"%d" % i, name(at, 1))
            assert epoll.poll(5) == [(fd.fileno(), select.EPOLLIN)]
            assert epoll.poll(0) == []
            assert fd.recv(10) == b"%d" % i


def threading_server():
    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                self.wfile.write(line[::-1])

    class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
        address_family = socket.AF_TIPC
        daemon_threads = True

        def server_bind(self):
            self.socket.bind(self.server_address)

        def handle_error(self, request, client_address):
            pass  # the client closes: ECONNRESET

    at = a_type()
    with Server(name(at, 1), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        for _ in range(10):
            with tipc(socket.SOCK_STREAM) as fd:
                fd.settimeout(20)
                fd.connect(name(at, 1))
                fd.sendall(b"abc\n")
                assert fd.recv(10) == b"\ncba"
        server.shutdown()
        thread.join()


def with_asyncio():
    async def main():
        loop = asyncio.get_running_loop()
        server, address = listener()
        server.setblocking(False)

        async def serve_one(peer):
            with peer:
                for _ in range(5):
                    data = await loop.sock_recv(peer, 1000)
                    await loop.sock_sendall(peer, data)

        async def serve():
            tasks = []
            for _ in range(30):
                peer, _ = await loop.sock_accept(server)
                tasks.append(loop.create_task(serve_one(peer)))
            await asyncio.gather(*tasks)

        async def ask(k):
            with tipc(socket.SOCK_STREAM) as fd:
                fd.setblocking(False)
                await loop.sock_connect(fd, address)
                for i in range(5):
                    await loop.sock_sendall(fd, b"%d %d" % (k, i))
                    assert await loop.sock_recv(fd, 1000) == b"%d %d" % (k, i)

        await asyncio.wait_for(asyncio.gather(serve(), *(ask(k) for k in range(30))), 60)
        server.close()
    asyncio.run(main())


def asyncio_streams():
    async def main():
        server, address = tipc(socket.SOCK_STREAM), name(a_type(), 1)  # asyncio itself calls listen(), which works once only
        server.bind(address)

        async def handle(reader, writer):
            while line := await reader.readline():
                writer.write(line.title())
                await writer.drain()
                if line == b"end\n":
                    break
            writer.close()

        running = await asyncio.start_server(handle, sock=server)
        fd = tipc(socket.SOCK_STREAM)
        fd.setblocking(False)
        await asyncio.get_running_loop().sock_connect(fd, address)
        reader, writer = await asyncio.open_connection(sock=fd)
        for line in (b"hello\n", b"world\n", b"end\n"):
            writer.write(line)
            assert await reader.readline() == line.title()
        writer.close()
        running.close()
    asyncio.run(main())


def forked():
    server, address = listener()
    pid = os.fork()
    if pid == 0:
        peer, _ = server.accept()
        peer.sendall(peer.recv(100) * 2)
        peer.recv(1)
        os._exit(0)
    server.close()
    with tipc(socket.SOCK_STREAM) as client:
        client.settimeout(20)
        client.connect(address)
        client.sendall(b"ab")
        assert client.recv(100) == b"abab"
        client.shutdown(socket.SHUT_RDWR)
    assert os.waitpid(pid, 0)[1] == 0


def processes():
    """multiprocessing passes sockets by SCM_RIGHTS."""
    import multiprocessing
    server, address = listener()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=echo_one, args=(theirs,))
    worker.start()
    with server, tipc(socket.SOCK_STREAM) as client:
        client.setblocking(False)
        client.connect_ex(address)
        peer, _ = server.accept()
        ours.send(peer)
        assert ours.recv() == "taken"
        peer.close()
        client.settimeout(20)
        client.sendall(b"ab")
        assert client.recv(100) == b"abab"
    worker.join()
    assert worker.exitcode == 0


def echo_one(channel):
    peer = channel.recv()
    channel.send("taken")
    peer.sendall(peer.recv(100) * 2)
    try:
        peer.recv(1)
    except ConnectionResetError:
        pass


TESTS = [rdm, dgram, stream, seqpacket, make_file, options, timeouts, pair, topology, with_select, with_poll, with_epoll, edge_epoll,
         threading_server, with_asyncio, asyncio_streams, forked, processes]


def main():
    chosen = [t for t in TESTS if not sys.argv[1:] or t.__name__ in sys.argv[1:]]
    failed = 0
    for test in chosen:
        try:
            test()
            print("ok", test.__name__, flush=True)
        except Exception as error:  # report each test's failure
            failed += 1
            import traceback
            traceback.print_exc()
            print("FAILED %s: %r" % (test.__name__, error), flush=True)
    print("standard: %d passed, %d failed" % (len(chosen) - failed, failed))
    sys.exit(1 if failed or not chosen else 0)


if __name__ == "__main__":
    main()
