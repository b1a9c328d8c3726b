"""Communication groups between sockets of one node."""

from __future__ import annotations

import asyncio
import pickle
from typing import Union

import pytest
import utipc
from utipc import aio

from conftest import LIMIT

Incoming = Union[utipc.GroupMessage, utipc.Joined, utipc.Left, utipc.Evicted]


def joined(group: utipc.Group) -> utipc.Member:
    event = group.receive(timeout=LIMIT)
    assert isinstance(event, utipc.Joined)
    return event.member


def message(group: utipc.Group) -> tuple[bytes, utipc.Member]:
    incoming = group.receive(timeout=LIMIT)
    assert isinstance(incoming, utipc.GroupMessage)
    return incoming.data, incoming.sender


def test_members_send_to_one_another_in_four_ways(
    node: utipc.Node, service: utipc.ServiceAddress
) -> None:
    with node.join(service.service, 1, events=True) as red, node.join(service.service, 2) as blue:
        assert joined(red) == blue.member
        assert red.broadcast(b"to all") == 6
        assert red.multicast(2, b"to all with 2") == 13
        assert red.anycast(2, b"to one with 2") == 13
        assert red.send(blue.member, b"to you") == 6
        assert red.send(blue.member.port, bytearray(b"to your socket")) == 14
        for data in (b"to all", b"to all with 2", b"to one with 2", b"to you", b"to your socket"):
            assert message(blue) == (data, red.member)
        blue.send(red.member, b"answer")
        assert message(red) == (b"answer", blue.member)


def test_message_says_to_whom_it_was_sent(
    node: utipc.Node, service: utipc.ServiceAddress
) -> None:
    with node.join(service.service, 1, events=True) as red, node.join(service.service, 2) as blue:
        joined(red)
        red.broadcast(b"all")
        red.send(blue.member, b"you")
        sent_to = [blue.receive(timeout=LIMIT) for _ in range(2)]
        assert [incoming.sent_to for incoming in sent_to if isinstance(incoming, utipc.GroupMessage)] in (
            ["all", "member"],
            [None, None],
        )


def test_leaving_is_an_event_after_the_last_message(
    node: utipc.Node, service: utipc.ServiceAddress
) -> None:
    with node.join(service.service, 1, events=True) as red:
        blue = node.join(service.service, 2)
        member = joined(red)
        red.send(member, b"welcome")
        assert message(blue)[0] == b"welcome"
        blue.broadcast(b"last words")
        blue.close()
        assert message(red) == (b"last words", member)
        event = red.receive(timeout=LIMIT)
        assert isinstance(event, utipc.Left)
        assert event.member == member


def test_socket_of_a_former_member_can_join_again(
    node: utipc.Node, service: utipc.ServiceAddress
) -> None:
    with node.join(service.service, 1, events=True) as red:
        blue = node.join(service.service, 2)
        member = joined(red)
        socket = blue.leave()
        assert isinstance(red.receive(timeout=LIMIT), utipc.Left)
        assert socket.port == member.port
        socket.close()
        assert blue.closed


def test_loopback_and_no_receiver(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with node.join(service.service, 7, loopback=True, events=True) as own:
        assert joined(own) == own.member
        own.broadcast(b"to myself")
        assert message(own) == (b"to myself", own.member)
        with pytest.raises(utipc.Unreachable):
            own.anycast(8, b"lost")


def test_time_limits_and_iteration(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    group = node.join(service.service, 1)
    group.settimeout(0)
    assert group.gettimeout() == 0
    with pytest.raises(utipc.WouldBlock):
        group.receive()
    with pytest.raises(utipc.Timeout):
        group.receive(timeout=0.01)
    group.settimeout(None)
    with node.join(service.service, 2, events=True) as other:
        joined(other)
        other.send(group.member, b"one")
        other.send(group.member, b"two")
        got = []
        for incoming in group:
            assert isinstance(incoming, utipc.GroupMessage)
            got.append(incoming.data)
            if len(got) == 2:
                group.close()
        assert got == [b"one", b"two"]
    assert group.closed and group.fileno() == -1
    with pytest.raises(utipc.Closed):
        group.broadcast(b"closed")


def test_reserved_groups_and_unknown_scopes_are_refused(node: utipc.Node) -> None:
    with pytest.raises(utipc.NotAllowed):
        node.join(63, 1)
    with pytest.raises(ValueError, match="cluster or node"):
        node.join(4300, 1, scope="world")  # type: ignore[arg-type]


def test_members_are_values(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    with node.join(service.service, 3) as group:
        member = group.member
        assert (group.service, member.instance) == (service.service, 3)
        assert member == utipc.Member(group.socket.port, 3)
        assert member < utipc.Member(group.socket.port, 4)
        assert pickle.loads(pickle.dumps(member)) == member
        assert {member: 1}[utipc.Member(member.port, 3)] == 1
        assert repr(member).startswith("Member(PortId(0x")
        assert "instance 3" in repr(group)


def test_tasks_use_a_group(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    async def talk() -> list[Incoming]:
        with aio.join(node, service.service, 1, events=True) as red:
            blue = aio.join(node, service.service, 2)
            got = [await red.receive()]
            await red.broadcast(b"a")
            await red.multicast(2, b"b")
            await red.anycast(2, b"c")
            await red.send(blue.member, b"d")
            for _ in range(4):
                incoming = await blue.receive()
                assert isinstance(incoming, utipc.GroupMessage)
                await blue.send(incoming.sender, incoming.data)
            async for incoming in red:
                got.append(incoming)
                if len(got) == 5:
                    blue.close()
                if isinstance(incoming, utipc.Left):
                    return got
        raise AssertionError("the group has ended")

    got = asyncio.run(asyncio.wait_for(talk(), LIMIT))
    assert [i.data for i in got if isinstance(i, utipc.GroupMessage)] == [b"a", b"b", b"c", b"d"]
    assert isinstance(got[0], utipc.Joined)
