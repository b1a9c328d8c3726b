#!/usr/bin/env python3
"""Measures what `utipc proxy` costs: TCP through two proxies and utipc, beside plain TCP, in turn in one run.

bench/proxy/proxy.py [--utipc target/release/utipc] [--runs 5] [--rounds 5000] [--mebibytes 256] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def port_of(proxy: subprocess.Popen[str]) -> str:
    """The port of a proxy that listens on TCP, when its listening socket is open."""
    port = ""
    assert proxy.stderr is not None
    for line in proxy.stderr:
        if " leads to " in line:
            port = line.split(" leads to ")[0].rsplit(":", 1)[1]
        if " is open" in line:
            return port
    raise SystemExit("the proxy has ended (see its message above)")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--utipc", default=str(HERE.parents[1] / "target/release/utipc"))
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--rounds", type=int, default=5000)
    options.add_argument("--mebibytes", type=int, default=256)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ends = f"{folder}/ends"
        subprocess.run(["cc", "-O2", "-pthread", "-o", ends, str(HERE / "ends.c")], check=True)
        Path(folder, "run").mkdir(mode=0o700)
        environment = {**os.environ, "XDG_RUNTIME_DIR": f"{folder}/run", "UTIPC_LOG": "utipc::proxy=info"}
        environment.pop("UTIPC_SOCKET", None)
        running: list[subprocess.Popen[str]] = []

        def start(*words: str) -> subprocess.Popen[str]:
            running.append(
                subprocess.Popen(
                    words, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
            )
            return running[-1]

        try:
            server = start(ends, "serve")
            assert server.stdout is not None
            plain = server.stdout.readline().strip()
            daemon = start(str(Path(given.utipc).parent / "utipcd"), "--socket", f"{folder}/run/d.sock")
            while not Path(folder, "run/d.sock").exists() and daemon.poll() is None:
                pass
            environment["UTIPC_SOCKET"] = f"{folder}/run/d.sock"
            inner = start(given.utipc, "proxy", "--listen", "service:6900:1", "--connect", f"tcp:127.0.0.1:{plain}")
            port_of(inner)
            outer = start(given.utipc, "proxy", "--listen", "tcp:127.0.0.1:0", "--connect", "service:6900:1")
            ports = {"tcp": plain, "proxy": port_of(outer)}
            found: dict[str, dict[str, list[float]]] = {}
            for test, amount in (("latency", given.rounds), ("throughput", given.mebibytes)):
                found[test] = {name: [] for name in ports}
                for _ in range(given.runs):
                    for name, port in ports.items():
                        out = subprocess.run([ends, test, port, str(amount)], check=True, capture_output=True, text=True)
                        found[test][name].append(float(out.stdout))
        finally:
            for process in reversed(running):
                process.terminate()
                process.wait()
    for test, unit in (("latency", "us"), ("throughput", "MiB/s")):
        median = {name: statistics.median(values) for name, values in found[test].items()}
        ratio = median["proxy"] / median["tcp"]
        if given.json:
            print(json.dumps({"test": f"proxy-{test}", "unit": unit, **median, "ratio": round(ratio, 3)}))
        else:
            print(f"{test}: TCP {median['tcp']:.1f} {unit}, through two proxies {median['proxy']:.1f} {unit}, x {ratio:.2f}")


if __name__ == "__main__":
    main()
