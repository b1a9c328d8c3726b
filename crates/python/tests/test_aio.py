"""Tests of utipc.aio."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Coroutine

import pytest
import utipc
from utipc import aio

from conftest import LIMIT


def run(main: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(main, LIMIT)

    asyncio.run(limited())


def test_many_connections_in_one_thread(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    clients = 50

    async def echo(connection: aio.Socket) -> None:
        with connection:
            while data := (await connection.receive()).data:
                await connection.sendall(data)

    async def serve(listener: aio.Listener) -> None:
        tasks = []
        async for connection in listener:
            tasks.append(asyncio.create_task(echo(connection)))
        await asyncio.gather(*tasks)
        assert len(tasks) == clients

    async def ask(number: int) -> None:
        with await aio.connect(node, service, "stream") as connection:
            for step in range(10):
                text = b"%d:%d" % (number, step)
                await connection.sendall(text)
                assert await connection.recv(100) == text
            connection.shutdown()

    async def main() -> None:
        with aio.listen(node, service, "stream") as listener:
            server = asyncio.create_task(serve(listener))
            await asyncio.gather(*[ask(number) for number in range(clients)])
        await server

    run(main())


def test_cancelled_receive_loses_no_message(node: utipc.Node) -> None:
    async def main() -> None:
        one, other = aio.Socket(node.rdm()), aio.Socket(node.rdm())
        for number in range(30):
            waiting = asyncio.create_task(one.receive())
            await asyncio.sleep(0)
            if number % 2:
                await other.send_to(b"%d" % number, one.port)
                waiting.cancel()
                results = await asyncio.gather(waiting, return_exceptions=True)
                message = results[0] if isinstance(results[0], utipc.Message) else await one.receive()
                assert message.data == b"%d" % number
            else:
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(one.receive(), 0.01)
        one.close()
        other.close()

    run(main())


def test_several_tasks_share_a_socket(node: utipc.Node) -> None:
    async def main() -> None:
        with aio.Socket(node.rdm()) as one, aio.Socket(node.rdm()) as other:
            tasks = [asyncio.create_task(one.recv(10)) for _ in range(5)]
            await asyncio.sleep(0)
            for number in range(5):
                await other.send_to(b"%d" % number, one.port)
            assert sorted(await asyncio.gather(*tasks)) == [b"%d" % number for number in range(5)]

    run(main())


def test_first_data_waits_for_the_server(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    async def main() -> None:
        listener = node.listen(service, "stream")
        client = aio.Socket(node.stream())
        sending = asyncio.create_task(client.send_to(b"one", service))
        await asyncio.sleep(0.01)
        assert not sending.done()
        server = aio.Socket(listener.accept())
        assert await sending == 3
        assert await client.send_to(b"two", service) == 3
        assert await server.recv(3) + await server.recv(3) == b"onetwo"
        client.close()
        server.close()
        listener.close()

    run(main())


def test_close_wakes_waiting_tasks(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    async def main() -> None:
        socket = aio.Socket(node.rdm())
        topology = await aio.topology(node)
        topology.topology.services(service)
        tasks = [asyncio.create_task(socket.receive()), asyncio.create_task(topology.next())]
        await asyncio.sleep(0.01)
        socket.close()
        topology.close()
        for task in tasks:
            with pytest.raises(utipc.Closed):
                await task
        assert [event async for event in topology] == []

    run(main())


def test_refused_and_unbound(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    async def main() -> None:
        with pytest.raises(utipc.Unreachable):
            await aio.connect(node, service)
        with node.seqpacket() as bound:
            bound.bind(service)
            with pytest.raises(utipc.Refused):
                await aio.connect(node, service)

    run(main())


def test_service_events(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    async def main() -> None:
        with await aio.topology(node) as topology:
            topology.topology.services(service)
            waiting = asyncio.create_task(aio.wait_for_service(node, service))
            socket = node.rdm()
            socket.bind(service)
            assert await waiting == socket.port
            socket.close()
            changes = [(await topology.next()).change for _ in range(2)]
            assert changes == ["service_up", "service_down"]

    run(main())


def test_writer_waits_for_its_reader(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    data = bytes(4_000_000)

    async def main() -> None:
        with aio.listen(node, service, "stream") as listener:
            client, server = await asyncio.gather(aio.connect(node, service, "stream"), listener.accept())
            sending = asyncio.create_task(client.sendall(data))
            await asyncio.sleep(0.01)
            left = len(data)
            memory = bytearray(100_000)
            while left:
                left -= await server.recv_into(memory)
            await sending
            client.close()
            server.close()

    run(main())


def test_starting_a_node() -> None:
    async def main() -> None:
        with await aio.start(isolated=True, address=7) as node:
            assert node.address == 7

    run(main())


def test_task_that_always_finds_a_message_leaves_others_their_turns(daemon: Path) -> None:
    async def main() -> None:
        one = aio.Socket(utipc.Node(daemon=daemon).rdm())
        other = utipc.Node(daemon=daemon).rdm()
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        with one, other:
            for _ in range(200):
                other.send_to(b"x", one.port)
                assert (await one.receive()).data == b"x"
        counting.cancel()
        assert turns >= 10

    run(main())


def test_start_is_awaited_or_closes_the_node_at_the_end_of_a_block() -> None:
    async def main() -> None:
        async with aio.start(engine="embedded", isolated=True, address=1) as node:
            assert node.address == 1 and not node.closed
        assert node.closed
        other = await aio.start(engine="embedded", isolated=True, address=2)
        assert other.address == 2 and not other.closed
        other.close()
        with pytest.raises(ZeroDivisionError):
            async with aio.start(engine="embedded", isolated=True, address=3) as node:
                raise ZeroDivisionError
        assert node.closed

    run(main())


def test_look_misses_no_message_of_another_thread(node: utipc.Node, service: utipc.ServiceAddress) -> None:
    rounds = 300

    async def main() -> None:
        listener = node.listen(service)
        asked = asyncio.to_thread(node.connect, service)
        connecting = asyncio.create_task(asked)
        accepted = await asyncio.to_thread(listener.accept)
        client = await connecting

        def ask() -> None:
            for number in range(rounds):
                client.send(b"%d" % number)
                assert client.receive().data == b"%d" % number

        with listener, client, aio.Socket(accepted) as server:
            asking = asyncio.create_task(asyncio.to_thread(ask))
            for _ in range(rounds):
                await server.send((await server.receive()).data)
            await asking

    run(main())
