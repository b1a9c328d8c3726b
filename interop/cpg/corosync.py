"""Corosync's test programs and packages, found or downloaded below a folder, and programs whose lines are read as they
come. Nothing is installed."""

import atexit
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time

# The variable that names a folder with Corosync's sources.
VARIABLE = "UTIPC_COROSYNC"
# Headers and libraries that the programs are compiled and linked with. They run with our library.
PACKAGES = "libcpg-dev libcpg4 libcorosync-common-dev libcorosync-common4 libqb-dev libqb100 zlib1g-dev zlib1g"
# How long a program may take to print a line, seconds; far above the normal time on a loaded machine.
LIMIT = 60

running = []


@atexit.register
def kill_all():
    for program in running:
        program.child.kill()
    for program in running:
        program.child.wait()


class Failed(Exception):
    """A check that failed, or a command."""


def check(good, *why):
    if not good:
        raise Failed(" ".join(str(part) for part in why))


def run(*words, **options):
    """Runs a command; returns what it prints."""
    words = [str(word) for word in words]
    out = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", **options)
    check(out.returncode == 0, " ".join(words), "failed:", out.stderr.strip())
    return out.stdout


def unpack(packages, into):
    """Downloads Debian packages and unpacks them. `into` appears when it is complete."""
    debs, half = (into.with_name(into.name + end) for end in (".debs", ".half"))
    debs.mkdir(parents=True, exist_ok=True)
    print("cpg: downloading", packages, file=sys.stderr)
    try:
        run("apt-get", "download", "-qq", *packages.split(), cwd=debs)
    except Failed as why:
        raise Failed("download Debian packages (apt-get update; set up for Debian 12): %s" % why) from None
    for deb in sorted(debs.glob("*.deb")):
        run("dpkg-deb", "-x", deb, half)
    half.rename(into)


def download_sources(place):
    """Downloads and unpacks the sources of Debian's package, which apt checks."""
    unpacked = place / "corosync"
    if unpacked.exists():
        return unpacked
    for folder in ("lists/partial", "cache/archives/partial"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    release = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().split("\n") if "=" in line)
    check("VERSION_CODENAME" in release, "this system has no code name (set up for Debian)")
    key = "/usr/share/keyrings/debian-archive-keyring.gpg"
    code = release["VERSION_CODENAME"]
    (place / "sources.list").write_text("deb-src [signed-by=%s] http://deb.debian.org/debian %s main\n" % (key, code))
    print("cpg: downloading Corosync's sources", flush=True)
    parts = {"Dir::Etc::sourcelist": "sources.list", "Dir::Etc::sourceparts": "none", "Dir::State::Lists": "lists", "Dir::Cache": "cache"}
    options = [word for part, path in parts.items() for word in ("-o", "%s=%s" % (part, place / path))]
    run("apt-get", "-qq", *options, "update", cwd=place)
    # Without the signature of the archive, which mirrors may lack. apt checks its hash.
    run("apt-get", "-qq", *options, "source", "--download-only", "--tar-only", "corosync", cwd=place)
    archives = sorted(place.glob("*.orig.tar.*"))
    check(archives, "apt-get source left no archive")
    half = place / "half"
    half.mkdir(exist_ok=True)
    run("tar", "--strip-components=1", "-xf", archives[0], "-C", half)
    half.rename(unpacked)
    return unpacked


def libraries(system):
    """The folders with libraries below an unpacked system."""
    folders = [folder for lib in ("usr/lib", "lib") for folder in sorted((system / lib).glob("*-linux-gnu"))]
    check(folders, system, "has no libraries")
    return folders


def joined(folders):
    return ":".join(str(folder) for folder in folders)


def compile_program(source, program, includes, system, *words):
    """Compiles a program, linked to Corosync's library."""
    program.parent.mkdir(parents=True, exist_ok=True)
    folders = libraries(system)
    links = [word for folder in folders for word in ("-L%s" % folder, "-Wl,-rpath-link,%s" % folder)]
    run("cc", "-O2", "-pthread", "-o", program, source, *("-I%s" % include for include in includes), *links, *words)
    return program


class Program:
    """A running program."""

    def __init__(self, words, env=None, of_errors=False):
        """Starts it; `of_errors`: its standard error is read instead of its standard output."""
        words = [str(word) for word in words]
        self.name = words[0] if of_errors else words[-1]
        output = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE} if of_errors else {"stdout": subprocess.PIPE}
        # Lines come when they are written, not at the end.
        self.child = subprocess.Popen(["stdbuf", "-oL", *words], stdin=subprocess.PIPE, env=env, **output)
        self.lines, self.seen = queue.Queue(), []
        threading.Thread(target=self._read, args=(self.child.stderr if of_errors else self.child.stdout,), daemon=True).start()
        running.append(self)

    def _read(self, stream):
        # Messages are not always text.
        for line in stream:
            self.lines.put(line.decode(errors="replace").rstrip())
        self.lines.put(None)

    def _next(self, end):
        try:
            line = self.lines.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            raise Failed("no more lines after\n%s" % self.text()) from None
        if line is not None:
            self.seen.append(line)
        return line

    def text(self):
        return "\n".join(self.seen)

    def wait_for(self, is_right, what):
        """The next line that `is_right` accepts."""
        end = time.monotonic() + LIMIT
        while True:
            line = self._next(end)
            check(line is not None, "it ended without", what, "\n" + self.text())
            if is_right(line):
                return line

    def line_with(self, text):
        return self.wait_for(lambda line: text in line, text)

    def words_of(self, word):
        """The words of the next line that begins with this one."""
        return self.wait_for(lambda line: line.split()[:1] == [word], word).split()

    def tell(self, line):
        self.child.stdin.write(line.encode() + b"\n")
        self.child.stdin.flush()

    def finish(self, seconds):
        """Waits until it exits successfully; returns all that it has printed."""
        end = time.monotonic() + seconds
        while self._next(end) is not None:
            pass
        code = self.child.wait(max(0.1, end - time.monotonic()))
        check(code == 0, "exit code", code, "\n" + self.text())
        return self.text()


def start_daemon(command, env=None):
    """Starts a `utipcd`, and waits until programs may attach."""
    daemon = Program(command, env=dict(env or os.environ, UTIPC_LOG="info"), of_errors=True)
    daemon.line_with("programs may attach")
    return daemon
