"""ZeroMQ over tipc://: every pattern between two processes, and a server that comes back. Prints one line a test and a summary.

    python3 zeromq.py [--count MESSAGES] [NAME...]
"""

import os
import sys
import time

import zmq

COUNT = 100_000
TYPE = [0x10000 + os.getpid() % 0x10000 * 16]
LIMIT_MS = 60_000  # for one message


def endpoint():
    """(for bind, for connect). Without `@0.0.0` libzmq asks for the domain 1.0.0 of nodes that had addresses <Z.C.N>."""
    TYPE[0] += 1
    return "tipc://{%d,0,0}" % TYPE[0], "tipc://{%d,0}@0.0.0" % TYPE[0]


def child(run, *args):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            run(*args)
            os._exit(0)
        except BaseException as error:  # the exit code tells the parent, this line the reader
            print("child: %r" % error, flush=True)
            os._exit(1)
    return pid


def ended(pid):
    assert os.waitpid(pid, 0)[1] == 0, "the other process failed"


def a_socket(context, kind):
    fd = context.socket(kind)
    fd.setsockopt(zmq.RCVTIMEO, LIMIT_MS)
    fd.setsockopt(zmq.SNDTIMEO, LIMIT_MS)
    fd.setsockopt(zmq.SNDHWM, 0)
    fd.setsockopt(zmq.RCVHWM, 0)
    fd.setsockopt(zmq.LINGER, LIMIT_MS)
    return fd


def bound(context, kind, where):
    fd = a_socket(context, kind)
    fd.bind(where)
    return fd


def connected(context, kind, where):
    """libzmq does not retry a name that nobody has bound yet: ask until somebody has."""
    fd = a_socket(context, kind)
    end = time.monotonic() + 20
    while True:
        try:
            fd.connect(where)
            return fd
        except zmq.ZMQError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def body(i):
    return b"%08d" % i + b"." * (i % 50)


def req_rep():
    """Asks and answers, COUNT / 10 times: each waits for the one before."""
    here, there = endpoint()
    count = max(COUNT // 10, 1)

    def serve():
        context = zmq.Context()
        fd = bound(context, zmq.REP, here)
        for i in range(count):
            assert fd.recv() == body(i)
            fd.send(body(i + 1))
        fd.close()
        context.term()
    pid = child(serve)
    context = zmq.Context()
    fd = connected(context, zmq.REQ, there)
    for i in range(count):
        fd.send(body(i))
        assert fd.recv() == body(i + 1)
    ended(pid)
    fd.close()
    context.term()


def push_pull():
    here, there = endpoint()

    def push():
        context = zmq.Context()
        fd = connected(context, zmq.PUSH, there)
        for i in range(COUNT):
            fd.send(body(i))
        fd.close()
        context.term()
    pid = child(push)
    context = zmq.Context()
    fd = bound(context, zmq.PULL, here)
    for i in range(COUNT):
        got = fd.recv()
        assert got == body(i), (i, got)
    ended(pid)
    fd.close()
    context.term()


def pub_sub():
    """Two subscribers; the publisher waits until both have subscribed."""
    here, there = endpoint()

    def subscribe(prefix):
        context = zmq.Context()
        fd = connected(context, zmq.SUB, there)
        fd.setsockopt(zmq.SUBSCRIBE, prefix)
        for i in range(COUNT):
            got = fd.recv()
            assert got == prefix + body(i), (i, got)
        fd.close()
        context.term()
    pids = [child(subscribe, prefix) for prefix in (b"a", b"b")]
    context = zmq.Context()
    fd = bound(context, zmq.XPUB, here)
    wanted = {fd.recv(), fd.recv()}
    assert wanted == {b"\x01a", b"\x01b"}, wanted
    for i in range(COUNT):
        fd.send(b"a" + body(i))
        fd.send(b"b" + body(i))
        fd.send(b"c nobody wants this")
    for pid in pids:
        ended(pid)
    fd.close()
    context.term()


def router_dealer():
    here, there = endpoint()
    dealers, each = 4, max(COUNT // 4, 1)

    def deal(k):
        context = zmq.Context()
        fd = a_socket(context, zmq.DEALER)
        fd.setsockopt(zmq.IDENTITY, b"dealer%d" % k)
        end = time.monotonic() + 20
        while True:
            try:
                fd.connect(there)
                break
            except zmq.ZMQError:
                assert time.monotonic() < end
                time.sleep(0.02)
        for i in range(each):
            fd.send_multipart([b"", body(i)])
            if i % 100 == 99 or i == each - 1:
                for n in range(i - i % 100, i + 1):
                    assert fd.recv_multipart() == [b"", body(n) + b"%d" % k]
        fd.close()
        context.term()
    context = zmq.Context()
    pids = [child(deal, k) for k in range(dealers)]
    fd = bound(context, zmq.ROUTER, here)
    for _ in range(dealers * each):
        who, empty, what = fd.recv_multipart()
        fd.send_multipart([who, empty, what + who[-1:]])
    for pid in pids:
        ended(pid)
    fd.close()
    context.term()


def pair():
    here, there = endpoint()

    def other():
        context = zmq.Context()
        fd = connected(context, zmq.PAIR, there)
        for i in range(COUNT):
            fd.send(fd.recv())
        fd.close()
        context.term()
    pid = child(other)
    context = zmq.Context()
    fd = bound(context, zmq.PAIR, here)
    for i in range(COUNT):
        fd.send(body(i))
        if i % 100 == 99 or i == COUNT - 1:
            for n in range(i - i % 100, i + 1):
                assert fd.recv() == body(n)
    ended(pid)
    fd.close()
    context.term()


def large():
    """Messages larger than any of TIPC's."""
    here, there = endpoint()

    def push():
        context = zmq.Context()
        fd = connected(context, zmq.PUSH, there)
        for i in range(10):
            fd.send(bytes([i]) * (1 << 20))
        fd.close()
        context.term()
    pid = child(push)
    context = zmq.Context()
    fd = bound(context, zmq.PULL, here)
    for i in range(10):
        assert fd.recv() == bytes([i]) * (1 << 20)
    ended(pid)
    fd.close()
    context.term()


def reconnect():
    """The server is killed and started again, three times; the client notices nothing but the wait."""
    here, there = endpoint()

    def serve():
        context = zmq.Context()
        fd = bound(context, zmq.ROUTER, here)
        fd.setsockopt(zmq.RCVTIMEO, -1)
        while True:
            who, what = fd.recv_multipart()
            fd.send_multipart([who, what])
    pid = child(serve)
    context = zmq.Context()
    fd = connected(context, zmq.DEALER, there)
    fd.setsockopt(zmq.RCVTIMEO, 200)
    asked = 0

    def answered():
        """Asks until an answer to this very question comes: those before it died with the server."""
        nonlocal asked
        end = time.monotonic() + 30
        while True:
            asked += 1
            fd.send(body(asked))
            try:
                while fd.recv() != body(asked):
                    pass
                return
            except zmq.Again:
                assert time.monotonic() < end, "no answer within 30 s of a restart"
    for _ in range(3):
        for _ in range(20):
            answered()
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        pid = child(serve)
        answered()
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    fd.close(linger=0)
    context.term()


TESTS = [req_rep, push_pull, pub_sub, router_dealer, pair, large, reconnect]


def main():
    global COUNT
    args = sys.argv[1:]
    if args[:1] == ["--count"]:
        COUNT = int(args[1])
        args = args[2:]
    print("libzmq %s, pyzmq %s, %d messages" % (zmq.zmq_version(), zmq.__version__, COUNT), flush=True)
    chosen = [t for t in TESTS if not args or t.__name__ in args]
    failed = 0
    for test in chosen:
        began = time.monotonic()
        try:
            test()
            print("ok %s, %.1f s" % (test.__name__, time.monotonic() - began), flush=True)
        except Exception as error:  # each test tells its own failure
            failed += 1
            import traceback
            traceback.print_exc()
            print("FAILED %s: %r" % (test.__name__, error), flush=True)
    print("zeromq: %d passed, %d failed" % (len(chosen) - failed, failed))
    sys.stdout.flush()
    os._exit(1 if failed or not chosen else 0)  # contexts of failed tests may still wait


if __name__ == "__main__":
    main()
