"""The environment of a row: processes with their output, ports, and the chain of our programs between two stock ones."""

import glob
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
FILES = ("RDMFieldDictionary", "enumtype.def", "MsgData.xml", "350k.xml")
CHAINS = ("direct", "p2ps", "lan")


class Failed(Exception):
    """A condition of a row does not hold."""


class Missing(Exception):
    """A program that a row needs is missing."""


def check(holds, what):
    if not holds:
        raise Failed(what)


def target():
    """The folder of our built programs."""
    return os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target")


class Process:
    """A running program and its output so far."""

    def __init__(self, name, command, folder, env=None):
        self.name, self.log = name, os.path.join(folder, name + ".log")
        self._text, self._changed = [], threading.Condition()
        out = subprocess.PIPE
        self._process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self):
        return self._process.pid

    def _read(self):
        with open(self.log, "wb") as log:
            while chunk := self._process.stdout.read1(65536):
                log.write(chunk)
                with self._changed:
                    self._text.append(chunk.decode("utf-8", "replace"))
                    self._changed.notify_all()
        with self._changed:
            self._text.append("")
            self._changed.notify_all()

    def text(self):
        with self._changed:
            self._text = ["".join(self._text)]
            return self._text[0]

    def count(self, pattern):
        return len(re.findall(pattern, self.text(), re.M))

    def until(self, pattern, seconds=15, times=1):
        """Waits until the output has `pattern` this many times."""
        end = time.monotonic() + seconds
        while self.count(pattern) < times:
            with self._changed:
                over = not self._reader.is_alive()
                if not over:
                    self._changed.wait(max(0.0, min(0.2, end - time.monotonic())))
            if self.count(pattern) >= times:
                break
            check(not over, "%s ended (%s) before it printed %r %d times" % (self.name, self._process.poll(), pattern, times))
            check(time.monotonic() < end, "%s printed %r %d times in %d s, not %d" % (self.name, pattern, self.count(pattern), seconds, times))
        return self

    def wait(self, seconds):
        """Waits until the process ends and returns its exit code."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed("%s is still running after %d s" % (self.name, seconds)) from None
        self._reader.join(5)
        return code

    def alive(self):
        return self._process.poll() is None

    def end(self, with_signal=signal.SIGTERM):
        """Ends the process group with a signal, and with SIGKILL if it is still running after two seconds."""
        for number in (with_signal, signal.SIGKILL):
            if self._process.poll() is None:
                try:
                    os.killpg(self._process.pid, number)
                    self._process.wait(2)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass
        self._reader.join(2)

    def cpu(self):
        """Seconds of user and system time so far."""
        with open("/proc/%d/stat" % self.pid, encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Stage:
    """The processes of one row in their own folder, over one chain: stock programs directly, or ours between them."""

    def __init__(self, binaries, chain, folder):
        self.binaries, self.chain, self.folder = binaries, chain, folder
        self.processes, self._port, self.figures = [], 15000, {}
        self._home = tempfile.mkdtemp(prefix="rssl-")

    def port(self):
        self._port += 1
        return self._port

    def _folder(self, name, files):
        """Creates the folder in which a program runs, with links to the vendor's files."""
        folder = os.path.join(self.folder, name)
        os.makedirs(folder, exist_ok=True)
        for file in files:
            source, link = os.path.join(self.binaries, file), os.path.join(folder, file)
            if not os.path.exists(source):
                raise Missing("no %s in %s" % (file, self.binaries))
            if not os.path.lexists(link):
                os.symlink(source, link)
        return folder

    def _start(self, name, command, files=(), env=None, config=None):
        name = "%s-%d" % (name, len(self.processes) + 1)
        folder = self._folder(name, files)
        if config:
            with open(os.path.join(folder, "EmaConfig.xml"), "w", encoding="utf-8") as file:
                file.write(config)
        process = Process(name, command, folder, env)
        self.processes.append(process)
        return process

    def stock(self, name, *arguments, files=FILES, ready=None, seconds=20, config=None):
        """Starts one of the vendor's programs. `ready`: output to wait for; `config`: content of its EmaConfig.xml."""
        path = os.path.join(self.binaries, name)
        if not os.access(path, os.X_OK):
            raise Missing("no program %s in %s" % (name, self.binaries))
        # C buffers output to a pipe in whole pages: make it write lines.
        process = self._start(name, ["stdbuf", "-oL", path, *map(str, arguments)], files, config=config)
        return process.until(ready, seconds) if ready else process

    def java(self, name, main, *arguments, files=FILES, ready=None, seconds=40):
        """Starts one of the vendor's Java programs, from the jars in `java` and `java/lib`."""
        jars = os.path.join(self.binaries, "java")
        if not glob.glob(os.path.join(jars, "*.jar")) or not shutil.which("java"):
            raise Missing("no java, or no jars in %s" % jars)
        path = ":".join([os.path.join(jars, "*"), os.path.join(jars, "lib", "*")])
        process = self._start(name, ["java", "-Xmx512m", "-cp", path, main, *map(str, arguments)], files)
        return process.until(ready, seconds) if ready else process

    def ours(self, name, *arguments, ready=None, seconds=20):
        """Starts the newest build of one of our programs."""
        built = [os.path.join(target(), kind, name) for kind in ("release", "debug")]
        path = max((p for p in built if os.access(p, os.X_OK)), key=os.path.getmtime, default=None)
        if path is None:
            raise Missing("no %s in target/release: cargo build --release -p mdist -p mdist-load -p utipc-tools" % name)
        env = dict(os.environ, XDG_RUNTIME_DIR=self._home, UTIPC_LOG="info")
        process = self._start(name, [path, *map(str, arguments)], (), env)
        return process.until(ready, seconds) if ready else process

    def ends(self, consumer=None, provider=None):
        """The ports where the provider listens and where consumers connect: the same in the direct chain."""
        if self.chain == "direct":
            check(not (consumer and provider) or consumer == provider, "the direct chain has one port, not two")
            port = consumer or provider or self.port()
            return port, port
        return provider or self.port(), consumer or self.port()

    def record(self):
        """Records all packets of the row."""
        path = os.path.join(self.folder, "packets.pcap")
        self._start("tcpdump", ["tcpdump", "-Z", "root", "-i", "lo", "-U", "-w", path, "tcp"]).until("listening on", 10)

    def between(self, providers, port, cache=True, accept=None, apart=False):
        """Starts our programs between providers that listen on these ports and consumers that connect to `port`.

        `accept` is a port for publishers that connect. Nothing is started in the direct chain.
        """
        if self.chain == "direct":
            return
        lan = self.chain == "lan" or accept
        # `apart`: each is a separate upstream; otherwise the later ones are alternatives to the first.
        hosts = ['"127.0.0.1:%d"' % p for p in providers]
        hosts = hosts if apart else [", ".join(hosts)][: len(hosts)]
        files = ["fields", "enums"], FILES[:2]
        settings = ["[dictionary]"] + ['%s = "%s"' % (k, os.path.join(self.binaries, f)) for k, f in zip(*files)]
        settings += ["[p2ps]", 'listen = ["127.0.0.1:%d"]' % port, "posts = true", "cache = %s" % str(cache).lower()]
        for each in ["backbone"] if lan else hosts:
            settings += ["[[p2ps.upstream]]", *(['kind = "backbone"'] if lan else ['kind = "provider"', "hosts = [%s]" % each])]
        settings += ["[src-dist]", "listen = [%s]" % ('"127.0.0.1:%d"' % accept if accept else ""), 'posts = "cache"', "[src-dist.defaults]", "cache = %s" % str(cache).lower()]
        for each in hosts:
            settings += ["[[src-dist.provider]]", "hosts = [%s]" % each]
        path = os.path.join(self.folder, "settings.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(settings) + "\n")
        if lan:
            os.makedirs(os.path.join(self._home, "utipc"), mode=0o700, exist_ok=True)
            self.ours("utipcd", "--socket", os.path.join(self._home, "utipc", "default.sock"), ready="programs may attach")
            self.src_dist = self.ours("src_dist", "--config", path)
            if accept:
                self.listening(accept, self.src_dist)
        self.p2ps = self.ours("p2ps", "--config", path)
        self.listening(port, self.p2ps)

    @staticmethod
    def listening(port, process, seconds=20):
        """Waits until a socket listens on `port`."""
        end, wanted = time.monotonic() + seconds, ":%04X" % port
        while True:
            for table in ("/proc/net/tcp", "/proc/net/tcp6"):
                with open(table, encoding="ascii") as sockets:
                    rows = [line.split() for line in sockets]
                if any(r[1].endswith(wanted) and r[3] == "0A" for r in rows[1:]):
                    return
            check(process.alive(), "%s ended before it listened on port %d" % (process.name, port))
            check(time.monotonic() < end, "%s does not listen on port %d" % (process.name, port))
            time.sleep(0.02)

    def close(self):
        for process in reversed(self.processes):
            process.end()
        shutil.rmtree(self._home, ignore_errors=True)
