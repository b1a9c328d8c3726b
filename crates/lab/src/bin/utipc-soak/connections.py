"""Connects to itself, sends a message and closes, until the time is over; prints how often. Arguments: its instance of
the service, seconds."""

import socket
import sys
import threading
import time

number, seconds = int(sys.argv[1]), float(sys.argv[2])
server = socket.socket(socket.AF_TIPC, socket.SOCK_SEQPACKET)
server.bind((socket.TIPC_ADDR_NAMESEQ, 9401, number, number))
server.listen(64)


def shut(connection):
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # The peer was faster.
        pass


def serve():
    count = 0
    while True:
        connection, _ = server.accept()
        if connection.recv(100) == b"the end":
            return
        try:
            assert not connection.recv(100)
        except ConnectionResetError:
            pass
        if count % 3 == 0:
            shut(connection)
        connection.close()
        count += 1


def call(message):
    connection = socket.socket(socket.AF_TIPC, socket.SOCK_SEQPACKET)
    connection.connect((socket.TIPC_ADDR_NAME, 9401, number, 0))
    connection.send(message)
    return connection


thread = threading.Thread(target=serve)
thread.start()
end = time.monotonic() + seconds
calls = 0
while time.monotonic() < end:
    connection = call(b"a message")
    if calls % 2 == 0:
        shut(connection)
    connection.close()
    calls += 1
call(b"the end").close()
thread.join()
print(calls)
