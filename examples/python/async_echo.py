"""A server and its clients as tasks of one thread."""

import asyncio

import utipc
from utipc import aio

ECHO = utipc.ServiceAddress(4711, 2)
CLIENTS = 3


async def echo(connection: aio.Socket) -> None:
    with connection:
        while data := (await connection.receive()).data:
            await connection.sendall(data)


async def serve(listener: aio.Listener) -> None:
    with listener:
        tasks = [asyncio.create_task(echo(await listener.accept())) for _ in range(CLIENTS)]
        await asyncio.gather(*tasks)
    # The listener is closed here, which withdraws the service.


async def main() -> None:
    node = await aio.start()
    with await aio.topology(node) as topology:
        topology.topology.services(ECHO)
        server = asyncio.create_task(serve(aio.listen(node, ECHO, "stream")))
        assert (await topology.next()).change == "service_up"
        print("the service is up", flush=True)

        for client in range(CLIENTS):
            with await aio.connect(node, ECHO, "stream") as connection:
                await connection.sendall(b"client %d" % client)
                reply = await asyncio.wait_for(connection.receive(), timeout=5)
                print(reply.data.decode(), flush=True)
                connection.shutdown()
        await server
        assert (await topology.next()).change == "service_down"
        print("the service is gone", flush=True)


asyncio.run(main())
