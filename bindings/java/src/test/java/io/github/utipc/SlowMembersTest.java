// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import static io.github.utipc.Group.Option.EVENTS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.SocketTimeoutException;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Policies for slow members of groups, between sockets of one node. */
class SlowMembersTest {
    private static final int LONG = 60_000;

    /** A group that no other test uses. */
    private static int group() {
        return 2_000_000 + Rig.service().instance();
    }

    /** Members with these policies, instances 1, 2 and so on, which all know one another. A closed node closes them. */
    private static List<Group> members(Node node, Policy... policies) throws IOException {
        int type = group();
        List<Group> all = new ArrayList<>();
        for (Policy policy : policies) {
            all.add(node.join(type, all.size() + 1, policy, EVENTS));
        }
        for (Group group : all) {
            for (int other = 1; other < all.size(); other++) {
                assertInstanceOf(Joined.class, group.receive(Rig.SOON));
            }
        }
        return all;
    }

    /** A long message that begins with the text. */
    private static byte[] padded(String text) {
        return Arrays.copyOf(text.getBytes(), LONG);
    }

    private static byte[] numbered(int number) {
        return padded(Integer.toString(number));
    }

    private static GroupMessage message(Group group) throws IOException {
        return assertInstanceOf(GroupMessage.class, group.receive(Rig.SOON));
    }

    private static String text(GroupMessage message) {
        return message.text().replace("\0", "");
    }

    private static void hears(Group group, String text, boolean afterLoss) throws IOException {
        GroupMessage message = message(group);
        assertEquals(text, text(message));
        assertEquals(afterLoss, message.afterLoss(), text);
    }

    /** Receives messages until something else arrives. */
    private static GroupIncoming event(Group group) throws IOException {
        while (true) {
            GroupIncoming incoming = group.receive(Rig.SOON);
            if (!(incoming instanceof GroupMessage)) {
                return incoming;
            }
        }
    }

    @Test
    void messagesForASlowMemberAreDroppedAndCounted() throws Exception {
        int messages = 60;
        try (Node node = Node.start()) {
            List<Group> all = members(node, new Policy.Drop(), null, new Policy.Wait());
            Group red = all.get(0);
            Group reads = all.get(1);
            Group slow = all.get(2);
            for (int number = 0; number < messages; number++) {
                red.broadcast(numbered(number));
                GroupMessage message = message(reads);
                assertEquals(Integer.toString(number), text(message));
                // A copy is a broadcast for its receiver.
                assertEquals(SentTo.ALL, message.sentTo());
                assertFalse(message.afterLoss());
            }
            SlowCounters counters = red.slowCounters(slow.member());
            assertTrue(counters.dropped() > messages / 2, counters.toString());
            assertEquals(new SlowCounters(counters.dropped(), 0, 0), counters);
            assertEquals(new SlowCounters(0, 0, 0), red.slowCounters(reads.member()));
            for (int number = 0; number < messages - counters.dropped(); number++) {
                hears(slow, Integer.toString(number), false);
            }
            // It has a window again as soon as the sender learns of it.
            long dropped;
            long end = System.nanoTime() + Rig.SOON.toNanos();
            do {
                assertTrue(System.nanoTime() < end);
                Thread.sleep(5);
                dropped = red.slowCounters(slow.member()).dropped();
                red.send("one".getBytes(), slow.member());
            } while (red.slowCounters(slow.member()).dropped() > dropped);
            red.broadcast("all".getBytes());
            GroupMessage one = message(slow);
            assertEquals("one", text(one));
            assertEquals(SentTo.MEMBER, one.sentTo());
            assertTrue(one.afterLoss());
            hears(slow, "all", false);
            hears(reads, "all", false);
        }
    }

    @Test
    void slowMemberGetsTheNewestMessageOfEachKey() throws Exception {
        int messages = 40;
        try (Node node = Node.start()) {
            List<Group> all = members(node, new Policy.Conflate(), new Policy.Wait());
            Group red = all.get(0);
            Group slow = all.get(1);
            for (int number = 0; number < messages; number++) {
                red.broadcastKeyed(numbered(number), number % 3);
            }
            SlowCounters counters = red.slowCounters(slow.member());
            assertTrue(counters.conflated() > messages / 2, counters.toString());
            assertEquals(new SlowCounters(0, counters.conflated(), 3), counters);
            List<GroupMessage> received = new ArrayList<>();
            for (int number = 0; number < messages - counters.conflated(); number++) {
                received.add(message(slow));
            }
            List<GroupMessage> newest = received.subList(received.size() - 3, received.size());
            assertEquals(List.of("37", "38", "39"), newest.stream().map(SlowMembersTest::text).toList());
            assertEquals(1, received.stream().filter(GroupMessage::afterLoss).count());
            red.multicastKeyed("two".getBytes(), 2, 7);
            red.sendKeyed("one".getBytes(), slow.member(), 7);
            hears(slow, "two", false);
            hears(slow, "one", false);
            // Without that policy the key has no effect.
            slow.broadcastKeyed("back".getBytes(), -1);
            hears(red, "back", false);
            assertThrows(TipcException.Unreachable.class,
                () -> red.sendKeyed("x".getBytes(), new PortId(1, node.address()), 7));
        }
    }

    @Test
    void slowMemberIsEvictedAndAllLearnWhy() throws Exception {
        Policy evict = new Policy.Evict(Duration.ofMillis(200));
        try (Node node = Node.start()) {
            List<Group> all = members(node, evict, new Policy.Drop(), null, evict);
            Group red = all.get(0);
            Group slow = all.get(3);
            Member member = slow.member();
            List<GroupIncoming> events = new ArrayList<>();
            for (int number = 0; isMember(red, member); number++) {
                assertTrue(number < 100, "a member that does not receive is not evicted");
                // The send that waits for the slow member continues without it.
                red.broadcast(numbered(number));
                for (Group reader : all.subList(1, 3)) {
                    GroupIncoming incoming = reader.receive(Rig.SOON);
                    if (!(incoming instanceof GroupMessage)) {
                        events.add(incoming);
                        incoming = reader.receive(Rig.SOON);
                    }
                    assertEquals(Integer.toString(number), text(assertInstanceOf(GroupMessage.class, incoming)));
                }
            }
            assertEquals(new Evicted(member), red.receive(Rig.SOON));
            while (events.size() < 2) {
                events.add(all.get(events.contains(new Evicted(member)) ? 2 : 1).receive(Rig.SOON));
            }
            // Without a policy a member does not learn the reason.
            assertEquals(Set.of(new Evicted(member), new Left(member)), Set.copyOf(events));

            // The member that was evicted reads what has arrived, and then that it was.
            TipcException refused = assertThrows(TipcException.Evicted.class, () -> slow.broadcast("x".getBytes()));
            assertEquals(Native.ECONNABORTED, refused.errno());
            assertTrue(refused.getMessage().contains("evicted"), refused.getMessage());
            assertThrows(TipcException.Evicted.class, () -> slow.anycast("x".getBytes(), 1));
            assertThrows(TipcException.Evicted.class, () -> slow.broadcastKeyed("x".getBytes(), 1));
            assertEquals(new Evicted(member), event(slow));

            // It joins again with the same socket.
            Group again = slow.leave().join(red.type(), 5, evict);
            assertEquals(new Joined(again.member()), red.receive(Rig.SOON));
            red.multicast("again".getBytes(), 5);
            hears(again, "again", false);
        }
    }

    private static boolean isMember(Group group, Member member) throws IOException {
        try {
            group.slowCounters(member);
            return true;
        } catch (TipcException.Unreachable gone) {
            return false;
        }
    }

    @Test
    void memberThatDoesNotAcceptItIsLeftOutByItsEvictor() throws Exception {
        try (Node node = Node.start()) {
            List<Group> all = members(node, new Policy.Evict(Duration.ofMillis(100)), null);
            Group red = all.get(0);
            Group slow = all.get(1);
            Member member = slow.member();
            assertThrows(TipcException.Unreachable.class, () -> {
                for (int number = 0; number < 100; number++) {
                    red.send(numbered(number), member);
                }
            });
            assertEquals(new Evicted(member), red.receive(Rig.SOON));
            assertEquals(new Left(red.member()), event(slow));
        }
    }

    /** Binds a socket to the type of the group, and waits until the sender knows it. */
    private static void bindStranger(Node node, Group sender) throws Exception {
        PacketSocket stranger = node.packetSocket(new ServiceAddress(sender.type(), 9));
        Member bound = new Member(stranger.address(), 9);
        long end = System.nanoTime() + Rig.SOON.toNanos();
        while (!isMember(sender, bound)) {
            assertTrue(System.nanoTime() < end);
            Thread.sleep(5);
        }
    }

    @Test
    void socketThatNeverJoinsBlocksNoSend() throws Exception {
        try (Node node = Node.start()) {
            List<List<Group>> groups = new ArrayList<>();
            for (Policy policy : List.of(new Policy.Wait(), new Policy.Drop(), new Policy.Conflate(),
                    new Policy.Evict(Duration.ofHours(1)))) {
                groups.add(members(node, policy, null));
            }
            Group linux = members(node, null, null).get(0);
            for (List<Group> members : groups) {
                bindStranger(node, members.get(0));
            }
            bindStranger(node, linux);
            for (List<Group> members : groups) {
                // The socket may still join; sends with a policy that waits do so for that time only.
                for (String text : List.of("first", "second")) {
                    members.get(0).broadcast(text.getBytes());
                    hears(members.get(1), text, false);
                }
            }
            linux.setTimeout(Duration.ofMillis(50));
            assertThrows(SocketTimeoutException.class, () -> linux.broadcast("x".getBytes()));
            assertTrue(linux.waitReason().isPresent());
        }
    }

    @Test
    void joinNamesWhatIsWrongWithAPolicy() throws Exception {
        try (Node node = Node.start(); PacketSocket socket = node.packetSocket()) {
            for (Policy policy : List.of(new Policy.Conflate(65_537, 0), new Policy.Conflate(-1, 0),
                    new Policy.Conflate(0, (64 << 20) + 1), new Policy.Evict(Duration.ZERO),
                    new Policy.Evict(Duration.ofMillis(-1)), new Policy.Evict(Duration.ofHours(1).plusNanos(1)),
                    new Policy.Evict(Duration.ofSeconds(Long.MAX_VALUE)))) {
                TipcException refused = assertThrows(TipcException.class, () -> socket.join(group(), 1, policy));
                assertEquals(Native.EINVAL, refused.errno(), policy.toString());
                assertTrue(refused.getMessage().contains("policy out of range"), refused.getMessage());
            }
            NullPointerException missing = assertThrows(NullPointerException.class, () -> new Policy.Evict(null));
            assertTrue(missing.getMessage().contains("limit"), missing.getMessage());
            // The socket is still free to join.
            Group group = socket.join(group(), 1, new Policy.Conflate(65_536, 64 << 20));
            PortId nobody = new PortId(1, node.address());
            assertThrows(TipcException.Unreachable.class, () -> group.slowCounters(nobody));
            group.close();
            assertThrows(ClosedChannelException.class, () -> group.slowCounters(nobody));
            node.join(group(), 1, new Policy.Evict(Duration.ofNanos(1))).close();
        }
    }
}
