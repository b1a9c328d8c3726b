"""Messages that are on their way for as long as a row wants."""

import queue
import threading

from net import until

# Number of messages that one request makes a peer send or receive.
PIECE = 20
# Time limit of a piece, longer than any pause that a fault causes, in s.
PIECE_S = 60


class Flow:
    """Connected messages from `sender` to `other`, which counts them and checks their order."""

    def __init__(self, c, sender, other, length, gap_us):
        self.sender, self.other = sender, other
        self.x, self.y, self.listener = c.connection(sender, other, "seqpacket")
        self.more = {"length": length, "count": PIECE, "timeout_ms": 1000 * PIECE_S, "wait_s": PIECE_S + 10}
        self.gap_us = gap_us
        self.received, self.least, self.problems, self.begun = 0, None, [], queue.Queue()
        self.threads = [threading.Thread(target=self.run, args=(f,), daemon=True) for f in (self.send, self.receive)]
        for thread in self.threads:
            thread.start()

    def run(self, do):
        try:
            do()
        except Exception as error:
            self.problems.append(str(error))
        finally:
            self.begun.put(None)

    def send(self):
        sent = 0
        while self.least is None or sent < self.least:
            self.begun.put(sent)
            got = self.sender.call("send_many", s=self.x, first=sent, gap_us=self.gap_us, **self.more)
            if got != {"sent": PIECE, "error": None}:
                raise AssertionError("%s sends from %d on: %s" % (self.sender.name, sent, got))
            sent += PIECE

    def receive(self):
        for first in iter(self.begun.get, None):
            got = self.other.call("recv_many", s=self.y, first=first, idle_ms=1000 * PIECE_S, **self.more)
            if (got["got"], got["missing"], got["late"], got["broken"], got["error"]) != (PIECE, 0, 0, 0, None):
                raise AssertionError("%s receives from %d on: %s" % (self.other.name, first, got))
            self.received += PIECE


class Flows:
    """Flows in both directions, or between `pairs` of nodes, until `end`: nothing is lost, and the order is kept.

    gap_us          pause after each message
    kernel_gap_us   the same for a sender that is a kernel's node
    """

    def __init__(self, c, length, gap_us=0, kernel_gap_us=None, pairs=None):
        self.c = c
        kernel_gap_us = gap_us if kernel_gap_us is None else kernel_gap_us
        self.flows = [Flow(c, sender, other, length, kernel_gap_us if sender.is_kernel else gap_us)
                      for sender, other in pairs or c.both]

    def go_on(self, what, seconds=20):
        """Checks that each flow delivers messages from now on: the one that is delivered now, and a whole one."""
        before = [flow.received for flow in self.flows]
        until("messages in all directions %s" % what, seconds,
              lambda: all(flow.received >= was + 2 * PIECE or flow.problems for flow, was in zip(self.flows, before)))
        self.c.equal([flow.problems for flow in self.flows], [[] for _ in self.flows], what)

    def end(self, least=0):
        """Ends the flows after at least `least` messages of each; returns the number of all messages."""
        for flow in self.flows:
            flow.least = least
        for flow in self.flows:
            for thread in flow.threads:
                thread.join(3 * PIECE_S)
                self.c.check(not thread.is_alive(), "%s to %s: the flow ends" % (flow.sender.name, flow.other.name))
            self.c.equal(flow.problems, [], "%s to %s: nothing lost, all in order" % (flow.sender.name, flow.other.name))
            flow.sender.call("close", s=flow.x)
            for s in (flow.y, flow.listener):
                flow.other.call("close", s=s)
        return sum(flow.received for flow in self.flows)
