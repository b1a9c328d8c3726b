"""ZeroMQ over tipc://: every pattern between two processes, and a restarted server. Prints a line per test and a summary.

    python3 zeromq.py [--count MESSAGES] [NAME...]                  both ends on this node
    python3 zeromq.py --serve TYPE [--count MESSAGES] [NAME...]     the ends that bind, at service types from TYPE on
    python3 zeromq.py --peer TYPE [--count MESSAGES] [NAME...]      the ends that connect, on another node
"""

import argparse
import os
import signal
import sys
import time

import zmq

COUNT = 100_000
LIMIT_MS = 60_000  # for one message
WINDOW = 100  # requests in flight
DEALERS = 4
RESTARTS = 3


def endpoint(kind):
    """Returns (address to bind, address to connect). Without `@0.0.0` libzmq uses the lookup domain <1.0.0>."""
    return "tipc://{%d,0,0}" % kind, "tipc://{%d,0}@0.0.0" % kind


def child(run, *args):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            run(*args)
            os._exit(0)
        except BaseException as error:  # the exit code is for the parent, this line for the reader
            print("child: %r" % error, flush=True)
            os._exit(1)
    return pid


def ended(pid):
    assert os.waitpid(pid, 0)[1] == 0, "the other process failed"


class End:
    """A context with one socket, terminated after everything is sent."""

    def __init__(self, kind, identity=None):
        self.context = zmq.Context()
        self.fd = self.context.socket(kind)
        for option in (zmq.RCVTIMEO, zmq.SNDTIMEO):
            self.fd.setsockopt(option, LIMIT_MS)
        # Otherwise a subscriber would wait to notify a publisher that may have ended already.
        self.fd.setsockopt(zmq.LINGER, 0 if kind == zmq.SUB else LIMIT_MS)
        for option in (zmq.SNDHWM, zmq.RCVHWM):
            self.fd.setsockopt(option, 0)
        if identity:
            self.fd.setsockopt(zmq.IDENTITY, identity)

    def bound(self, where):
        self.fd.bind(where)
        return self

    def connected(self, where):
        """libzmq does not retry an unbound service, so this repeats the request until the service is bound."""
        end = time.monotonic() + LIMIT_MS / 1000
        while True:
            try:
                self.fd.connect(where)
                return self
            except zmq.ZMQError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def __enter__(self):
        return self.fd

    def __exit__(self, kind, error, trace):
        self.fd.close(linger=0 if kind else None)
        self.context.term()


def body(i):
    return b"%08d" % i + b"." * (i % 50)


# ---- patterns: the end that binds, and the ends that connect ----

def reply(where):
    with End(zmq.REP).bound(where) as fd:
        for i in range(COUNT // 2):
            assert fd.recv() == body(i)
            fd.send(body(i + 1))


def request(where):
    """Strict request and reply: COUNT messages, half of them requests."""
    with End(zmq.REQ).connected(where) as fd:
        for i in range(COUNT // 2):
            fd.send(body(i))
            assert fd.recv() == body(i + 1)


def pull(where):
    with End(zmq.PULL).bound(where) as fd:
        for i in range(COUNT):
            got = fd.recv()
            assert got == body(i), (i, got)


def push(where):
    with End(zmq.PUSH).connected(where) as fd:
        for i in range(COUNT):
            fd.send(body(i))


def publish(where):
    """Waits until both subscribers are connected."""
    with End(zmq.XPUB).bound(where) as fd:
        wanted = {fd.recv(), fd.recv()}
        assert wanted == {b"\x01a", b"\x01b"}, wanted
        for i in range(COUNT):
            fd.send(b"a" + body(i))
            fd.send(b"b" + body(i))
            fd.send(b"c without subscriber")


def subscribe(where, prefix):
    with End(zmq.SUB).connected(where) as fd:
        fd.setsockopt(zmq.SUBSCRIBE, prefix)
        for i in range(COUNT):
            got = fd.recv()
            assert got == prefix + body(i), (i, got)


def route(where):
    with End(zmq.ROUTER).bound(where) as fd:
        for _ in range(COUNT // DEALERS * DEALERS):
            who, empty, what = fd.recv_multipart()
            fd.send_multipart([who, empty, what + who[-1:]])


def windows(total):
    return ((first, min(first + WINDOW, total)) for first in range(0, total, WINDOW))


def deal(where, k):
    with End(zmq.DEALER, b"dealer%d" % k).connected(where) as fd:
        for first, end in windows(COUNT // DEALERS):
            for i in range(first, end):
                fd.send_multipart([b"", body(i)])
            for i in range(first, end):
                assert fd.recv_multipart() == [b"", body(i) + b"%d" % k]


def ping(where):
    with End(zmq.PAIR).bound(where) as fd:
        for first, end in windows(COUNT):
            for i in range(first, end):
                fd.send(body(i))
            for i in range(first, end):
                assert fd.recv() == body(i)


def pong(where):
    with End(zmq.PAIR).connected(where) as fd:
        for _ in range(COUNT):
            fd.send(fd.recv())


def pull_large(where):
    """Messages larger than any TIPC message."""
    with End(zmq.PULL).bound(where) as fd:
        for i in range(10):
            assert fd.recv() == bytes([i]) * (1 << 20)


def push_large(where):
    with End(zmq.PUSH).connected(where) as fd:
        for i in range(10):
            fd.send(bytes([i]) * (1 << 20))


def mortal(where):
    """Echoes until a message ends or kills it."""
    with End(zmq.ROUTER).bound(where) as fd:
        while True:
            who, what = fd.recv_multipart()
            if what == b"die":
                os.kill(os.getpid(), signal.SIGKILL)
            if what == b"end":
                return
            fd.send_multipart([who, what])


def restarted(where):
    """Restarts the server each time it is killed."""
    for life in range(RESTARTS + 1):
        pid = child(mortal, where)
        status = os.waitpid(pid, 0)[1]
        assert status == (signal.SIGKILL if life < RESTARTS else 0), (life, status)


def persist(where):
    """The server is killed and restarted; the client only sees a delay. COUNT messages, half of them requests."""
    with End(zmq.DEALER).connected(where) as fd:
        asked = 0
        each = COUNT // 2 // (RESTARTS + 1)
        for life in range(RESTARTS + 1):
            # Repeats a request until its own reply comes; earlier replies died with the server.
            fd.setsockopt(zmq.RCVTIMEO, 200)
            end = time.monotonic() + 30
            while True:
                asked += 1
                fd.send(body(asked))
                try:
                    while fd.recv() != body(asked):
                        pass
                    break
                except zmq.Again:
                    assert time.monotonic() < end, "no reply within 30 s of a restart"
            fd.setsockopt(zmq.RCVTIMEO, LIMIT_MS)
            for first, last in windows(each):
                for i in range(first, last):
                    fd.send(body(i))
                for i in range(first, last):
                    assert fd.recv() == body(i)
            fd.send(b"die" if life < RESTARTS else b"end")


PATTERNS = {
    "req_rep": (reply, [(request,)]),
    "push_pull": (pull, [(push,)]),
    "pub_sub": (publish, [(subscribe, b"a"), (subscribe, b"b")]),
    "router_dealer": (route, [(deal, k) for k in range(DEALERS)]),
    "pair": (ping, [(pong,)]),
    "large": (pull_large, [(push_large,)]),
    "reconnect": (restarted, [(persist,)]),
}


def run(pattern, kind, binds, connects):
    here, there = endpoint(kind)
    binder, connectors = PATTERNS[pattern]
    pids = [child(connector, there, *args) for connector, *args in connectors] if connects else []
    if binds:
        binder(here)
    for pid in pids:
        ended(pid)


def main():
    global COUNT
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--serve", type=int, metavar="TYPE")
    parser.add_argument("--peer", type=int, metavar="TYPE")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    COUNT = args.count
    both = args.serve is None and args.peer is None
    kind = 0x10000 + os.getpid() % 0x10000 * 16 if both else args.serve or args.peer
    print("libzmq %s, pyzmq %s, %d messages" % (zmq.zmq_version(), zmq.__version__, COUNT), flush=True)
    chosen = [p for p in PATTERNS if not args.names or p in args.names]
    failed = 0
    for number, pattern in enumerate(chosen, 1):
        began = time.monotonic()
        try:
            run(pattern, kind + number, both or args.serve is not None, both or args.peer is not None)
            print("ok %s, %.1f s" % (pattern, time.monotonic() - began), flush=True)
        except Exception as error:  # report each pattern's failure
            failed += 1
            import traceback
            traceback.print_exc()
            print("FAILED %s: %r" % (pattern, error), flush=True)
            if not both:
                break  # the two ends are no longer in step
    print("zeromq: %d passed, %d failed" % (len(chosen) - failed, failed))
    sys.stdout.flush()
    os._exit(1 if failed or not chosen else 0)  # contexts of failed tests may still wait


if __name__ == "__main__":
    main()
