"""Runs the conformance cases on two nodes in the lab's machine:
cargo xtask lab run -t 400 interop/conformance/run.py PROGRAM [OPTION...]

Namespace a is a kernel node with the helper. In namespace b the cases run: on another kernel node, or, with --under
UTIPC (the path of that program), under the shim. Other options and names are the program's.
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "matrix"))
from net import Network  # noqa: E402

TYPE = "18999"
CONFIG = """[[bearer]]
media = "ethernet"
name = "w"
"""


def node(name):
    return ["ip", "netns", "exec", name]


def main():
    args = sys.argv[1:]
    under = []
    if "--under" in args:
        at = args.index("--under")
        utipc = args[at + 1]
        del args[at:at + 2]
        with open("/run/conformance.toml", "w", encoding="utf-8") as config:
            config.write(CONFIG)
        under = [utipc, "run", "--private", "--config", "/run/conformance.toml", "--"]
    program = os.path.abspath(args.pop(0))
    net = Network()
    subprocess.run(node(net.a) + ["tipc", "bearer", "enable", "media", "eth", "device", "w"], check=True)
    if not under:
        subprocess.run(node(net.b) + ["tipc", "bearer", "enable", "media", "eth", "device", "w"], check=True)
    helper = subprocess.Popen(node(net.a) + [program, "--serve", TYPE], stdout=subprocess.PIPE)
    if b"serving" not in helper.stdout.readline():
        sys.exit("the helper does not start")
    lose, restore = ["ip -n %s link set p1 %s" % (net.m, word) for word in ("down", "up")]
    command = node(net.b) + under + [program, "--engine", "utipc" if under else "kernel", "--peer", TYPE]
    code = subprocess.run(command + ["--lose", lose, "--restore", restore] + args, check=False).returncode
    helper.kill()
    sys.exit(code)


main()
