"""The programs between a kernel node and a utipc node, in the lab's machine, in both directions."""

import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "matrix"))
from net import Network, until  # noqa: E402

CONFIG = """[node]
socket = "/run/mixed.sock"
[[bearer]]
media = "ethernet"
name = "w"
"""
# Service types; each run of a program gets a hundred.
FIRST_TYPE = 30_000


class Nodes:
    """Namespace a is a kernel node; in namespace b a daemon serves programs under the shim."""

    def __init__(self, utipc):
        net = Network()
        path = "/run/mixed.toml"
        with open(path, "w", encoding="utf-8") as config:
            config.write(CONFIG)
        subprocess.run(["ip", "netns", "exec", net.a, "tipc", "bearer", "enable", "media", "eth", "device", "w"], check=True)
        self.daemon = subprocess.Popen(["ip", "netns", "exec", net.b, utipc, "daemon", "--config", path])
        self.kernel = ["ip", "netns", "exec", net.a]
        self.shim = ["ip", "netns", "exec", net.b, "env", "UTIPC_SOCKET=/run/mixed.sock", utipc, "run", "--"]
        self.types = FIRST_TYPE
        until("the daemon's socket", 20, lambda: os.path.exists("/run/mixed.sock"))
        links = self.kernel + ["tipc", "link", "list"]
        until("the link between the nodes", 20, lambda: ": up" in subprocess.run(links, capture_output=True, text=True, check=True).stdout)

    def stop(self):
        self.daemon.terminate()
        return self.daemon.wait(20)


def started(command, environment):
    # A separate process group, which is killed if the program fails.
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", stdin=subprocess.DEVNULL,
                            env={**os.environ, **(environment or {})}, start_new_session=True)


def ended(process, limit):
    """Returns (output, how its end was wrong)."""
    why = ""
    try:
        output, _ = process.communicate(timeout=limit)
        if process.returncode:
            why = "exit code %d" % process.returncode
    except subprocess.TimeoutExpired:
        why = "did not end within %d s" % limit
        killed(process)
        output, _ = process.communicate()
    return output, why


def killed(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def between(nodes, runs, name, command, limit, options=(), environment=None):
    """Runs COMMAND --serve TYPE on one node and COMMAND --peer TYPE on the other, in both directions."""
    for ends, serving, asking in (("server on the kernel", nodes.kernel, nodes.shim), ("server under the shim", nodes.shim, nodes.kernel)):
        began = time.monotonic()
        nodes.types += 100
        server = started([*serving, *command, "--serve", str(nodes.types), *options], environment)
        client = started([*asking, *command, "--peer", str(nodes.types), *options], environment)
        output, why = ended(client, limit)
        if why:
            killed(server)
        served, wrong = ended(server, 20)
        took = time.monotonic() - began
        if why or wrong:
            runs.failed += 1
            print(served[-4000:], output[-4000:], sep="---- the client:\n")
            why = why and "client: " + why
            print("FAILED %s, %s: %s" % (name, ends, why or "server: " + wrong), flush=True)
        else:
            runs.passed += 1
            print("ok %s, %s, %.1f s" % (name, ends, took), flush=True)
            if runs.verbose:
                print(output, flush=True)
