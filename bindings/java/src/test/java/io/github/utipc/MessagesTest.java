// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.SocketTimeoutException;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import org.junit.jupiter.api.Test;

class MessagesTest {
    @Test
    void messageNamesItsSenderAndWhatWasAddressed() throws Exception {
        ServiceAddress service = Rig.service();
        try (Node node = Node.start(); PacketSocket server = node.packetSocket(service);
                PacketSocket client = node.packetSocket()) {
            client.send("question".getBytes(), service);
            Message question = server.receive(Rig.SOON);
            assertEquals("question", question.text());
            assertEquals(client.address(), question.source());
            assertEquals(new ServiceRange(service.type(), service.instance(), service.instance()),
                question.destination());
            assertNull(question.returned());
            server.send("answer".getBytes(), question.source());
            Message answer = client.receive(Rig.SOON);
            assertEquals("answer", answer.text());
            assertNull(answer.destination());
        }
    }

    @Test
    void multicastReachesEverySocketOfTheRange() throws Exception {
        ServiceAddress one = Rig.service();
        ServiceAddress other = new ServiceAddress(one.type(), one.instance() + 500);
        ServiceRange range = new ServiceRange(one.type(), one.instance(), other.instance());
        try (Node node = Node.start(); PacketSocket first = node.packetSocket(one);
                PacketSocket second = node.datagramSocket(other)) {
            first.send("all".getBytes(), range);
            for (PacketSocket socket : new PacketSocket[] {first, second}) {
                Message message = socket.receive(Rig.SOON);
                assertEquals("all", message.text());
                assertEquals(range, message.destination());
            }
        }
    }

    @Test
    void longestMessageArrivesAndALongerOneIsRefused() throws Exception {
        ServiceAddress service = Rig.service();
        byte[] longest = new byte[Node.MAX_MESSAGE];
        for (int at = 0; at < longest.length; at++) {
            longest[at] = (byte) (at * 31);
        }
        try (Node node = Node.start(); PacketSocket socket = node.packetSocket(service)) {
            socket.send(longest, service);
            assertArrayEquals(longest, socket.receive(Rig.SOON).data());
            TipcException tooLong =
                assertThrows(TipcException.class, () -> socket.send(new byte[longest.length + 1], service));
            assertEquals(Native.EMSGSIZE, tooLong.errno());
        }
    }

    @Test
    void undeliverableMessageComesBackWithItsReason() throws Exception {
        try (Node node = Node.start(); PacketSocket socket = node.packetSocket()) {
            socket.returnUndelivered();
            PortId nobody;
            try (PacketSocket closed = node.packetSocket()) {
                nobody = closed.address();
            }
            socket.send("lost".getBytes(), nobody);
            Message back = socket.receive(Rig.SOON);
            assertEquals(Message.Returned.NO_SOCKET, back.returned());
            assertEquals("lost", back.text());
        }
    }

    @Test
    void bindingEndsWithUnbind() throws Exception {
        ServiceAddress service = Rig.service();
        try (Node node = Node.start(); PacketSocket socket = node.packetSocket(); Topology topology = node.topology()) {
            topology.services(service);
            socket.bind(service);
            assertEquals(Event.Change.SERVICE_UP, topology.next(Rig.SOON).change());
            socket.unbind(service);
            Event down = topology.next(Rig.SOON);
            assertEquals(Event.Change.SERVICE_DOWN, down.change());
            assertEquals(socket.address(), down.port());
            assertThrows(TipcException.Unreachable.class, () -> node.connect(service));
        }
    }

    @Test
    void timeLimitLosesNoMessage() throws Exception {
        ServiceAddress service = Rig.service();
        try (Node node = Node.start(); PacketSocket socket = node.packetSocket(service)) {
            assertThrows(SocketTimeoutException.class, () -> socket.receive(Duration.ofMillis(20)));
            socket.setTimeout(Duration.ofMillis(20));
            assertThrows(SocketTimeoutException.class, socket::receive);
            socket.send("late".getBytes(), service);
            assertEquals("late", socket.receive().text());
            assertThrows(SocketTimeoutException.class, () -> node.waitFor(Rig.service(), Duration.ofMillis(20)));
        }
    }

    @Test
    void optionsReportWhatTheLibraryRefuses() throws Exception {
        try (Node node = Node.start(); PacketSocket socket = node.packetSocket()) {
            socket.setImportance(3);
            TipcException refused = assertThrows(TipcException.class, () -> socket.setImportance(4));
            assertEquals(Native.EINVAL, refused.errno());
            assertThrows(TipcException.class, () -> socket.bind(new ServiceAddress(1, 1)));
            assertTrue(Node.version().startsWith("0."), Node.version());
        }
    }

    @Test
    void nodeStartsAgainAfterItsEnd() throws Exception {
        PacketSocket left;
        try (Node node = Node.start(); Node same = Node.start()) {
            assertEquals(node.address(), same.address());
            assertNotEquals(0, node.address());
            left = node.packetSocket();
        }
        assertTrue(left.isClosed());
        assertThrows(ClosedChannelException.class, left::receive);
        messageNamesItsSenderAndWhatWasAddressed();
    }

    @Test
    void addressesHaveTheNotationOfTheTools() {
        assertEquals("{18888,1}", new ServiceAddress(18888, 1).toString());
        assertEquals("{18888,4294967295}@1001001", new ServiceAddress(18888, -1, 0x1001001).toString());
        assertEquals("{1000,0,99}", new ServiceRange(1000, 0, 99).toString());
        assertEquals("1001001:7", new PortId(7, 0x1001001).toString());
    }
}
