// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.net.SocketTimeoutException;
import java.time.Duration;
import java.util.Random;
import org.junit.jupiter.api.Test;

class ConnectionsTest {
    @Test
    void bytesArriveInOrderAndThenTheEnd() throws Exception {
        ServiceAddress service = Rig.service();
        byte[] sent = new byte[10_000_000];
        new Random(7).nextBytes(sent);
        try (Node node = Node.start(); Listener listener = node.listen(service)) {
            Rig.Task echo = new Rig.Task(true, () -> {
                try (Connection connection = listener.accept()) {
                    connection.input().transferTo(connection.output());
                }
            });
            try (Connection client = node.connect(service, Rig.SOON)) {
                client.setNoDelay(true);
                assertEquals(node.address(), client.peer().node());
                Rig.Task writer = new Rig.Task(false, () -> client.output().write(sent));
                byte[] received = client.input().readNBytes(sent.length);
                assertNull(writer.end());
                assertArrayEquals(sent, received);
            }
            assertNull(echo.end());
        }
    }

    @Test
    void everythingSentBeforeACloseIsReadAndThenTheEnd() throws Exception {
        ServiceAddress service = Rig.service();
        try (Node node = Node.start(); Listener listener = node.listen(service)) {
            for (int round = 0; round < 50; round++) {
                byte[] data = new byte[100_000];
                new Random(round).nextBytes(data);
                Rig.Task server = new Rig.Task(round % 2 == 0, () -> {
                    try (Connection connection = listener.accept()) {
                        connection.output().write(data);
                    }
                });
                try (Connection client = node.connect(service)) {
                    assertArrayEquals(data, client.input().readAllBytes());
                    assertEquals(-1, client.input().read());
                }
                assertNull(server.end());
            }
        }
    }

    @Test
    void messagesKeepTheirBounds() throws Exception {
        ServiceAddress service = Rig.service();
        try (Node node = Node.start(); Listener listener = node.listenMessages(service);
                Rig.Pair pair = Rig.connected(listener, () -> node.connectMessages(service))) {
            Connection client = pair.client();
            Connection server = pair.server();
            for (int length : new int[] {1, 100, Node.MAX_MESSAGE}) {
                client.send(new byte[length]);
                assertEquals(length, server.receive().length);
            }
            assertThrows(TipcException.class, () -> client.send(new byte[0]));
            assertThrows(TipcException.class, () -> client.send(new byte[Node.MAX_MESSAGE + 1]));
            client.close();
            assertNull(server.receive());
        }
    }

    @Test
    void connectionByItsFirstDataCarriesTheAnswer() throws Exception {
        ServiceAddress service = Rig.service();
        try (Node node = Node.start(); Listener listener = node.listen(service);
                Connection client = node.connectWith(service, "first".getBytes())) {
            try (Connection server = listener.accept()) {
                assertEquals("first", new String(server.receive()));
                server.send("answer".getBytes());
                assertEquals("answer", new String(client.receive()));
            }
        }
    }

    @Test
    void sendAfterTheFirstDataWaitsForTheServer() throws Exception {
        ServiceAddress service = Rig.service();
        try (Node node = Node.start(); Listener listener = node.listen(service);
                Connection client = node.connectWith(service, "first ".getBytes())) {
            var sending = java.util.concurrent.CompletableFuture.runAsync(() -> {
                try {
                    client.send("second".getBytes());
                } catch (java.io.IOException failure) {
                    throw new java.io.UncheckedIOException(failure);
                }
            });
            Thread.sleep(50);
            try (Connection server = listener.accept()) {
                sending.get(60, java.util.concurrent.TimeUnit.SECONDS);
                String all = "";
                while (all.length() < 12) {
                    all += new String(server.receive());
                }
                assertEquals("first second", all);
            }
        }
    }

    @Test
    void failuresOfConnectHaveTheirKinds() throws Exception {
        ServiceAddress service = Rig.service();
        try (Node node = Node.start(); PacketSocket noListener = node.packetSocket(service)) {
            assertThrows(TipcException.Unreachable.class, () -> node.connect(Rig.service()));
            // No connection comes from a socket for messages.
            assertThrows(SocketTimeoutException.class, () -> node.connect(service, Duration.ofMillis(100)));
            assertThrows(TipcException.class, () -> node.connectWith(service, new byte[0]));
        }
    }
}
