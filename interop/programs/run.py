"""Runs programs that were not written for utipc: under the shim (by default), or on the kernel in the lab's machine.

    python3 interop/programs/run.py [--utipc PATH] [--count MESSAGES] [--cost RATIO]     under `utipc run --private`
    cargo xtask lab run -t 400 interop/programs/run.py --kernel [--count MESSAGES]       on the kernel's AF_TIPC cargo
    xtask programs --mixed [--count MESSAGES]                                      between a kernel node and one of
    utipc

Builds C programs, installs pyzmq's wheel and unpacks Debian's python3-zmq in target/programs; anything unavailable is
reported as `skipped: NAME: REASON`. Prints one line for each program, then `programs: P passed, F failed`.
"""

import argparse
import glob
import os
import subprocess
import sys
import time

import mixed

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
MADE = os.path.join(ROOT, "target", "programs")
DEBS = ["libzmq5", "libnorm1", "libpgm-5.3-0", "libsodium23", "python3-zmq"]
SERVERS = {"fork": 20, "threads": 50, "select": 200, "epoll": 1000}  # connections
# The system's python: a version manager's has no Debian packages.
PYTHON = "/usr/bin/python3"


def quietly(*command, **how):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **how)


def built(name):
    """Builds a C program; returns its path, or None after printing the reason."""
    out, source = os.path.join(MADE, "bin", name), os.path.join(HERE, name + ".c")
    if os.path.exists(out) and os.path.getmtime(out) >= os.path.getmtime(source):
        return out
    os.makedirs(os.path.dirname(out), exist_ok=True)
    done = quietly("cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-o", out, source, "-pthread")
    if done.returncode:
        sys.exit("cc cannot build %s (install gcc and linux-libc-dev):\n%s" % (name, done.stdout))
    return out


def wheel():
    """A python with pyzmq's wheel, or the reason why it is unavailable."""
    python = os.path.join(MADE, "venv", "bin", "python")
    if quietly(python, "-c", "import zmq; assert zmq.has('tipc')").returncode == 0 if os.path.exists(python) else False:
        return python, None
    for command in ([PYTHON, "-m", "venv", os.path.join(MADE, "venv")], [python, "-m", "pip", "install", "-q", "pyzmq"]):
        done = quietly(*command)
        if done.returncode:
            return None, "%s failed (apt-get install python3-venv, and a package index): %s" % (" ".join(command), done.stdout.strip()[-200:])
    return python, None


def debian():
    """The environment of Debian's python3-zmq, or the reason why it is unavailable."""
    folder = os.path.join(MADE, "debian")
    if not glob.glob(os.path.join(folder, "usr/lib/python3/dist-packages/zmq/__init__.py")):
        cache = os.path.join(MADE, "debs")
        os.makedirs(cache, exist_ok=True)
        done = quietly("apt-get", "download", "-q", *DEBS, cwd=cache)
        if done.returncode:
            return None, "apt-get download %s: %s" % (" ".join(DEBS), done.stdout.strip()[-200:])
        for deb in glob.glob(os.path.join(cache, "*.deb")):
            quietly("dpkg-deb", "-x", deb, folder)
    libraries = glob.glob(os.path.join(folder, "usr/lib/*-linux-gnu"))
    path = os.path.join(folder, "usr/lib/python3/dist-packages")
    environment = {"LD_LIBRARY_PATH": ":".join(libraries), "PYTHONPATH": path}
    done = quietly(PYTHON, "-c", "import zmq; assert zmq.has('tipc')", env={**os.environ, **environment})
    return (environment, None) if done.returncode == 0 else (None, done.stdout.strip()[-200:])


def cpython():
    """A python that includes its own test suite."""
    for python in (os.path.join(MADE, "venv", "bin", "python"), "python3", PYTHON):
        if quietly(python, "-c", "import test.test_socket").returncode == 0:
            return python
    return None


class Runs:
    def __init__(self, under, verbose):
        self.under, self.verbose, self.passed, self.failed = under, verbose, 0, 0

    def run(self, name, command, limit, environment=None):
        began = time.monotonic()
        # The environment is inherited by the program under the shim.
        try:
            done = quietly(*self.under, *command, env={**os.environ, **(environment or {})}, timeout=limit, stdin=subprocess.DEVNULL)
            output, why = done.stdout, "exit code %d" % done.returncode if done.returncode else ""
        except subprocess.TimeoutExpired as late:
            output, why = (late.stdout or b"").decode(errors="replace"), "did not end within %d s" % limit
        took = time.monotonic() - began
        if why:
            self.failed += 1
            print(output[-4000:])
            print("FAILED %s: %s" % (name, why), flush=True)
        else:
            self.passed += 1
            print("ok %s, %.1f s" % (name, took), flush=True)
        return output

    def skip(self, what, why):
        print("skipped: %s: %s" % (what, why), flush=True)


def foreign(runs, library):
    """Checks the shim's cost on other descriptors: at most 50 ns a call (best of alternating runs); and instructions."""
    program = built("foreign")
    preloaded = {**os.environ, "LD_PRELOAD": library}

    def figures(environment, *args):
        lines = quietly(program, *args, env=environment).stdout.split("\n")
        return {line.split()[0]: float(line.split()[1]) for line in lines if line}
    # A core alternates between a fast and a slow state for seconds; with few rounds, one side may see only the slow
    # state.
    rounds = [(figures(os.environ), figures(preloaded)) for _ in range(21)]
    counted = figures(os.environ, "-i"), figures(preloaded, "-i")
    worst = 0.0
    for call in rounds[0][0]:
        without, under = sorted(r[0][call] for r in rounds), sorted(r[1][call] for r in rounds)
        price = under[0] - without[0]
        worst = max(worst, price)
        print("  %-10s %5.0f ns (to %.0f), shimmed %5.0f ns (to %.0f): %+4.0f ns, %+.0f instructions" % (
            call, without[0], without[-1], under[0], under[-1], price, counted[1][call] - counted[0][call]))
    if worst > 50:
        runs.failed += 1
        print("FAILED foreign: %.0f ns a call, 50 are allowed" % worst, flush=True)
    else:
        runs.passed += 1
        print("ok foreign: at most %.0f ns a call" % worst, flush=True)


def script(name):
    return os.path.join(HERE, name + ".py")


def zeromq_options(args):
    return ["--count", str(args.count), *(args.pattern or [])]


def on_one_node(args, runs, servers, interpreters):
    slow = 6 if args.kernel else 1
    runs.run("python standard library", [PYTHON, script("standard")], 60 * slow)
    tester = cpython()
    if tester:
        runs.run("python's own tests", [tester, "-m", "unittest", "test.test_socket.TIPCTest", "test.test_socket.TIPCThreadableTest"], 30 * slow)
    else:
        runs.skip("python's own tests", "no python here has its test package (apt-get install libpython3-testsuite)")
    for what, interpreter, extra, why in interpreters:
        if why:
            runs.skip(what, why)
        else:
            runs.run(what, [interpreter, script("zeromq"), *zeromq_options(args)], 150 * slow, extra)
    for kind in SERVERS:
        runs.run("server: " + kind, [servers, kind], 60 * slow)
    cost = built("cost")
    if args.cost:
        print(runs.run("cost", [cost, "--demand", str(args.cost)], 120))
        foreign(runs, os.path.join(os.path.dirname(args.utipc), "libutipc_preload.so"))
    else:
        print(runs.run("cost", [cost, "-t", "100", "-r", "1"], 60 * slow))


def on_two_nodes(args, runs, servers, interpreters):
    nodes = mixed.Nodes(args.utipc)

    def between(name, *how):
        if not args.only or args.only in name:
            mixed.between(nodes, runs, name, *how)
    between("python standard library", [PYTHON, script("across")], args.limit)
    for what, interpreter, extra, why in interpreters:
        if why:
            runs.skip(what, why)
        else:
            between(what, [interpreter, script("zeromq")], args.limit, zeromq_options(args), extra)
    for kind, connections in SERVERS.items():
        between("server: " + kind, [servers], args.limit, [kind, str(max(connections // args.part, 2))])
    if nodes.stop():
        runs.failed += 1
        print("FAILED daemon: exit code %d" % nodes.daemon.returncode)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernel", action="store_true", help="on the kernel's AF_TIPC, without the shim")
    parser.add_argument("--mixed", action="store_true", help="in the lab's machine: between a kernel node and a utipc node, in both directions")
    parser.add_argument("--utipc", default=os.path.join(ROOT, "target", "debug", "utipc"))
    parser.add_argument("--count", type=int, default=100_000, help="messages in each ZeroMQ pattern")
    parser.add_argument("--pattern", action="append", help="only this ZeroMQ pattern (req_rep, router_dealer, ...); may be repeated")
    parser.add_argument("--cost", type=float, help="fail unless TIPC is this many times better than TCP (on a quiet machine)")
    parser.add_argument("--part", type=int, default=1, help="with --mixed: divide the servers' connections by PART")
    parser.add_argument("--limit", type=int, default=120, help="with --mixed: seconds for one program in one direction")
    parser.add_argument("--only", help="with --mixed: only programs whose name contains this")
    parser.add_argument("--verbose", action="store_true", help="with --mixed: show the clients' output")
    parser.add_argument("--prepare", action="store_true", help="only build and fetch")
    args = parser.parse_args()
    runs = Runs([] if args.kernel else [args.utipc, "run", "--private", "--"], args.verbose)
    servers = built("servers")
    python, no_wheel = wheel()
    environment, no_debian = debian()
    if args.prepare:
        built("cost")
        built("foreign")
        sys.exit(0)
    interpreters = (("pyzmq's wheel", python, None, no_wheel), ("Debian's python3-zmq", PYTHON, environment, no_debian))
    (on_two_nodes if args.mixed else on_one_node)(args, runs, servers, interpreters)
    print("programs: %d passed, %d failed" % (runs.passed, runs.failed))
    sys.exit(1 if runs.failed else 0)


main()
