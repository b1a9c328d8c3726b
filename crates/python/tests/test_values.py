"""Addresses, errors and arguments, independent of the engine."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import pickle
import socket
from pathlib import Path

import pytest
import utipc
from utipc._errors import make


def test_addresses_are_values() -> None:
    address = utipc.ServiceAddress(18888, 17)
    assert (address.service, address.instance) == (18888, 17)
    assert str(address) == "{18888,17}" and repr(address) == "ServiceAddress(18888, 17)"
    assert eval(repr(address), vars(utipc)) == address
    assert len({address, utipc.ServiceAddress(18888, 17)}) == 1
    assert utipc.ServiceAddress(1, 2) < utipc.ServiceAddress(1, 3) < address
    assert address != (18888, 17)
    everything = utipc.ServiceRange(18888)
    assert str(everything) == "{18888,0,4294967295}" and address in everything
    assert utipc.ServiceAddress(18889, 17) not in everything
    port = utipc.PortId(0x1001001, 77)
    assert str(port) == "1001001:77" and repr(port) == "PortId(0x1001001, 77)"
    assert eval(repr(port), vars(utipc)) == port


def test_addresses_are_parsed() -> None:
    assert utipc.ServiceAddress.parse("{18888,17}") == utipc.ServiceAddress(18888, 17)
    assert utipc.ServiceAddress.parse(" 18888:17 ") == utipc.ServiceAddress(18888, 17)
    assert utipc.ServiceRange.parse("18888,0,99") == utipc.ServiceRange(18888, 0, 99)
    assert utipc.PortId.parse("1001001:77") == utipc.PortId(0x1001001, 77)
    for text in ("", "{1,2", "1,2,3", "1,-2", "1,4294967296", "one,two"):
        with pytest.raises(ValueError, match="write it as"):
            utipc.ServiceAddress.parse(text)
    with pytest.raises(ValueError, match="inverted"):
        utipc.ServiceRange.parse("1,3,2")
    with pytest.raises(ValueError, match="write it as"):
        utipc.PortId.parse("77")


@pytest.mark.parametrize(
    "value", [utipc.ServiceAddress(1, 2), utipc.ServiceRange(1, 2, 3), utipc.PortId(4, 5)], ids=str
)
def test_addresses_can_be_pickled(value: object) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(value, protocol)) == value


def test_addresses_are_immutable() -> None:
    with pytest.raises(AttributeError):
        utipc.ServiceAddress(1, 2).instance = 3  # type: ignore[misc]
    with pytest.raises(OverflowError):
        utipc.ServiceAddress(-1, 0)


@pytest.mark.parametrize(
    ("number", "kind", "builtin"),
    [
        (11, utipc.WouldBlock, BlockingIOError),
        (110, utipc.Timeout, TimeoutError),
        (111, utipc.Refused, ConnectionRefusedError),
        (104, utipc.ConnectionLost, ConnectionError),
        (102, utipc.Resumed, OSError),
        (32, utipc.Broken, BrokenPipeError),
        (13, utipc.NotAllowed, PermissionError),
        (113, utipc.Unreachable, OSError),
        (9, utipc.Closed, OSError),
        (22, utipc.Error, OSError),
    ],
)
def test_errors_derive_from_builtin_exceptions(number: int, kind: type[utipc.Error], builtin: type[OSError]) -> None:
    error = make(number, "cannot do it: a (bad) reason (do this (or that))")
    assert type(error) is kind and isinstance(error, builtin)
    assert error.errno == number
    assert error.remedy == "do this (or that)"
    assert str(error) == f"[Errno {number}] cannot do it: a (bad) reason (do this (or that))"


def test_remedy_is_added_if_the_message_has_none() -> None:
    error = make(107, "cannot send: not connected")
    assert error.remedy == "connect first" and error.strerror == "cannot send: not connected (connect first)"
    assert make(22, "unbalanced)").remedy == ""


def test_errors_of_a_node() -> None:
    with utipc.Node(engine="embedded", isolated=True, address=1) as node, node.rdm() as socket:
        with pytest.raises(PermissionError) as caught:
            socket.bind(utipc.ServiceAddress(7, 1))
        assert caught.value.errno == 13
        assert "{7,1,1}" in str(caught.value)
        with pytest.raises(ValueError, match="rdm, dgram, seqpacket or stream"):
            node.socket("raw")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="cluster or node"):
            socket.bind(utipc.ServiceAddress(700, 1), scope="zone")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="node="):
            socket.send_to(b"", socket.port, node=1)
        with pytest.raises(utipc.Error, match="too large|66000"):
            socket.send_to(bytes(66001), socket.port)
        with pytest.raises(utipc.Error, match="do not make connections"):
            socket.listen()


@pytest.mark.parametrize("wrong", [(18888, 17), "{18888,17}", 18888, None])
def test_wrong_address_is_a_readable_type_error(wrong: object) -> None:
    with utipc.Node(engine="embedded", isolated=True, address=1) as node, node.rdm() as socket:
        with pytest.raises(TypeError) as caught:
            socket.send_to(b"x", wrong)  # type: ignore[arg-type]
        text = str(caught.value)
        assert f"{wrong!r} is not a destination" in text and "utipc.ServiceAddress(18888, 17)" in text
        assert "\n" not in text
        with pytest.raises(TypeError, match="is not a service .use utipc.ServiceAddress"):
            socket.bind(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="is not a service .use utipc.ServiceAddress"):
            node.wait_for_service(wrong, timeout=0)  # type: ignore[arg-type]


def test_errors_of_devices_and_ports_have_the_errno_of_the_system() -> None:
    with pytest.raises(utipc.Error, match="no-such-device") as absent:
        utipc.Node(engine="embedded", ethernet="no-such-device", address=1)
    assert absent.value.errno == errno.ENODEV
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        # All of 127.0.0.0/8 belongs to this host; the port is that of TIPC over UDP.
        address = f"127.77.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
        taken.bind((address, 6118))
        with pytest.raises(utipc.Error) as in_use:
            utipc.Node(engine="embedded", udp=address, udp_peers=["127.0.0.1"], address=1)
    assert in_use.value.errno == errno.EADDRINUSE, str(in_use.value)
    with pytest.raises(utipc.Error) as foreign:
        utipc.Node(engine="embedded", udp="192.0.2.1", udp_peers=["192.0.2.2"], address=1)
    assert foreign.value.errno == errno.EADDRNOTAVAIL, str(foreign.value)


def test_version_is_that_of_the_package() -> None:
    assert utipc.__version__ == importlib.metadata.version("utipc")


def test_arguments_of_a_node(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="auto, embedded, daemon or kernel"):
        utipc.Node(engine="kernal")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="10.0.0.1"):
        utipc.Node(udp="eth0")
    with pytest.raises(ValueError, match="udp_peers"):
        utipc.Node(udp_peers=["127.0.0.1"])
    with pytest.raises(utipc.Error, match="1 to 9999"):
        utipc.Node(isolated=True, cluster=0)
    with pytest.raises(utipc.Unreachable, match="utipcd") as absent:
        utipc.Node(daemon=tmp_path / "none.sock")
    assert absent.value.remedy
    with pytest.raises(utipc.Error, match="the daemon has its own configuration"):
        utipc.Node(engine="daemon", udp="127.0.0.1")
    node = utipc.Node(isolated=True, identity="red")
    assert node.address != 0 and f"{node.address:x}" in repr(node)
    node.close()
    with pytest.raises(utipc.Closed):
        node.rdm()
