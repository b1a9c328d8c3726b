"""Runs conformance cases between two utipc nodes, each a daemon in a network namespace with programs under the shim:

    python3 interop/conformance/pair.py UTIPC PROGRAM [--rounds N] [NAME...]

UTIPC and PROGRAM are the paths of those programs. Needs root. A virtual Ethernet cable joins the namespaces. The cases
(default: topic `pair`) run once with an Ethernet bearer and once with a UDP bearer. The last line counts them.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

TYPE = "18999"
BEARERS = {
    "ethernet": ('media = "ethernet"\nname = "w"\n',) * 2,
    "udp": tuple('media = "udp"\nname = "w"\nlocal = "10.77.0.%d"\n' % number for number in (1, 2)),
}


def sh(*args):
    subprocess.run(args, check=True)


class Side:
    """One node: a namespace, its daemon, and the command that runs a program there."""

    def __init__(self, number, name, utipc, folder, bearer):
        self.name = name
        socket = os.path.join(folder, "%s.sock" % name)
        config = os.path.join(folder, "%s.toml" % name)
        with open(config, "w", encoding="utf-8") as text:
            text.write('[log]\nlevel = "error"\n[node]\nsocket = "%s"\naddress = "1.1.%d"\n[[bearer]]\n%s' % (socket, number, bearer))
        inside = ["ip", "netns", "exec", name]
        self.daemon = subprocess.Popen([*inside, utipc, "daemon", "--config", config])
        self.run = [*inside, "env", "UTIPC_SOCKET=" + socket, utipc, "run", "--"]
        end = time.monotonic() + 20
        while not os.path.exists(socket):
            if time.monotonic() > end or self.daemon.poll() is not None:
                raise RuntimeError("the daemon in %s does not start" % name)
            time.sleep(0.05)

    def stop(self):
        self.daemon.terminate()
        self.daemon.wait(20)


def counted(output):
    """The counts of the program's last line."""
    words = output.strip().splitlines()[-1].replace(",", "").split()
    return (int(words[1]), int(words[3])) if words[:1] == ["conformance:"] else (0, 1)


def on_bearer(media, utipc, program, args, names):
    """Runs the cases on one kind of bearer; returns (passed, failed)."""
    with tempfile.TemporaryDirectory() as folder:
        sides, helper = [], None
        try:
            for number, name in enumerate(names):
                sides.append(Side(number + 1, name, utipc, folder, BEARERS[media][number]))
            helper = subprocess.Popen([*sides[0].run, program, "--serve", TYPE], stdout=subprocess.PIPE, text=True, start_new_session=True)
            if "serving" not in helper.stdout.readline():
                raise RuntimeError("the helper does not start")
            command = [*sides[1].run, program, "--engine", "utipc", "-t", "300", "--peer", TYPE, *args]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            for line in done.stdout.splitlines():
                print("%s: %s" % (media, line), flush=True)
            return counted(done.stdout)
        finally:
            if helper:
                os.killpg(helper.pid, signal.SIGKILL)
                helper.wait()
            for side in sides:
                side.stop()


def main():
    utipc, program, *args = sys.argv[1:]
    utipc, program = os.path.abspath(utipc), os.path.abspath(program)
    if "--rounds" not in args:
        args = ["--rounds", "1000", *args]
    if len(args) == 2:
        args.append("pair")
    names = ["utipc-pair-%d-%s" % (os.getpid(), end) for end in "ab"]
    passed = failed = 0
    try:
        for name in names:
            sh("ip", "netns", "add", name)
        sh("ip", "-n", names[0], "link", "add", "w", "type", "veth", "peer", "name", "w", "netns", names[1])
        for number, name in enumerate(names):
            sh("ip", "-n", name, "addr", "add", "10.77.0.%d/24" % (number + 1), "dev", "w")
            for device in ("lo", "w"):
                sh("ip", "-n", name, "link", "set", device, "up")
            sh("ip", "-n", name, "route", "add", "224.0.0.0/4", "dev", "w")
        for media in BEARERS:
            counts = on_bearer(media, utipc, program, args, names)
            passed, failed = passed + counts[0], failed + counts[1]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)
    print("conformance: %d passed, %d failed" % (passed, failed))
    sys.exit(1 if failed or not passed else 0)


main()
