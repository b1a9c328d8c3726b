"""Nodes for tests: each test that wants one runs on every engine that this run has.

The daemon comes from the program that UTIPC_TEST_DAEMON names; without it those tests are skipped. With UTIPC_TEST_ENGINES=kernel the tests run on the
kernel's own TIPC.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from pathlib import Path
from typing import Callable, Iterator

import pytest
import utipc

#: Far beyond what anything takes on a loaded machine.
LIMIT = 30.0

ENGINES = os.environ.get("UTIPC_TEST_ENGINES", "embedded,daemon").split(",")
_NUMBERS = itertools.count(os.getpid() * 1000 % 1_000_000_000 + 100)

Opener = Callable[[], utipc.Node]


@pytest.fixture
def service() -> utipc.ServiceAddress:
    """A service type of the test's own."""
    return utipc.ServiceAddress(next(_NUMBERS), 17)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test meets a node or a daemon of this user."""
    home = tmp_path / "run"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    for name in ("UTIPC_SOCKET", "UTIPC_ENGINE", "UTIPC_INSTANCE"):
        monkeypatch.delenv(name, raising=False)


def answers(socket: Path) -> bool:
    """Whether a daemon takes programs in: its socket is there a moment before."""
    try:
        utipc.Node(daemon=socket).close()
    except utipc.Unreachable:
        return False
    return True


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    """The socket of a daemon of the test's own."""
    program = os.environ.get("UTIPC_TEST_DAEMON")
    if not program:
        pytest.skip("no daemon (UTIPC_TEST_DAEMON names the program utipcd)")
    socket = tmp_path / "d.sock"
    running = subprocess.Popen([program, "--socket", str(socket)])
    try:
        end = time.monotonic() + LIMIT
        while not answers(socket):
            assert running.poll() is None, "the daemon has ended"
            assert time.monotonic() < end, "the daemon does not start"
            time.sleep(0.01)
        yield socket
    finally:
        running.terminate()
        assert running.wait(LIMIT) == 0


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """What stands behind the node of this test."""
    return str(request.param)


@pytest.fixture
def opener(request: pytest.FixtureRequest, engine: str) -> Opener:
    """Opens another handle on the node of this test."""
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
