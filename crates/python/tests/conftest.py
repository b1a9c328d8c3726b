"""Fixtures: a test that uses a node runs on each engine of this run.

The daemon comes from the program that UTIPC_TEST_DAEMON names; without it those tests are skipped. With
UTIPC_TEST_ENGINES=kernel the tests run on the kernel's own TIPC.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Callable, Iterator

import pytest
import utipc

#: Far longer than anything takes on a loaded machine.
LIMIT = 30.0

ENGINES = os.environ.get("UTIPC_TEST_ENGINES", "embedded,daemon").split(",")
# A shell starts programs in the background with SIGINT ignored; then nothing would interrupt a call.
signal.signal(signal.SIGINT, signal.default_int_handler)

_NUMBERS = itertools.count(os.getpid() * 1000 % 1_000_000_000 + 100)

Opener = Callable[[], utipc.Node]


@pytest.fixture
def service() -> utipc.ServiceAddress:
    """A service address with a type that no other test uses."""
    return utipc.ServiceAddress(next(_NUMBERS), 17)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Separates the test from nodes and daemons of this user."""
    home = tmp_path / "run"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    for name in ("UTIPC_SOCKET", "UTIPC_ENGINE", "UTIPC_INSTANCE"):
        monkeypatch.delenv(name, raising=False)


def is_ready(socket: Path) -> bool:
    """Whether a daemon accepts programs, which is slightly later than its socket appears."""
    try:
        utipc.Node(daemon=socket).close()
    except utipc.Unreachable:
        return False
    return True


@contextlib.contextmanager
def serving(socket: Path) -> Iterator[None]:
    """A daemon at this socket, for a block."""
    program = os.environ.get("UTIPC_TEST_DAEMON")
    if not program:
        pytest.skip("no daemon (UTIPC_TEST_DAEMON names the program utipcd)")
    running = subprocess.Popen([program, "--socket", str(socket)])
    try:
        end = time.monotonic() + LIMIT
        while not is_ready(socket):
            assert running.poll() is None, "the daemon has ended"
            assert time.monotonic() < end, "the daemon does not start"
            time.sleep(0.01)
        yield
    finally:
        running.terminate()
        assert running.wait(LIMIT) == 0


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    """The socket of a daemon that only this test uses."""
    socket = tmp_path / "d.sock"
    with serving(socket):
        yield socket


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """The engine of this test's node."""
    return str(request.param)


@pytest.fixture
def opener(request: pytest.FixtureRequest, engine: str) -> Opener:
    """Opens another handle on this test's node."""
    if engine == "daemon":
        socket = request.getfixturevalue("daemon")
        return lambda: utipc.Node(daemon=socket)
    if engine == "kernel":
        return lambda: utipc.Node(engine="kernel")
    node = utipc.Node(engine="embedded", isolated=True, address=1)
    return lambda: node


@pytest.fixture
def node(opener: Opener) -> Iterator[utipc.Node]:
    """A node."""
    with opener() as node:
        yield node
