// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.io.InterruptedIOException;
import java.nio.channels.ClosedChannelException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class WaitingTest {
    /** The build gives virtual threads one carrier: a thread that kept it while waiting would stop all others. */
    @Test
    void waitingVirtualThreadsOccupyNoCarrier() throws Exception {
        ServiceAddress service = Rig.service();
        try (Node node = Node.start(); Listener listener = node.listen(service)) {
            List<Rig.Task> tasks = new ArrayList<>();
            for (int number = 0; number < 200; number++) {
                tasks.add(new Rig.Task(true, () -> {
                    try (Connection connection = listener.accept()) {
                        connection.input().transferTo(connection.output());
                    }
                }));
            }
            for (int number = 0; number < 200; number++) {
                byte[] question = ("question " + number).getBytes();
                tasks.add(new Rig.Task(true, () -> {
                    try (Connection connection = node.connect(service, Rig.SOON)) {
                        for (int round = 0; round < 20; round++) {
                            connection.send(question);
                            assertEquals(new String(question),
                                new String(connection.input().readNBytes(question.length)));
                        }
                    }
                }));
            }
            for (Rig.Task task : tasks) {
                assertNull(task.end());
            }
        }
    }

    @Test
    void closeEndsTheCallsOfOtherThreads() throws Exception {
        for (boolean virtual : new boolean[] {false, true}) {
            try (Node node = Node.start()) {
                PacketSocket socket = node.packetSocket();
                Listener listener = node.listen(Rig.service());
                Topology topology = node.topology();
                List<Rig.Task> tasks = List.of(new Rig.Task(virtual, socket::receive),
                    new Rig.Task(virtual, listener::accept), new Rig.Task(virtual, topology::next));
                for (Rig.Task task : tasks) {
                    task.waits();
                }
                socket.close();
                listener.close();
                topology.close();
                for (Rig.Task task : tasks) {
                    assertInstanceOf(ClosedChannelException.class, task.end());
                }
            }
        }
    }

    @Test
    void interruptEndsAWait() throws Exception {
        for (boolean virtual : new boolean[] {false, true}) {
            try (Node node = Node.start(); PacketSocket socket = node.packetSocket()) {
                Rig.Task task = new Rig.Task(virtual, socket::receive);
                task.waits();
                task.thread.interrupt();
                assertInstanceOf(InterruptedIOException.class, task.end());
                socket.send("still there".getBytes(), socket.address());
                assertEquals("still there", socket.receive(Rig.SOON).text());
            }
        }
    }

    @Test
    void fullWindowWaitsForTheReader() throws Exception {
        ServiceAddress service = Rig.service();
        try (Node node = Node.start(); Listener listener = node.listen(service);
                Rig.Pair pair = Rig.connected(listener, () -> node.connect(service))) {
            Connection client = pair.client();
            Connection server = pair.server();
            byte[] data = new byte[20_000_000];
            Rig.Task writer = new Rig.Task(true, () -> {
                client.output().write(data);
                client.close();
            });
            writer.waits();
            assertEquals(data.length, server.input().readAllBytes().length);
            assertNull(writer.end());
        }
    }
}
