"""Runs Corosync's own test programs, which are built outside the tree and linked to Corosync's library, on utipc's:

    python3 interop/cpg/run.py --place FOLDER --library LIBCPG --daemon UTIPCD [--bench]

FOLDER gets what is downloaded and compiled. The last line counts the checks.
"""

import argparse
import os
import pathlib
import signal
import sys
import tempfile
import time

import corosync
from corosync import Failed, Program, check, run

# Node addresses of the daemons. cpghum accepts node ids up to 65536 only.
NODES = (7, 8)


class Cluster:
    """Two daemons, and the programs' folder."""

    def __init__(self, options, system, home):
        self.programs = options.place / "programs"
        self.home = home
        self.libraries = corosync.joined([options.library.parent, *corosync.libraries(system)])
        (home / "nodes").mkdir(mode=0o700)
        for node in NODES:
            config = home / ("%d.toml" % node)
            config.write_text(
                '[node]\nsocket = "%s"\naddress = "0.0.%d"\n\n[[bearer]]\nmedia = "host"\ndirectory = "%s"\n'
                % (self.socket(node), node, home / "nodes")
            )
            corosync.start_daemon([options.daemon, "--config", config], dict(os.environ, XDG_RUNTIME_DIR=str(home)))

    def socket(self, node):
        return self.home / ("%d.sock" % node)

    def start(self, program, node, *words):
        """Starts a program on the daemon of a node."""
        env = dict(os.environ, LD_LIBRARY_PATH=self.libraries, UTIPC_SOCKET=str(self.socket(node)))
        env.pop("UTIPC_ENGINE", None)
        return Program([self.programs / program, *words], env)

    def printed(self, program, seconds, *words):
        """What a program that runs alone on node 7 prints."""
        return self.start(program, 7, *words).finish(seconds)


def number(text, label):
    """The number behind a label."""
    check(label in text, "no", label, "in", text)
    return int(text.split(label, 1)[1].split()[0])


def finds(cluster, library):
    text = run("ldd", cluster.programs / "testcpg", env=dict(os.environ, LD_LIBRARY_PATH=cluster.libraries))
    line = next((line for line in text.split("\n") if "libcpg.so.4" in line), "")
    found = line.split()[2:3]
    check(found and os.path.realpath(found[0]) == os.path.realpath(library), "ldd:", line)
    check("no version information" not in text, text)
    return "%s, with Corosync's symbol version" % library.name


def testcpg(cluster):
    programs = []
    for node in (7, 7, 8):
        programs.append(cluster.start("testcpg", node, "suite"))
        programs[-1].line_with("membership list")
    first, second, third = programs
    ids = [program.child.pid for program in programs]
    for program in programs:
        program.line_with("/%d reason: 1" % ids[2])
    for at, sender in enumerate(programs):
        sender.tell("message of %d" % at)
        for program in programs:
            program.line_with("/%d: 'message of %d" % (ids[at], at))
    third.tell("EXIT")
    third.line_with("Finalize  result is 1")
    for program in (first, second):
        program.line_with("left node/pid 8/%d reason: 2" % ids[2])
    second.child.kill()
    first.line_with("left node/pid 7/%d reason: 5" % ids[1])
    return "joins, messages, a leave and a killed process arrive, with their reasons"


def testcpg2(cluster):
    text = cluster.printed("testcpg2", 20)
    check("local_get: 7" in text and "confchg nodeid 7" in text, text)
    return "its asserts hold"


def cpgverify(cluster):
    programs = [cluster.start("cpgverify", node, "-i", "1000") for node in NODES]
    texts = [program.finish(240) for program in programs]
    check(not any("incorrect hash" in text for text in texts), "an incorrect hash")
    checked = sum(line.startswith("SIZE ") for text in texts for line in text.split("\n"))
    check(checked >= 1000, checked, "messages were checked")
    return "%d messages of up to 100,100 bytes from two nodes have the right hash" % checked


def cpghum(cluster, size):
    listener = cluster.start("cpghum", 8, "-l", "-a", "-n", size, "-p", "1000")
    # It prints nothing before its end.
    time.sleep(2)
    sender = cluster.printed("cpghum", 60, "-a", "-n", size, "-W", size, "-d", "1", "-r", "1", "-p", "5")
    time.sleep(1)
    listener.child.send_signal(signal.SIGINT)
    heard = listener.finish(20)
    sent, received = number(sender, "packets sent:"), number(heard, "packets recvd:")
    for text in (sender, heard):
        for errors in ("length errors:", "sequence errors:", "crc errors:"):
            check(number(text, errors) == 0, text)
    check(0 < sent == received, sent, "sent,", received, "received\n%s\n%s" % (sender, heard))
    about = "%d messages, none lost, out of sequence or damaged; %d retries; round trip %d us on average"
    return about % (sent, number(sender, "send retries:"), number(sender, "avg RTT:"))


def passes(cluster, name):
    text = cluster.printed(name, 240)
    check("PASS" in text, text)
    return "PASS"


def rates(text):
    """The seven rates that a benchmark prints."""
    lines = [line for line in text.split("\n") if "TP/s" in line]
    check(len(lines) == 7, text)
    return "\n" + "\n".join(lines)


def cpgbench(cluster):
    lines = rates(cluster.printed("cpgbench", 150))
    check("\n    0" not in lines, lines)
    return lines


def flood(cluster):
    text = cluster.printed("cpghum", 150, "-f", "-a")
    check(number(text, "crc errors:") == 0, text)
    return rates(text)


# Program, name, check.
CHECKS = [
    ("testcpg", "testcpg, two on one node and one on another", testcpg),
    ("testcpg2", "testcpg2", testcpg2),
    ("cpgverify", "cpgverify, two at once", cpgverify),
    ("cpghum", "cpghum, 4 KiB to another node", lambda cluster: cpghum(cluster, "4K")),
    ("cpghum", "cpghum, 200 KiB to another node", lambda cluster: cpghum(cluster, "200K")),
    ("stress_cpgfdget", "stress_cpgfdget", lambda cluster: passes(cluster, "stress_cpgfdget")),
    ("stress_cpgcontext", "stress_cpgcontext", lambda cluster: passes(cluster, "stress_cpgcontext")),
]
BENCHES = [("cpgbench", "cpgbench", cpgbench), ("cpghum", "cpghum --flood", flood)]


def prepare(place, names):
    """Downloads, unless that is done, and compiles; returns the folder of the unpacked packages."""
    system = place / "system"
    if not (system / "usr/include/corosync/cpg.h").exists():
        corosync.unpack(corosync.PACKAGES, system)
    named = os.environ.get(corosync.VARIABLE)
    sources = pathlib.Path(named) if named else corosync.download_sources(place / "source")
    check((sources / "test/testcpg.c").exists(), sources, "has no test/testcpg.c: set", corosync.VARIABLE)
    programs = place / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    # Their configure script writes this file, of which these programs use nothing.
    (programs / "config.h").write_text("")
    includes = [programs, sources / "include", system / "usr/include"]
    for name in names:
        source = sources / "test" / (name + ".c")
        corosync.compile_program(source, programs / name, includes, system, "-w", "-lcpg", "-lqb", "-lz")
    return system


def main():
    parser = argparse.ArgumentParser()
    for option in ("--place", "--library", "--daemon"):
        parser.add_argument(option, type=pathlib.Path, required=True)
    parser.add_argument("--bench", action="store_true")
    options = parser.parse_args()
    checks = CHECKS + (BENCHES if options.bench else [])
    try:
        system = prepare(options.place, sorted({program for program, _, _ in checks}))
    except Failed as why:
        sys.exit("cannot get Corosync's test programs (%s=DIR names a folder with its sources): %s" % (corosync.VARIABLE, why))
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="utipc-cpg-") as home:
        cluster = Cluster(options, system, pathlib.Path(home))
        first = (None, "the programs find our library", lambda cluster: finds(cluster, options.library))
        for _, name, test in [first, *checks]:
            try:
                print("ok %s: %s" % (name, test(cluster)), flush=True)
                passed += 1
            except (Failed, OSError) as why:
                print("FAILED %s: %s" % (name, why), flush=True)
                failed += 1
        corosync.kill_all()
    print("cpg: %d passed, %d failed" % (passed, failed))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
