#!/usr/bin/python3
"""Runs the interop matrix in the lab's guest: matrix.py --peer PROGRAM|kernel [--list] [ROW[/MEDIA] ...]

Writes to $OUT: results.json, junit.xml, the recordings of failed rows (with --keep, of all rows) as pcap.
"""

import argparse
import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import xml.sax.saxutils as xml

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import rows_connections  # noqa: E402,F401 (declares rows)
import rows_encryption   # noqa: E402,F401
import rows_failover     # noqa: E402,F401
import rows_faults       # noqa: E402,F401
import rows_groups       # noqa: E402,F401
import rows_messages     # noqa: E402,F401
import rows_scale        # noqa: E402,F401
from cluster import Cluster, folder  # noqa: E402
import programs          # noqa: E402
from rows import ROWS    # noqa: E402


class OverTime(BaseException):
    """A row exceeded its time limit."""


def over_time(*_):
    raise OverTime()


class Runner:
    def __init__(self, options, peer):
        self.options = options
        self.program = None if peer == "kernel" else peer
        # Recordings of two kernel nodes are marked, to distinguish them from those of the program under test.
        self.mark = ".kernel" if peer != options.peer else ""
        self.out = folder(options.out)
        self.scratch = folder("/run/interop")
        self.shared = {}                                  # by media: the linked cluster shared by rows
        self.results = []
        self.log = open(os.path.join(self.out, "peer.log"), "wb")

    def cluster(self, row, media):
        if row.fresh:
            return Cluster("eth" if media == "both" else media, self.program, self.log)
        if media not in self.shared:
            made = Cluster(media, self.program, self.log)
            try:
                made.up()
            except BaseException:
                made.remove()
                raise
            self.shared[media] = made
        return self.shared[media]

    def run(self, row, media):
        name = "%s/%s%s" % (row.name, media, self.mark)
        began, failure, c, pcap = time.monotonic(), None, None, None
        for other in [m for m in self.shared if m != media or row.fresh]:
            self.shared.pop(other).remove()               # one cluster at a time: they use the same namespace names
        signal.setitimer(signal.ITIMER_REAL, row.seconds)
        try:
            c = self.cluster(row, media)
            c.checks, c.notes = 0, []
            if row.snap is not None:
                pcap = os.path.join(self.scratch, name.replace("/", "-") + ".pcap")
                c.net.tap(pcap, row.snap)
            row.run(c)
        except OverTime:
            failure = "took longer than %d s: %s" % (row.seconds, where())
        except Exception as error:
            failure = "%s (%s)" % (error or type(error).__name__, where())
            if not isinstance(error, AssertionError):
                self.log.write(traceback.format_exc().encode())
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        took = time.monotonic() - began
        self.results.append({"row": name, "seconds": round(took, 1), "failure": failure,
                             "checks": c.checks if c else 0, "notes": c.notes if c else []})
        print("%-6s %-38s %6.1f s %4d checks  %s" % ("ok" if failure is None else "FAILED", name, took,
              self.results[-1]["checks"], failure or ", ".join(self.results[-1]["notes"])), flush=True)
        self.after(row, media, name, c, pcap, failure)

    def after(self, row, media, name, c, pcap, failure):
        if c and failure:
            self.state(name, c)
        if c:
            c.net.untap()
        if pcap and os.path.exists(pcap):
            if failure or self.options.keep or (self.options.twice and row.snap == 0):
                subprocess.run(["cp", pcap, self.out], check=False)
            os.unlink(pcap)
        if c and (row.fresh or failure):
            self.shared.pop(media, None)
            c.remove()

    def state(self, name, c):
        """Writes the state of the kernel's node after a failure."""
        with open(os.path.join(self.out, name.replace("/", "-") + ".txt"), "w") as file:
            for command in (["tipc", "node", "list"], ["tipc", "link", "stat", "show"], ["tipc", "nametable", "show"],
                            ["ip", "-s", "link", "show", "w"], ["tipc", "socket", "list"]):
                done = subprocess.run(["ip", "netns", "exec", c.net.a] + command, capture_output=True, text=True, check=False)
                file.write("# a: %s\n%s\n" % (" ".join(command), "\n".join(done.stdout.splitlines()[:200])))
            file.write("# kernel log\n" + subprocess.run(["dmesg"], capture_output=True, text=True, check=False).stdout[-6000:])

    def finish(self):
        """Stops the last nodes; returns the results."""
        for c in self.shared.values():
            c.remove()
        return self.results


def report(options, results):
    failed = [r for r in results if r["failure"]]
    with open(os.path.join(options.out, "results.json"), "w") as file:
        json.dump({"peer": options.peer, "kernel": os.uname().release, "rows": results}, file, indent=1)
    with open(os.path.join(options.out, "junit.xml"), "w") as file:
        file.write('<testsuite name="interop" tests="%d" failures="%d">\n' % (len(results), len(failed)))
        for r in results:
            file.write(' <testcase name=%s time="%s">' % (xml.quoteattr(r["row"]), r["seconds"]))
            if r["failure"]:
                file.write("<failure message=%s/>" % xml.quoteattr(r["failure"]))
            file.write("</testcase>\n")
        file.write("</testsuite>\n")
    print("interop: %d rows, %d checks, %d failed, %.0f s" % (len(results), sum(r["checks"] for r in results), len(failed),
          sum(r["seconds"] for r in results)), flush=True)
    return 1 if failed or not results else 0


def where():
    """Location of the innermost frame in a row, for the current exception."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    mine = [f for f in frames if os.path.basename(f.filename).startswith("rows_")]
    return "%s:%d" % (os.path.basename(mine[-1].filename), mine[-1].lineno) if mine else "before the row"


# `both`: a row with a cluster on each of the first two; `two`: a row with two links between the nodes.
MEDIA = ("eth", "udp", "udp-remote", "udp6", "both", "two")


def chosen(names, peer):
    """(row, media) pairs, both media of a kind together so that a cluster serves many rows."""
    pairs = []
    for media in MEDIA:
        for row in ROWS:
            if media not in row.media or peer not in row.peers:
                continue
            named = (row.name, "%s/%s" % (row.name, media)) + (() if row.by_name else (media,))
            if not any(n in named for n in names) if names else row.by_name:
                continue
            pairs.append((row, media))
    # Rows that share a cluster come first: each fresh cluster replaces the shared one.
    return sorted(pairs, key=lambda p: (p[1] in MEDIA[4:], MEDIA.index(p[1]), p[0].fresh))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--peer", default="kernel")
    options.add_argument("--out", default=os.environ.get("OUT", "."))
    options.add_argument("--keep", action="store_true")
    options.add_argument("--repeat", type=int, default=1)
    options.add_argument("--list", action="store_true")
    options.add_argument("--kernel-engine", action="store_true", help="the program uses the kernel's TIPC")
    options.add_argument("--tool", help="the program utipc: its demo and its benchmark run too, on the kernel's TIPC")
    options.add_argument("--twice", action="store_true",
                         help="record rows of messages with two kernel nodes too, as ROW-MEDIA.kernel.pcap, to compare")
    options.add_argument("rows", nargs="*")
    options = options.parse_args()
    program = "kernel-engine" if options.kernel_engine else "utipc"
    pairs = chosen(options.rows, "kernel" if options.peer == "kernel" else program)
    if options.kernel_engine:
        os.environ["UTIPC_ENGINE"] = "kernel"           # the program inherits it
    alone = [name for name in programs.PROGRAMS if options.tool and (not options.rows or name in options.rows)]
    if options.list:
        for row, media in pairs:
            print("%s/%s" % (row.name, media))
        for name in alone:
            print(name)
        return 0
    if not pairs and not alone:
        print("unknown row; --list names all")
        return 2
    faulthandler.enable()
    signal.signal(signal.SIGALRM, over_time)
    results = []
    if options.twice and options.peer != "kernel":
        runner = Runner(options, "kernel")
        for row, media in pairs:
            if row.snap == 0 and not row.fresh:
                runner.run(row, media)
        results = runner.finish()
    runner = Runner(options, options.peer)
    for row, media in pairs * options.repeat:
        runner.run(row, media)
    results += runner.finish()
    results += [programs.run(name, options.tool) for name in alone]
    return report(options, results)


if __name__ == "__main__":
    sys.exit(main())
