"""Policies for slow members of groups, between sockets of one node."""

from __future__ import annotations

from typing import Literal, Optional

import pytest
import utipc

from conftest import LIMIT

LONG = 60_000


def join(
    node: utipc.Node,
    service: int,
    instance: int,
    slow: Optional[Literal["wait", "drop", "conflate", "evict"]],
    evict_after: Optional[float] = None,
) -> utipc.Group:
    try:
        group = node.join(service, instance, events=True, slow=slow, evict_after=evict_after)
    except utipc.Error as error:
        if "always waits for slow members" in str(error):
            pytest.skip("the kernel has no policies")
        raise
    group.settimeout(LIMIT)
    return group


def joined(group: utipc.Group) -> utipc.Member:
    event = group.receive(timeout=LIMIT)
    assert isinstance(event, utipc.Joined)
    return event.member


def message(group: utipc.Group) -> utipc.GroupMessage:
    incoming = group.receive(timeout=LIMIT)
    assert isinstance(incoming, utipc.GroupMessage)
    return incoming


def numbered(number: int) -> bytes:
    return f"{number:06}".encode().ljust(LONG, b" ")


def test_messages_for_a_slow_member_are_dropped_and_counted(
    node: utipc.Node, service: utipc.ServiceAddress
) -> None:
    with join(node, service.service, 1, "drop") as red, join(node, service.service, 2, "wait") as blue:
        assert joined(red) == blue.member
        assert joined(blue) == red.member
        for number in range(40):
            assert red.broadcast(numbered(number)) == LONG
        [status] = red.members()
        assert status.member == blue.member and status.dropped > 20
        assert (status.conflated, status.kept) == (0, 0)
        assert f"dropped {status.dropped}" in repr(status)
        for number in range(40 - status.dropped):
            received = message(blue)
            assert received.data == numbered(number) and received.sent_to == "all"
            assert not received.after_loss
        red.send(blue.member, b"next")
        received = message(blue)
        assert received.after_loss and received.sent_to == "member"


def test_a_slow_member_gets_the_newest_message_of_each_key(
    node: utipc.Node, service: utipc.ServiceAddress
) -> None:
    with join(node, service.service, 1, "conflate") as red, join(node, service.service, 2, "wait") as blue:
        joined(red)
        joined(blue)
        for number in range(40):
            red.broadcast(numbered(number), key=number % 3)
        [status] = red.members()
        assert status.dropped == 0 and status.kept == 3
        received = [message(blue).data for _ in range(40 - status.conflated)]
        assert received[-3:] == [numbered(37), numbered(38), numbered(39)]
        red.multicast(2, b"two", key=7)
        red.send(blue.member, b"one", key=7)
        assert [message(blue).data for _ in range(2)] == [b"two", b"one"]


def test_a_slow_member_is_evicted(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with join(node, service.service, 1, "evict", 0.2) as red, join(
        node, service.service, 2, "evict", 0.2
    ) as blue:
        joined(red)
        with pytest.raises(utipc.Error):
            for number in range(40):
                red.send(blue.member, numbered(number))
        event = red.receive(timeout=LIMIT)
        assert isinstance(event, utipc.Evicted) and event.member == blue.member
        with pytest.raises(utipc.Error, match="evicted"):
            blue.broadcast(b"x")
        own = blue.member
        for incoming in blue:
            if isinstance(incoming, utipc.Evicted):
                assert incoming.member == own
                break
        blue.leave()


def test_wrong_policies_are_refused(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with pytest.raises(ValueError, match="unknown policy"):
        node.join(service.service, 1, slow="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="evict_after"):
        node.join(service.service, 1, slow="evict")
    with pytest.raises(ValueError, match="evict_after"):
        node.join(service.service, 1, slow="drop", evict_after=1.0)
