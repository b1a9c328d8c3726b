// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import static io.github.utipc.Group.Option.EVENTS;
import static io.github.utipc.Group.Option.LOOPBACK;
import static io.github.utipc.Group.Option.OWN_NODE;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.SocketTimeoutException;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;

class GroupsTest {
    private static final Duration SHORT = Duration.ofMillis(50);
    private static final byte[] LONG = new byte[60_000];
    /** More long messages than the window of a member takes. */
    private static final int MANY = 40;

    /** A group that no other test uses. */
    private static int group() {
        return 1_000_000 + Rig.service().instance();
    }

    private static Member joined(Group group) throws IOException {
        return assertInstanceOf(Joined.class, group.receive(Rig.SOON)).member();
    }

    private static Member left(Group group) throws IOException {
        return assertInstanceOf(Left.class, group.receive(Rig.SOON)).member();
    }

    private static void hears(Group group, String text, Member sender) throws IOException {
        GroupMessage message = assertInstanceOf(GroupMessage.class, group.receive(Rig.SOON));
        assertEquals(text, message.text());
        assertEquals(sender, message.member());
    }

    @Test
    void membersSendToOneAnotherInFourWays() throws Exception {
        int type = group();
        try (Node node = Node.start(); Group red = node.join(type, 1, EVENTS); Group blue = node.join(type, 2);
                Group other = node.join(type, 3)) {
            assertEquals(Set.of(blue.member(), other.member()), Set.of(joined(red), joined(red)));
            red.broadcast("to all".getBytes());
            red.multicast("to all with 2".getBytes(), 2);
            red.anycast("to one with 2".getBytes(), 2);
            red.send("to you".getBytes(), blue.member());
            red.send("to your socket".getBytes(), blue.member().port());
            for (String text : List.of("to all", "to all with 2", "to one with 2", "to you", "to your socket")) {
                hears(blue, text, red.member());
            }
            hears(other, "to all", red.member());
            assertThrows(SocketTimeoutException.class, () -> other.receive(Duration.ZERO));
            blue.send("answer".getBytes(), red.member());
            hears(red, "answer", blue.member());
        }
    }

    @Test
    void anycastTakesTurnsAndMulticastReachesAll() throws Exception {
        int type = group();
        try (Node node = Node.start(); Group red = node.join(type, 1, EVENTS); Group first = node.join(type, 2);
                Group second = node.join(type, 2)) {
            joined(red);
            joined(red);
            red.anycast("task".getBytes(), 2);
            red.anycast("task".getBytes(), 2);
            red.multicast("end".getBytes(), 2);
            for (Group worker : List.of(first, second)) {
                hears(worker, "task", red.member());
                hears(worker, "end", red.member());
            }
        }
    }

    @Test
    void messageTellsToWhomItWasSent() throws Exception {
        int type = group();
        try (Node node = Node.start(); Group red = node.join(type, 1, EVENTS); Group first = node.join(type, 2);
                Group second = node.join(type, 2)) {
            joined(red);
            joined(red);
            red.broadcast("all".getBytes());
            red.multicast("twos".getBytes(), 2);
            red.send("one".getBytes(), first.member());
            for (SentTo expected : List.of(SentTo.ALL, SentTo.INSTANCE, SentTo.MEMBER)) {
                GroupMessage message = assertInstanceOf(GroupMessage.class, first.receive(Rig.SOON));
                assertEquals(expected, message.sentTo());
            }
            hears(second, "all", red.member());
        }
    }

    @Test
    void waitReasonNamesTheMember() throws Exception {
        int type = group();
        try (Node node = Node.start(); Group red = node.join(type, 1, EVENTS); Group blue = node.join(type, 2)) {
            joined(red);
            assertTrue(red.waitReason().isEmpty());
            red.setTimeout(SHORT);
            assertThrows(SocketTimeoutException.class, () -> {
                for (int i = 0; i < MANY; i++) {
                    red.send(LONG, blue.member());
                }
            });
            WaitReason reason = red.waitReason().orElseThrow();
            assertEquals(blue.member().port(), reason.member().orElseThrow());
            assertTrue(reason.text().contains("of the group"), reason.text());
        }
    }

    @Test
    void leavingIsAnEventAfterTheLastMessage() throws Exception {
        int type = group();
        try (Node node = Node.start(); Group red = node.join(type, 1, EVENTS)) {
            Group blue = node.join(type, 2);
            Member member = joined(red);
            red.send("welcome".getBytes(), member);
            hears(blue, "welcome", red.member());
            blue.broadcast("last words".getBytes());
            blue.close();
            hears(red, "last words", member);
            assertEquals(member, left(red));
        }
    }

    @Test
    void memberWithoutEventsReceivesMessagesOnly() throws Exception {
        int type = group();
        try (Node node = Node.start(); Group red = node.join(type, 1, EVENTS)) {
            Group blue = node.join(type, 2);
            joined(red);
            try (Group green = node.join(type, 3)) {
                Member member = joined(red);
                green.multicast("from green".getBytes(), 2);
                assertEquals(member, green.member());
            }
            left(red);
            red.broadcast("from red".getBytes());
            assertInstanceOf(GroupMessage.class, blue.receive(Rig.SOON));
            hears(blue, "from red", red.member());
        }
    }

    @Test
    void socketOfAFormerMemberJoinsAgain() throws Exception {
        int type = group();
        try (Node node = Node.start(); Group red = node.join(type, 1, EVENTS); Group blue = node.join(type, 2)) {
            Member before = joined(red);
            PacketSocket socket = blue.leave();
            assertEquals(before, left(red));
            assertThrows(TipcException.class, blue::leave);
            try (Group again = socket.join(type, 3)) {
                assertEquals(new Member(before.port(), 3), joined(red));
                red.anycast("welcome back".getBytes(), 3);
                hears(again, "welcome back", red.member());
            }
            assertTrue(blue.isClosed());
        }
    }

    @Test
    void messagesFromBeforeTheJoinAreSkipped() throws Exception {
        ServiceAddress service = Rig.service();
        int type = group();
        try (Node node = Node.start(); Group red = node.join(type, 1, EVENTS);
                PacketSocket socket = node.packetSocket()) {
            red.socket().setImportance(1);
            socket.send("to itself".getBytes(), socket.address());
            try (Group blue = socket.join(type, 2)) {
                joined(red);
                red.broadcast("to members".getBytes());
                hears(blue, "to members", red.member());
                // A socket in a group binds to nothing else, and hears only members.
                TipcException bound = assertThrows(TipcException.class, () -> socket.bind(service));
                assertEquals(Native.EACCES, bound.errno());
            }
        }
    }

    @Test
    void loopbackAndTheScopeOfTheNode() throws Exception {
        int type = group();
        try (Node node = Node.start(); Group cluster = node.join(type, 6, EVENTS);
                Group own = node.join(type, 7, EVENTS, LOOPBACK, OWN_NODE)) {
            assertEquals(own.member(), joined(own));
            own.broadcast("to myself".getBytes());
            hears(own, "to myself", own.member());
            assertThrows(TipcException.Unreachable.class, () -> cluster.broadcast("nobody".getBytes()));
            assertThrows(SocketTimeoutException.class, () -> cluster.receive(Duration.ZERO));
        }
    }

    @Test
    void missingMembersAreUnreachable() throws Exception {
        int type = group();
        byte[] data = "lost".getBytes();
        try (Node node = Node.start(); Group red = node.join(type, 1, EVENTS);
                PacketSocket stranger = node.packetSocket()) {
            assertThrows(TipcException.Unreachable.class, () -> red.broadcast(data));
            assertThrows(TipcException.Unreachable.class, () -> red.anycast(data, 2));
            assertThrows(TipcException.Unreachable.class, () -> red.multicast(data, 2));
            assertThrows(TipcException.Unreachable.class, () -> red.send(data, stranger.address()));
            Group blue = node.join(type, 2);
            Member closed = joined(red);
            blue.close();
            assertEquals(closed, left(red));
            assertThrows(TipcException.Unreachable.class, () -> red.send(data, closed));
            assertThrows(TipcException.Unreachable.class, () -> red.anycast(data, 2));
            assertThrows(ClosedChannelException.class, () -> blue.broadcast(data));
            assertThrows(ClosedChannelException.class, blue::receive);
        }
    }

    @Test
    void joinReportsWhatTheLibraryRefuses() throws Exception {
        int type = group();
        try (Node node = Node.start(); PacketSocket socket = node.datagramSocket()) {
            assertEquals(Native.EACCES, assertThrows(TipcException.class, () -> node.join(63, 1)).errno());
            Group group = socket.join(type, 1);
            TipcException twice = assertThrows(TipcException.class, () -> socket.join(type, 2));
            assertEquals(Native.EACCES, twice.errno());
            assertEquals(new Member(socket.address(), 1), group.member());
            assertEquals(type, group.type());
            TipcException tooLong =
                assertThrows(TipcException.class, () -> group.broadcast(new byte[Node.MAX_MESSAGE + 1]));
            assertEquals(Native.EMSGSIZE, tooLong.errno());
        }
    }

    @Test
    void longestMessageArrives() throws Exception {
        int type = group();
        byte[] longest = new byte[Node.MAX_MESSAGE];
        for (int at = 0; at < longest.length; at++) {
            longest[at] = (byte) (at * 31);
        }
        try (Node node = Node.start(); Group red = node.join(type, 1, EVENTS); Group blue = node.join(type, -1)) {
            assertEquals(-1, joined(red).instance());
            red.anycast(longest, -1);
            GroupMessage message = assertInstanceOf(GroupMessage.class, blue.receive(Rig.SOON));
            assertArrayEquals(longest, message.data());
        }
    }

    /** Sends until the time limit of a call is over; returns the number of messages sent. */
    private static int fill(Group sender, Rig.Work send) throws Exception {
        send.run();
        sender.setTimeout(SHORT);
        try {
            for (int sent = 1; sent < MANY; sent++) {
                try {
                    send.run();
                } catch (SocketTimeoutException full) {
                    return sent;
                }
            }
        } finally {
            sender.setTimeout(null);
        }
        throw new AssertionError("a member that does not receive stops no sender");
    }

    private static Rig.Task sendsMany(boolean virtual, Rig.Work send) {
        return new Rig.Task(virtual, () -> {
            for (int sent = 0; sent < MANY; sent++) {
                send.run();
            }
        });
    }

    private static void receiveLong(Group group, int count) throws IOException {
        for (int number = 0; number < count; number++) {
            GroupMessage message = assertInstanceOf(GroupMessage.class, group.receive(Rig.SOON));
            assertEquals(LONG.length, message.data().length);
        }
    }

    @Test
    void sendWaitsWhileAMemberDoesNotReceive() throws Exception {
        for (boolean virtual : new boolean[] {false, true}) {
            int type = group();
            try (Node node = Node.start(); Group red = node.join(type, 1, EVENTS); Group slow = node.join(type, 2);
                    Group fast = node.join(type, 3)) {
                assertEquals(Set.of(slow.member(), fast.member()), Set.of(joined(red), joined(red)));
                Member member = slow.member();
                int sent = fill(red, () -> red.send(LONG, member));
                // Members that receive still get messages.
                red.anycast("quick".getBytes(), 3);
                hears(fast, "quick", red.member());
                Rig.Task waiting = sendsMany(virtual, () -> red.send(LONG, member));
                waiting.waits();
                receiveLong(slow, sent + MANY);
                assertNull(waiting.end());

                Rig.Task everybody = sendsMany(virtual, () -> red.broadcast(LONG));
                Rig.Task reader = new Rig.Task(virtual, () -> receiveLong(slow, MANY));
                receiveLong(fast, MANY);
                assertNull(everybody.end());
                assertNull(reader.end());
            }
        }
    }

    @Test
    void sendersToTwoMembersEndWhenBothReceive() throws Exception {
        int type = group();
        try (Node node = Node.start(); Group red = node.join(type, 1, EVENTS); Group first = node.join(type, 2);
                Group second = node.join(type, 3)) {
            joined(red);
            joined(red);
            Rig.Task toFirst = sendsMany(true, () -> red.anycast(LONG, 2));
            Rig.Task toSecond = sendsMany(false, () -> red.anycast(LONG, 3));
            Rig.Task reader = new Rig.Task(true, () -> receiveLong(first, MANY));
            receiveLong(second, MANY);
            for (Rig.Task task : List.of(toFirst, toSecond, reader)) {
                assertNull(task.end());
            }
        }
    }

    @Test
    void waitingSendFailsWhenItsMemberIsClosed() throws Exception {
        for (boolean virtual : new boolean[] {false, true}) {
            int type = group();
            try (Node node = Node.start(); Group red = node.join(type, 1, EVENTS)) {
                Group slow = node.join(type, 2);
                Member member = joined(red);
                Rig.Task waiting = sendsMany(virtual, () -> red.send(LONG, member));
                waiting.waits();
                slow.close();
                assertInstanceOf(TipcException.Unreachable.class, waiting.end());
                assertEquals(member, left(red));
            }
        }
    }

    @Test
    void closeAndInterruptEndWaitingCalls() throws Exception {
        for (boolean virtual : new boolean[] {false, true}) {
            int type = group();
            try (Node node = Node.start(); Group red = node.join(type, 1, EVENTS); Group slow = node.join(type, 2)) {
                Member member = joined(red);
                Rig.Task interrupted = sendsMany(virtual, () -> red.anycast(LONG, 2));
                Rig.Task sending = sendsMany(virtual, () -> red.send(LONG, member));
                Rig.Task receiving = new Rig.Task(virtual, red::receive);
                for (Rig.Task task : List.of(interrupted, sending, receiving)) {
                    task.waits();
                }
                interrupted.thread.interrupt();
                assertInstanceOf(InterruptedIOException.class, interrupted.end());
                red.close();
                assertInstanceOf(ClosedChannelException.class, sending.end());
                assertInstanceOf(ClosedChannelException.class, receiving.end());
                assertTrue(red.isClosed());
            }
        }
    }

    @Test
    void messagesOfEachMemberArriveInOrder() throws Exception {
        int type = group();
        int members = 8;
        int rounds = 50;
        try (Node node = Node.start(); Group red = node.join(type, 1, EVENTS)) {
            List<Rig.Task> tasks = new ArrayList<>();
            for (int number = 0; number < members; number++) {
                int instance = 100 + number;
                tasks.add(new Rig.Task(true, () -> {
                    try (Group own = node.join(type, instance)) {
                        // The first message says that all members have joined.
                        GroupMessage start = (GroupMessage) own.receive(Rig.SOON);
                        for (int round = 0; round < rounds; round++) {
                            byte[] data = Integer.toString(round).getBytes();
                            if (round % 2 == 0) {
                                own.send(data, start.member());
                            } else {
                                own.anycast(data, 1);
                            }
                        }
                    }
                }));
            }
            for (int number = 0; number < members; number++) {
                joined(red);
            }
            red.broadcast("start".getBytes());
            int[] next = new int[members];
            int gone = 0;
            while (gone < members) {
                switch (red.receive(Rig.SOON)) {
                    case GroupMessage message -> {
                        int sender = message.member().instance() - 100;
                        assertEquals(Integer.toString(next[sender]++), message.text());
                    }
                    case Left(Member member) -> {
                        assertEquals(rounds, next[member.instance() - 100]);
                        gone++;
                    }
                    case Joined joined -> throw new AssertionError(joined);
                    case Evicted evicted -> throw new AssertionError(evicted);
                }
            }
            for (Rig.Task task : tasks) {
                assertNull(task.end());
            }
        }
    }
}
