"""Demo and benchmark on the kernel engine. They make their own namespaces and run without a peer."""

import json
import os
import subprocess
import time

FEW = ["--json", "--rounds", "1", "--messages", "40"]
KINDS = ["--kind", "rdm,seqpacket,stream"]
# Arguments of `utipc bench`, and the number of lines about the kernel's TIPC that they print.
BENCH = [
    (["latency", "--transport", "utipc,tcp"] + KINDS, 3),
    (["throughput", "--size", "65536", "--transport", "utipc"] + KINDS, 3),
    (["cpu", "--transport", "utipc"], 1),
    (["multicast", "--receivers", "3", "--transport", "utipc"], 1),
    (["pairs", "--pairs", "2", "--size", "64", "--transport", "utipc"], 1),
    (["sizes", "--size", "1416,1417", "--transport", "utipc"], 2),
    (["latency", "--scope", "inter", "--transport", "kernel-tipc"], 1),
]
# Features that a kernel node lacks: arguments, and a part of the error message.
REFUSED = [(["targets"], "the targets do not apply to the kernel"), (["sizes", "--transport", "utipc"], "no link to itself")]


def called(program, words, seconds):
    """Runs a program on the kernel engine; returns exit code and output."""
    began = time.monotonic()
    done = subprocess.run([program] + words, capture_output=True, text=True, check=False, timeout=seconds,
                          stdin=subprocess.DEVNULL, env=dict(os.environ, UTIPC_ENGINE="kernel"))
    return done.returncode, done.stdout, done.stderr, time.monotonic() - began


def demo(program):
    code, out, err, _ = called(program, ["demo"], 60)
    assert code == 0 and out.rstrip().endswith("demo: ok"), "code %d: %s" % (code, (err or out)[-600:])
    assert "the kernel's node 1001002" in out and "I am alone" in out, out[-600:]
    return 3, ["%d lines" % len(out.splitlines())]


def figures(words, wanted, out):
    lines = [json.loads(line) for line in out.splitlines()]
    own = [line for line in lines if line["transport"] == "kernel-tipc"]
    assert len(own) == wanted, "%s: %d lines instead of %d: %s" % (words, len(own), wanted, out)
    assert not any(line["transport"] == "utipc" for line in lines), "%s: a node that is not the kernel's" % words
    for line in own:
        figure = line["rtt_us"]["p50"] if words[0] == "latency" else line["msgs_per_s"]
        assert figure > 0, line
    return len(own)


def bench(program):
    checks, notes = 0, []
    for words, wanted in BENCH:
        code, out, err, took = called(program, ["bench"] + words + FEW, 60)
        assert code == 0, "bench %s: code %d: %s" % (" ".join(words), code, err[-600:])
        checks += figures(words, wanted, out)
        if "inter" in words:
            assert "no packet crosses the cable" in err, err
        notes.append("%s %.0f s" % (words[0], took))
    code, out, err, _ = called(program, ["bench", "node", "--json", "--rounds", "1", "--bindings", "200"], 60)
    assert code == 0, "bench node: code %d: %s" % (code, err[-600:])
    said = {line["test"]: line for line in map(json.loads, out.splitlines())}
    assert "not_measured" in said["link-up"] and "not_measured" in said["idle-memory"] and said["lookup"]["ns"] > 0, out
    checks += 3
    for words, why in REFUSED:
        engine = ["--engine", "kernel"] if words[0] == "targets" else []
        code, _, err, _ = called(program, ["bench"] + words + engine, 60)
        assert code != 0 and why in err, "bench %s: code %d: %s" % (" ".join(words), code, err[-600:])
        checks += 1
    return checks, notes


PROGRAMS = {"demo": demo, "bench": bench}


def run(name, program):
    """The result of one program, in the form of the matrix's rows."""
    began, failure, checks, notes = time.monotonic(), None, 0, []
    try:
        checks, notes = PROGRAMS[name](program)
    except (AssertionError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
        failure = "%s: %s" % (type(error).__name__, error)
    took = time.monotonic() - began
    print("%-6s %-38s %6.1f s %4d checks  %s" % ("ok" if failure is None else "FAILED", name + "/kernel-engine", took, checks,
          failure or ", ".join(notes)), flush=True)
    return {"row": name + "/kernel-engine", "seconds": round(took, 1), "failure": failure, "checks": checks, "notes": notes}
