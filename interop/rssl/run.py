"""Runs the vendor's programs against ours.

    python3 interop/rssl/run.py --bin DIR [--only NAME[/CHAIN]]... [--chain CHAIN] [--build] [--json FILE] [--pcap] [--list]

DIR has the stock programs listed in README.md. Prints one line per row and chain, then `rssl-stock: P passed, F failed`; the output of
every program is in target/rssl-stock/ROW-CHAIN. Everything runs in a separate network namespace, so all ports are free.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time

import rows  # noqa: F401  (each module registers its rows)
import rows_ema  # noqa: F401
import rows_more  # noqa: F401
import rows_perf  # noqa: F401
import rows_publish  # noqa: F401
from rows import ROWS
from stage import CHAINS, ROOT, Failed, Missing, Stage

OUT = os.path.join(ROOT, "target", "rssl-stock")


def enter_namespace(program):
    """Restarts this program in a separate network namespace."""
    if os.environ.get("RSSL_STOCK_ALONE") == "1":
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    os.environ["RSSL_STOCK_ALONE"] = "1"
    # tcpdump of root changes its group, which a user namespace does not allow.
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = ["unshare", *user, "--net", sys.executable, os.path.abspath(program), *sys.argv[1:]]
    os.execvp(command[0], command)


def run_row(name, chain, binaries, pcap):
    """Runs one row; returns its result, a reason, and its figures."""
    function, _, _, seconds = ROWS[name]
    folder = os.path.join(OUT, "%s-%s" % (name, chain))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    stage = Stage(binaries, chain, folder)
    stage.seconds = seconds
    try:
        if pcap:
            stage.record()
        function(stage)
        broken = [p.name for p in stage.processes if p.text().count("panicked at")]
        return ("failed", "panic in " + ", ".join(broken), stage.figures) if broken else ("passed", "", stage.figures)
    except Failed as reason:
        return "failed", str(reason), stage.figures
    except Missing as reason:
        return "skipped", str(reason), stage.figures
    finally:
        stage.close()


def selected(only, chain):
    """Selected pairs of row and chain."""
    for name, (_, chains, direct, _) in ROWS.items():
        for row_chain in (("direct",) if direct else ()) + tuple(chains):
            named = not only or name in only or "%s/%s" % (name, row_chain) in only
            # The direct chain runs on request only: it does not test our programs.
            wanted = row_chain == chain if chain else row_chain != "direct" or "%s/%s" % (name, row_chain) in only
            if named and wanted:
                yield name, row_chain


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.environ.get("UTIPC_RTSDK_BIN"), help="folder of the stock programs (or UTIPC_RTSDK_BIN)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME[/CHAIN]")
    parser.add_argument("--chain", choices=CHAINS, help="only over this chain; `direct`: the stock pair alone")
    parser.add_argument("--json", metavar="FILE", help="write results and figures")
    parser.add_argument("--pcap", action="store_true", help="record each row's packets (tcpdump)")
    parser.add_argument("--build", action="store_true", help="build our programs first")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    pairs = list(selected(args.only, args.chain))
    if args.list:
        for name in dict.fromkeys(name for name, _ in pairs):
            print("%-18s %-16s %s" % (name, " ".join(c for n, c in pairs if n == name), ROWS[name][0].__doc__.split("\n")[0]))
        return 0
    if not args.bin or not os.path.isdir(args.bin):
        sys.exit("no folder of stock programs: --bin DIR or UTIPC_RTSDK_BIN (interop/rssl/README.md)")
    if not pairs:
        sys.exit("unknown row: %s (see --list)" % ", ".join(args.only))
    if args.build and os.environ.get("RSSL_STOCK_ALONE") != "1":
        command = [os.environ.get("CARGO", "cargo"), "build", "--quiet", "--release", "-p", "mdist", "-p", "mdist-load", "-p", "utipc-tools"]
        subprocess.run(command, cwd=ROOT, check=True)
    enter_namespace(__file__)
    results = []
    for name, chain in pairs:
        begin = time.monotonic()
        result, reason, figures = run_row(name, chain, os.path.abspath(args.bin), args.pcap)
        took = time.monotonic() - begin
        shown = " ".join("%s=%s" % f for f in figures.items())
        print("%-8s%-30s %5.1f s  %s%s" % (result, name + "/" + chain, took, shown, ("  " if shown else "") + reason), flush=True)
        if result == "skipped":
            print("skipped: %s/%s: %s" % (name, chain, reason), file=sys.stderr)
        results.append({"row": name, "chain": chain, "result": result, "why": reason, "seconds": round(took, 1), "figures": figures})
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    counts = {kind: sum(r["result"] == kind for r in results) for kind in ("passed", "failed")}
    print("rssl-stock: %d passed, %d failed" % (counts["passed"], counts["failed"]))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
