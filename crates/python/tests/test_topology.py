"""Topology subscriptions."""

from __future__ import annotations

import errno
import threading
from typing import Literal

import pytest

import utipc

from conftest import LIMIT


def expect(topology: utipc.Topology) -> utipc.Event:
    event = topology.next(LIMIT)
    assert event is not None
    return event


def test_service_events(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with node.topology() as topology:
        number = topology.services(utipc.ServiceRange(service.service, 0, 99))
        with node.rdm() as socket:
            socket.bind(service)
            up = expect(topology)
            assert (up.change, up.is_up, up.port, up.node) == ("service_up", True, socket.port, None)
            assert up.found == utipc.ServiceRange(service.service, 17, 17)
            assert up.subscription == number
        assert expect(topology).change == "service_down"
        assert topology.next(0) is None
        topology.cancel(number)


def test_availability_is_reported_once(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with node.topology() as topology, node.rdm() as one, node.rdm() as other:
        topology.availability(service)
        one.bind(service)
        # The server handles subscriptions asynchronously; without this wait, all might be over before.
        assert expect(topology).change == "service_up"
        other.bind(service)
        one.close()
        other.close()
        assert expect(topology).change == "service_down"


def test_subscription_expires(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with node.topology() as topology:
        number = topology.subscribe(service, limit=0.05)
        event = expect(topology)
        assert (event.change, event.subscription, event.is_up) == ("expired", number, False)


def test_own_node_is_reported(node: utipc.Node) -> None:
    with node.topology() as topology:
        assert topology.server == node.address
        topology.links()
        topology.nodes()
        assert node.peers() == [] and node.links() == []
        assert "0 neighbours" in node.describe()
        event = topology.next(LIMIT if node.address else 0)
        if event is not None:  # A kernel node without a bearer has no address.
            assert (event.change, event.node) == ("node_up", node.address)


def test_close_ends_iteration(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    topology = node.topology()
    topology.services(service)
    changes: list[str] = []
    first = threading.Event()

    def watch() -> None:
        for event in topology:
            changes.append(event.change)
            first.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    with node.rdm() as socket:
        socket.bind(service)
        assert first.wait(LIMIT)
        topology.close()
        watcher.join(LIMIT)
    assert not watcher.is_alive() and changes == ["service_up"]


def test_waiting_for_a_service(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with node.rdm() as socket:
        timer = threading.Timer(0.05, lambda: socket.bind(service))
        timer.start()
        assert node.wait_for_service(service, LIMIT) == socket.port
        timer.join()


def test_one_of_two_sockets_gets_an_exclusive_binding(
    node: utipc.Node, engine: str, service: utipc.ServiceAddress
) -> None:
    scope: Literal["cluster", "node"] = "cluster"
    if engine == "kernel":
        scope = "node"
        with pytest.raises(utipc.Error):
            node.barrier(timeout=LIMIT)
    else:
        node.barrier(timeout=LIMIT)
    first, second = node.rdm(), node.rdm()
    first.bind_exclusive(service, scope=scope)
    with pytest.raises(OSError) as refused:
        second.bind_exclusive(service, scope=scope, timeout=LIMIT)
    assert refused.value.errno == errno.EADDRINUSE
    first.close()
    second.bind_exclusive(service, scope=scope, timeout=LIMIT)
    assert node.lookup(service) == second.port
    with pytest.raises(ValueError):
        second.bind_exclusive(service, timeout=-1)
