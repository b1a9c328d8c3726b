"""The driver's end of the line protocol: a peer process in a network namespace, and requests to it."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time

import kernel_peer

CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """The peer replied with an error; `code` is the errno name."""

    def __init__(self, where, code):
        super().__init__("%s: %s" % (where, code))
        self.code = code


class Silent(Exception):
    """The peer did not reply in time, or is gone."""


def enter(namespace):
    """Moves this thread (in a new child: the process) into a network namespace."""
    with open("/run/netns/" + namespace) as file:
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns " + namespace)


class Pending:
    def __init__(self, peer, what):
        self.peer, self.what = peer, what
        self.done = threading.Event()
        self.reply = None

    def result(self, seconds=30.0):
        """Returns the reply; raises Refused if it is an error, Silent if none arrives."""
        end = time.monotonic() + seconds
        while not self.done.wait(min(0.2, max(0.0, end - time.monotonic()))):
            if time.monotonic() >= end:
                raise Silent("%s: %s: no reply within %.0f s" % (self.peer.name, self.what, seconds))
        if self.reply is None:
            raise Silent("%s: %s: the peer process is gone" % (self.peer.name, self.what))
        if "error" in self.reply:
            raise Refused("%s: %s" % (self.peer.name, self.what), self.reply["error"])
        return self.reply["ok"]


class Peer:
    """A process in `namespace` that is one TIPC node and speaks the line protocol."""

    def __init__(self, name, namespace, program=None, log=None):
        self.name, self.namespace, self.program = name, namespace, program
        # The node is the kernel's, whether Python or the library uses it.
        self.is_kernel = program is None or os.environ.get("UTIPC_ENGINE") == "kernel"
        self.pending, self.lock, self.number = {}, threading.Lock(), 0
        to_child, from_child = os.pipe(), os.pipe()
        if program is None:
            self.pid = self.fork_kernel(to_child, from_child)
        else:
            self.process = subprocess.Popen([program], stdin=to_child[0], stdout=from_child[1], stderr=log,
                                            preexec_fn=lambda: enter(namespace))
            self.pid = self.process.pid
        os.close(to_child[0])
        os.close(from_child[1])
        self.requests = os.fdopen(to_child[1], "w")
        self.replies = os.fdopen(from_child[0], "r")
        threading.Thread(target=self.follow, daemon=True).start()

    def fork_kernel(self, to_child, from_child):
        pid = os.fork()
        if pid:
            return pid
        try:                                              # the child never returns to the driver's code
            enter(self.namespace)
            for fd in range(3, 256):
                if fd not in (to_child[0], from_child[1]):
                    try:
                        os.close(fd)
                    except OSError:
                        pass
            kernel_peer.Peer().serve(os.fdopen(to_child[0], "r"), os.fdopen(from_child[1], "w"))
        except BaseException as error:
            print("kernel peer %s: %s" % (self.name, error), file=sys.stderr, flush=True)
        finally:
            os._exit(0)

    def follow(self):
        try:
            for line in self.replies:
                reply = json.loads(line)
                with self.lock:
                    pending = self.pending.pop(reply["id"], None)
                if pending:
                    pending.reply = reply
                    pending.done.set()
        except ValueError as error:
            print("%s: not the line protocol: %s" % (self.name, error), flush=True)
        with self.lock:
            left, self.pending = self.pending, None
        for pending in left.values():
            pending.done.set()

    def begin(self, op, **args):
        """Starts an operation; `.result()` returns its reply."""
        pending = Pending(self, "%s %s" % (op, args))
        with self.lock:
            if self.pending is None:
                raise Silent("%s: %s: the peer process is gone" % (self.name, op))
            self.number += 1
            self.pending[self.number] = pending
            text = json.dumps(dict(args, id=self.number, op=op)) + "\n"
            try:
                self.requests.write(text)
                self.requests.flush()
            except OSError as error:
                raise Silent("%s: %s: %s" % (self.name, op, error)) from error
        return pending

    def call(self, op, wait_s=30.0, **args):
        return self.begin(op, **args).result(wait_s)

    def refused(self, op, wait_s=30.0, **args):
        """The errno name with which the operation fails; None if it succeeds."""
        try:
            self.call(op, wait_s, **args)
        except Refused as error:
            return error.code
        return None

    def signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        """Kills the process and waits for it."""
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass

    def rss_kib(self):
        with open("/proc/%d/status" % self.pid) as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1])
        return 0
