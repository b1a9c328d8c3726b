"""Debian's Corosync beside utipc, in turn and in one run:

    python3 interop/cpg/compare.py --place FOLDER --library LIBCPG --programs FOLDER [--rounds N] [--rate-ms N]
        [--kills N] [--json]

Both have two nodes in network namespaces over one veth pair. The same program measures both libraries; `utipc-lab bench
member` measures the Rust API. The first FOLDER gets what is downloaded, the second one has utipcd and utipc-lab. Exit
code 77: it cannot run here, as test programs of automake have it.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import corosync
from corosync import Failed, Program, check, run

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
# Debian packages of Corosync with the libraries that a minimal system lacks.
PACKAGES = (
    "corosync libcfg7 libcmap4 libcorosync-common-dev libcorosync-common4 libcpg-dev libcpg4 libknet1 liblz4-1 "
    "liblzo2-2 libnl-3-200 libnl-route-3-200 libnozzle1 libnspr4 libnss3 libqb100 libquorum5 libssl3 libstatgrab10 "
    "libsystemd0 libvotequorum8 libzstd1"
)
TOOLS = ("unshare", "nsenter", "setpriv", "ip", "cc", "apt-get", "dpkg-deb", "stdbuf")
ADDRESSES = ("10.97.19.1", "10.97.19.2")
# Mounts that keep Corosync's files apart from those of the host and of the other node.
MOUNTS = "mount -t tmpfs none /run && mount -t tmpfs none /dev/shm && echo ready && exec cat"
# Corosync's defaults, but without encryption.
CONFIG = """totem {
  version: 2
  cluster_name: compare
  transport: knet
  crypto_cipher: none
  crypto_hash: none
}
system {
  state_dir: /run
}
logging {
  to_stderr: yes
  to_syslog: no
}
nodelist {
%s}
"""
# The service type of the group in the Rust API.
SERVICE = "19619"

# What is compared: `member.c` on Corosync, and on utipc's library and daemons; `utipc::ordered` on the same daemons in
# agreed and in safe order, and on a node in each process in agreed order.
SIDES = ("corosync", "libcpg", "agreed", "safe", "embedded")
# Sizes of the messages of rates, bytes; messages that are timed one at a time.
SIZES = (64, 1400)
ONE_BY_ONE = 2000
SENDERS = ("the senior member sends", "the junior member sends")
# utipc's default tolerance of a link, and what a view may take beyond it, ms.
KILL_LIMIT_MS = 1500.0 + 100.0

RATES = ["messages/s of %d B, %s" % (size, sender) for size in SIZES for sender in SENDERS]
LATENCIES = ["one at a time, %s, µs" % sender for sender in SENDERS]
KILLS = ["killed process, until the view, ms", "killed node, until the view, ms"]


class Site:
    """Namespaces, programs and configurations."""

    def __init__(self, options, debian, home):
        self.options, self.debian, self.home = options, debian, home
        self.folders = corosync.libraries(debian)
        self.member = options.place / "programs/member"
        nodes = enumerate(ADDRESSES, 1)
        nodes = ["  node {\n    ring0_addr: %s\n    name: n%d\n    nodeid: %d\n  }\n" % (a, n, n) for n, a in nodes]
        (home / "corosync.conf").write_text(CONFIG % "".join(nodes))
        # They end with this program, whose end closes the inputs of their first processes.
        space = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", MOUNTS]
        self.holders = [Program(space) for _ in ADDRESSES]
        for holder in self.holders:
            holder.line_with("ready")
        ids = [holder.child.pid for holder in self.holders]
        run("ip", "link", "add", "v0", "netns", ids[0], "type", "veth", "peer", "name", "v1", "netns", ids[1])
        for node, address in enumerate(ADDRESSES):
            run(*self.inside(node), "ip", "address", "add", address + "/24", "dev", "v%d" % node)
            for device in ("v%d" % node, "lo"):
                run(*self.inside(node), "ip", "link", "set", device, "up")

    def inside(self, node):
        """The words that run a command in the namespaces of a node. It is killed when this program ends."""
        holder = self.holders[node].child.pid
        return ["setpriv", "--pdeathsig", "KILL", "nsenter", "--net", "--mount", "--target", str(holder)]

    def socket(self, node):
        return self.home / ("%d.sock" % node)

    def env(self, *folders):
        return dict(os.environ, LD_LIBRARY_PATH=corosync.joined([*folders, *self.folders]))

    def daemon(self, side, node):
        if side == "corosync":
            words = [self.debian / "usr/sbin/corosync", "-f", "-c", self.home / "corosync.conf"]
            return Program([*self.inside(node), *words], self.env(), of_errors=True)
        config = self.home / ("%d.toml" % node)
        config.write_text(
            '[node]\nsocket = "%s"\nstate = ""\naddress = "0.0.%d"\n\n[[bearer]]\nmedia = "udp"\nlocal = "%s"\n'
            % (self.socket(node), node + 1, ADDRESSES[node])
        )
        return corosync.start_daemon([*self.inside(node), self.options.programs / "utipcd", "--config", config])

    def daemons(self, side):
        return [self.daemon(side, node) for node in range(len(ADDRESSES))]

    def members(self, side, nodes):
        """Members of one group, the first one the most senior, on these nodes."""
        members = []
        for node in nodes:
            if side in ("corosync", "libcpg"):
                env = self.env(*([self.options.library.parent] if side == "libcpg" else []))
                words = [self.member, "compared", len(nodes)]
            else:
                env = dict(os.environ)
                words = [self.options.programs / "utipc-lab", "bench", "member", SERVICE, len(nodes)]
                words += {"safe": ["--safe"], "embedded": ["--embedded", ADDRESSES[node], ADDRESSES[1 - node]]}.get(side, [])
            env.update(UTIPC_SOCKET=str(self.socket(node)), UTIPC_ENGINE="daemon")
            members.append(Program([*self.inside(node), *words], env))
            # So that the first one is the most senior.
            time.sleep(0.3)
        for member in members:
            member.words_of("ready")
        return members


def end(programs):
    for program in programs:
        program.child.kill()
    for program in programs:
        program.child.wait()


def compare_histories(side, members):
    """Checks that all members have received the same messages and views in the same order."""
    members[0].tell("mark")
    marks = [member.words_of("mark") for member in members]
    check(all(mark == marks[0] for mark in marks), side, "histories differ:", marks)


def traffic(site, side, rate_ms):
    """Measures rates and latency once; yields rows and values."""
    members = site.members(side, (0, 1))
    for at, sender in enumerate(SENDERS):
        for size in SIZES:
            members[at].tell("rate %d %d" % (size, rate_ms))
            rates = [[int(word) for word in member.words_of("rate")[1:3]] for member in members]
            slower = min(messages * 1e9 / max(ns, 1) for messages, ns in rates)
            yield "messages/s of %d B, %s" % (size, sender), slower
        members[at].tell("latency 64 %d" % ONE_BY_ONE)
        yield "one at a time, %s, µs" % sender, int(members[at].words_of("latency")[1]) / 1e3
    compare_histories(side, members)
    end(members)


def kill(site, side, row):
    """Kills the most senior of three members, which is alone on its node; returns the longest time to a view, ms."""
    daemons = site.daemons(side)
    members = site.members(side, (1, 0, 0))
    for member in members:
        member.tell("load 64 500")
    time.sleep(1)
    killed, *survivors = members
    at = time.time_ns()
    if row == KILLS[1]:
        daemons[1].child.kill()
    killed.child.kill()
    views = [member.words_of("view") for member in survivors]
    check(all(view[1] == "2" for view in views), side, "a survivor has another view:", views)
    # Members, messages and hash.
    check(views[0][1::2] + views[0][4:] == views[1][1::2] + views[1][4:], side, "the histories before the view differ:", views)
    time.sleep(0.3)
    for member in survivors:
        member.tell("stop")
    compare_histories(side, survivors)
    end(members + daemons)
    return max(max(int(view[2]) - at, 0) for view in views) / 1e6


def turns(number, sides):
    """The sides in the order of a round: reversed in every second one."""
    return sides[::-1] if number % 2 else sides


def measure(site, options):
    """All values: by row and side."""
    values = {row: {} for row in RATES + LATENCIES + KILLS}
    daemons = site.daemons("corosync") + site.daemons("agreed")
    # Corosync's nodes find each other, and learn the MTU of the path.
    end(site.members("corosync", (0, 1)))
    for number in range(options.rounds):
        for side in turns(number, SIDES):
            for row, value in traffic(site, side, options.rate_ms):
                values[row].setdefault(side, []).append(value)
        print("cpg --compare: round %d of %d" % (number + 1, options.rounds), file=sys.stderr)
    end(daemons)
    for number in range(options.kills):
        for row in KILLS:
            for side in turns(number, SIDES[:3]):
                values[row].setdefault(side, []).append(kill(site, side, row))
        print("cpg --compare: kills, round %d of %d" % (number + 1, options.kills), file=sys.stderr)
    return {row: sides for row, sides in values.items() if sides}


class Row:
    """One row of the result: the rounds of each side; the value is the median, of kills the largest.

    >>> Row(RATES[0], {"corosync": [10.0, 1000.0, 11.0], "agreed": [22.0, 5.0, 900.0]}).is_met("agreed")
    True
    >>> Row(RATES[0], {"corosync": [10.0, 12.0], "agreed": [21.0]}).verdict()
    '**agreed no**'
    >>> Row(LATENCIES[1], {"corosync": [100.0], "agreed": [51.0]}).is_met("agreed")
    False
    >>> kill = Row(KILLS[1], {"corosync": [6000.0], "agreed": [1500.0, 1601.0, 1400.0]})
    >>> kill.values["agreed"], kill.is_met("agreed")
    (1601.0, False)
    """

    def __init__(self, name, sides):
        self.name, self.sides = name, sides
        take = max if name in KILLS else statistics.median
        self.values = {side: take(rounds) for side, rounds in sides.items()}
        self.ratios = {side: value / self.values["corosync"] for side, value in self.values.items() if "corosync" in self.values}
        kinds = [(RATES, "agreed ≥ 2 ×, safe ≥ 1 ×"), (LATENCIES, "agreed ≤ 0.5 ×"), (KILLS, "agreed ≤ 1600 ms")]
        self.target = next(target for names, target in kinds if name in names)

    def is_met(self, side):
        """Whether a side meets its target, if it has one."""
        if side not in self.ratios:
            return None
        ratio, value = self.ratios[side], self.values[side]
        if self.name in RATES and side in ("agreed", "safe"):
            return ratio >= (2.0 if side == "agreed" else 1.0)
        if side != "agreed":
            return None
        return ratio <= 0.5 if self.name in LATENCIES else value <= KILL_LIMIT_MS

    def cell(self, side):
        if side not in self.values:
            return ""
        value = self.values[side]
        text = "%.*f" % (value < 10.0, value)
        return text if side == "corosync" or side not in self.ratios else "%s (%.2f ×)" % (text, self.ratios[side])

    def verdict(self):
        met = {side: self.is_met(side) for side in ("agreed", "safe")}
        words = ["yes" if good else "**%s no**" % side for side, good in met.items() if good is not None]
        return ", ".join(dict.fromkeys(words))

    def json(self, version, commit):
        sides = {
            side: {"value": self.values[side], "ratio": self.ratios.get(side), "met": self.is_met(side), "rounds": rounds}
            for side, rounds in self.sides.items()
        }
        about = {"row": self.name, "corosync": version, "commit": commit, "target": self.target, "sides": sides}
        return json.dumps(about, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def prepare(options, home):
    """Downloads Corosync and makes the namespaces; fails where that cannot be."""
    check(os.geteuid() == 0, "network and mount namespaces need root")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    check(not missing, "no %s (apt-get install)" % ", ".join(missing))
    debian = options.place / "corosync"
    if not (debian / "usr/sbin/corosync").exists():
        corosync.unpack(PACKAGES, debian)
    env = dict(os.environ, LD_LIBRARY_PATH=corosync.joined(corosync.libraries(debian)))
    lacks = [line for line in run("ldd", debian / "usr/sbin/corosync", env=env).split("\n") if "not found" in line]
    check(not lacks, "libraries of Corosync are missing:", ",".join(lacks))
    return Site(options, debian, home)


def main():
    parser = argparse.ArgumentParser()
    for option in ("--place", "--library", "--programs"):
        parser.add_argument(option, type=pathlib.Path, required=True)
    parser.add_argument("--prepare", action="store_true", help="only find out whether it can run here")
    for option, usual in (("--rounds", 5), ("--rate-ms", 1000), ("--kills", 3)):
        parser.add_argument(option, type=int, default=usual)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="utipc-compare-") as home:
        try:
            site = prepare(options, pathlib.Path(home))
        except Failed as why:
            print("cpg --compare: skipped: %s" % why, file=sys.stderr)
            sys.exit(SKIPPED)
        if options.prepare:
            return
        debian, source = site.debian, ROOT / "bench/corosync/member.c"
        corosync.compile_program(source, site.member, [debian / "usr/include"], debian, "-Wall", "-lcpg")
        version = run(debian / "usr/sbin/corosync", "-v", env=site.env()).split("\n")[0].strip()
        try:
            values = measure(site, options)
        finally:
            corosync.kill_all()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    commit = commit.stdout.strip() or "unknown"
    rows = [Row(name, sides) for name, sides in values.items()]
    if options.json:
        for row in rows:
            print(row.json(version, commit))
        return
    print("%s beside utipc %s, %d rounds, medians (kills: longest):\n" % (version, commit, options.rounds))
    print("| | Corosync | `libcpg` | `ordered`, agreed | safe | embedded, agreed | Target | Met |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print("| %s |" % " | ".join([row.name, *map(row.cell, SIDES), row.target, row.verdict()]))


if __name__ == "__main__":
    main()
