"""Three ways to set up a connection."""

import threading

import utipc

ECHO = utipc.ServiceAddress(4711, 1)


def echo(connection: utipc.Socket) -> None:
    with connection:
        # Empty data is the end of the connection.
        while data := connection.receive().data:
            connection.sendall(data)


def serve(listener: utipc.Listener) -> None:
    for connection in listener:
        threading.Thread(target=echo, args=(connection,)).start()


def main() -> None:
    # Both ends are on one node for demonstration; they could also be on two nodes.
    with utipc.Node() as node, node.listen(ECHO, "stream") as listener:
        threading.Thread(target=serve, args=(listener,)).start()

        # 1. As with TCP: connect, wait until the server has accepted, then talk.
        with node.connect(ECHO, "stream") as connection:
            connection.send(b"first")
            reply = connection.receive().data.decode()
            print(f'1. by request: connected to {connection.peer}, answer "{reply}"', flush=True)
            connection.shutdown()

        # 2. By data: the first message is the connection request, which saves a round trip.
        with node.stream() as connection:
            connection.send_to(b"second", ECHO)
            reply = connection.receive().data.decode()
            print(f'2. by data: answer "{reply}"', flush=True)
            connection.shutdown()

        # 3. Without waiting: the request is sent, and a poll loop can do other things until the reply arrives.
        with node.stream() as connection:
            try:
                connection.connect(ECHO, timeout=0)
            except utipc.WouldBlock:
                pass
            print("3. without waiting: something else is done meanwhile", flush=True)
            connection.finish_connect()
            connection.send(b"third")
            reply = connection.receive().data.decode()
            print(f'3. without waiting: connected to {connection.peer}, answer "{reply}"', flush=True)
            connection.shutdown()


if __name__ == "__main__":
    main()
