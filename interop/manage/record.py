"""Shows the same state of kernel nodes by iproute2's `tipc` and, if given, by `utipc` on the kernel engine.

    cargo xtask lab run -o DIR interop/manage/record.py [/path/to/utipc]

Writes the output of `tipc` to $OUT/kernel/NAME.txt for each case of cases.txt, and that of utipc to
$OUT/utipc/NAME.txt. A case that changes something is run with utipc if it is given, so that both programs are tested.
"""

import os
import pathlib
import socket as S
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "matrix"))

import net  # noqa: E402
import peer  # noqa: E402

LOCAL, PEER, OTHER = "10.0.0.2", "10.0.0.1", "10.0.0.3"
CHANGES = {"set", "enable", "disable", "add", "remove", "reset"}


def run(program, args):
    done = subprocess.run([*program, *args], capture_output=True, text=True, check=False)
    return done.stdout, done.stderr, done.returncode


class Stage:
    """Two kernel nodes; the thread is in b's namespace when it queries."""

    def __init__(self):
        self.net = net.Network()
        peer.enter(self.net.a)
        for words in ("node set clusterid 4712", "node set identity alpha",
                      "bearer enable media udp name U localip " + PEER):
            out, err, code = run(["tipc"], words.split())
            assert code == 0, err + out
        peer.enter(self.net.b)
        self.open_sockets = []

    def links(self):
        lines = run(["tipc"], ["link", "list"])[0].splitlines()
        return [line.rsplit(":", 1) for line in lines if not line.startswith("broadcast-link")]

    def up(self):
        net.until("the link is up", 60, lambda: any(state.strip() == "up" for _, state in self.links()))
        self.link = self.links()[0][0]

    def sockets(self):
        peer.enter(self.net.a)
        server = S.socket(S.AF_TIPC, S.SOCK_SEQPACKET)
        server.bind((S.TIPC_ADDR_NAMESEQ, 3000, 1, 1, 2))
        server.listen()
        peer.enter(self.net.b)
        rdm = S.socket(S.AF_TIPC, S.SOCK_RDM)
        rdm.bind((S.TIPC_ADDR_NAMESEQ, 1000, 1, 10, 2))
        rdm.bind((S.TIPC_ADDR_NAMESEQ, 1000, 20, 20, 3))
        listener = S.socket(S.AF_TIPC, S.SOCK_STREAM)
        listener.bind((S.TIPC_ADDR_NAMESEQ, 2000, 5, 5, 2))
        listener.listen()
        connected = S.socket(S.AF_TIPC, S.SOCK_SEQPACKET)
        names = lambda: run(["tipc"], ["nametable", "show"])[0]
        net.until("the peer's service is known", 30, lambda: "3000" in names())
        connected.setblocking(False)
        connected.connect_ex((S.TIPC_ADDR_NAME, 3000, 1, 0, 2))     # it is connected when the server accepts
        self.open_sockets += [server, rdm, listener, connected, server.accept()[0]]
        net.until("the connection is there", 30, lambda: "connected" in run(["tipc"], ["socket", "list"])[0])

    def peer_off(self):
        for open_socket in self.open_sockets:
            open_socket.close()
        peer.enter(self.net.a)
        run(["tipc"], "bearer disable media udp name U".split())
        peer.enter(self.net.b)
        net.until("the link is down", 60, lambda: any(state.strip() == "down" for _, state in self.links()))


def main():
    out = pathlib.Path(os.environ.get("OUT", "/lab/out"))
    utipc = sys.argv[1] if len(sys.argv) > 1 else None
    stage, wrong = Stage(), 0
    for line in (HERE / "cases.txt").read_text().splitlines():
        if line.startswith("@"):
            {"@up": stage.up, "@sockets": stage.sockets, "@peer-off": stage.peer_off}[line]()
        elif line and not line.startswith("#"):
            name, how, *args = line.split()
            words = {"LOCAL": LOCAL, "PEER": PEER, "OTHER": OTHER, "LINK": getattr(stage, "link", "LINK")}
            args = [words.get(arg, arg) for arg in args]
            ours = [utipc, "--engine", "kernel"]
            who = [("utipc", ours)] if utipc and CHANGES & set(args) and how != "fails" else [("kernel", ["tipc"])]
            who += [("utipc", ours)] if utipc and who[0][0] == "kernel" else []
            for label, program in who:
                text, err, code = run(program, args)
                if (code != 0) != (how == "fails"):
                    print("%s by %s: exit code %d: %s" % (name, label, code, err.strip()))
                    wrong += 1
                folder = out / label
                folder.mkdir(parents=True, exist_ok=True)
                (folder / (name + ".txt")).write_text(text)
                if label == "kernel" and how == "fails":
                    (folder / (name + ".err")).write_text(err)
    print("record: %s" % ("ok" if not wrong else "%d cases ended unexpectedly" % wrong))
    return 1 if wrong else 0


sys.exit(main())
