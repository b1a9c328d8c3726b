// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/**
 * A membership in a communication group: a set of sockets on any nodes that send to one another. {@link Node#join}
 * opens it.
 *
 * <p>A message goes to one member ({@link #send}, {@link #anycast}), to all members with an instance
 * ({@link #multicast}) or to all ({@link #broadcast}). Each member receives the messages of one sender exactly once and
 * in the order in which they were sent, over all four calls, as long as both are members. Closing the value leaves the
 * group; the other members get an event.
 *
 * <p>A send waits while the window of a member that it goes to is full, because that member does not receive; a
 * {@link Policy} says otherwise. A send fails with {@link TipcException.Unreachable} if no member matches, and
 * with {@link TipcException.Evicted} if this one was evicted.
 */
public final class Group implements AutoCloseable {
    /** How a socket joins a group. */
    public enum Option {
        /** Receive {@link Joined}, {@link Left} and {@link Evicted}. */
        EVENTS,
        /** Receive the socket's own messages too. */
        LOOPBACK,
        /** Only sockets of the own node are members. */
        OWN_NODE
    }

    private static final int LONGEST_REASON = 256;

    private final PacketSocket socket;
    private final int type;
    private final int instance;

    private Group(PacketSocket socket, int type, int instance) {
        this.socket = socket;
        this.type = type;
        this.instance = instance;
    }

    static Group join(PacketSocket socket, int type, int instance, Policy policy, Option[] options)
        throws IOException {
        List<Option> set = List.of(options);
        boolean events = set.contains(Option.EVENTS);
        boolean loopback = set.contains(Option.LOOPBACK);
        int scope = set.contains(Option.OWN_NODE) ? socket.node.address() : 0;
        socket.control(scratch -> {
            scratch.destination(new ServiceAddress(type, instance, scope));
            MemorySegment with = MemorySegment.NULL;
            if (policy != null) {
                scratch.policy(policy);
                with = scratch.number;
            }
            int done = (int) Native.JOIN.invokeExact(scratch.state, socket.sd, scratch.first, events, loopback, with);
            return Native.checked(done, scratch);
        });
        return new Group(socket, type, instance);
    }

    /** The group: a service type. */
    public int type() {
        return type;
    }

    /** This member: its socket's address and its instance. */
    public Member member() throws IOException {
        return new Member(socket.address(), instance);
    }

    /** The socket, for its options. */
    public PacketSocket socket() {
        return socket;
    }

    /** Sends to all members; to this member only with {@link Option#LOOPBACK}. */
    public void broadcast(byte[] data) throws IOException {
        transmit(data, scratch ->
            (int) Native.SEND.invokeExact(scratch.state, socket.sd, scratch.data, (long) data.length));
    }

    /** Sends to all members with an instance. */
    public void multicast(byte[] data, int to) throws IOException {
        sendTo(data, new ServiceRange(type, to, to));
    }

    /** Sends to one of the members with an instance, the one with the least unread; equals take turns. */
    public void anycast(byte[] data, int to) throws IOException {
        sendTo(data, new ServiceAddress(type, to));
    }

    /** Sends to one member. */
    public void send(byte[] data, Member to) throws IOException {
        send(data, to.port());
    }

    /** Sends to the member with that socket. */
    public void send(byte[] data, PortId to) throws IOException {
        sendTo(data, to);
    }

    /**
     * As {@link #broadcast}, with a key: with {@link Policy.Conflate} the message replaces the one with the same key
     * that a slow member has yet to get. Other policies ignore the key. Calls without a key send with key 0.
     */
    public void broadcastKeyed(byte[] data, long key) throws IOException {
        transmit(data, scratch -> (int) Native.SEND_KEYED.invokeExact(scratch.state, socket.sd, scratch.data,
            (long) data.length, MemorySegment.NULL, key));
    }

    /** As {@link #multicast}, with a key as for {@link #broadcastKeyed}. */
    public void multicastKeyed(byte[] data, int to, long key) throws IOException {
        transmit(data, scratch -> {
            scratch.destination(new ServiceRange(type, to, to));
            return (int) Native.MCAST_KEYED.invokeExact(scratch.state, socket.sd, scratch.data, (long) data.length,
                scratch.first, key);
        });
    }

    /** As {@link #send(byte[], Member)}, with a key as for {@link #broadcastKeyed}. */
    public void sendKeyed(byte[] data, Member to, long key) throws IOException {
        sendKeyed(data, to.port(), key);
    }

    /** As {@link #send(byte[], PortId)}, with a key as for {@link #broadcastKeyed}. */
    public void sendKeyed(byte[] data, PortId to, long key) throws IOException {
        transmit(data, scratch -> {
            scratch.destination(to);
            return (int) Native.SEND_KEYED.invokeExact(scratch.state, socket.sd, scratch.data, (long) data.length,
                scratch.first, key);
        });
    }

    private void sendTo(byte[] data, Address to) throws IOException {
        try {
            socket.send(data, to);
        } catch (TipcException failure) {
            throw named(failure);
        }
    }

    private void transmit(byte[] data, Socket.Attempt call) throws IOException {
        Connection.checkLength(data.length);
        try {
            socket.untilWritable(scratch -> {
                scratch.put(data, 0, data.length);
                return Socket.orAgain(call.run(scratch), scratch);
            });
        } catch (TipcException failure) {
            throw named(failure);
        }
    }

    /** The failure of a send. On a connection the number of an eviction has another meaning. */
    private static TipcException named(TipcException failure) {
        return failure.errno() == Native.ECONNABORTED
            ? new TipcException.Evicted(failure.errno(), failure.getMessage())
            : failure;
    }

    /**
     * The messages that a slow member has missed from this one. Fails with {@link TipcException.Unreachable} if it is
     * not a member: the counters end with the membership.
     */
    public SlowCounters slowCounters(Member of) throws IOException {
        return slowCounters(of.port());
    }

    /** As {@link #slowCounters(Member)}, for the member with that socket. */
    public SlowCounters slowCounters(PortId of) throws IOException {
        SlowCounters[] counters = new SlowCounters[1];
        socket.control(scratch -> {
            scratch.destination(of);
            MemorySegment counted = scratch.second;
            int done = Native.checked((int) Native.SLOW_MEMBER.invokeExact(scratch.state, socket.sd, scratch.first,
                counted.asSlice(0, 8), counted.asSlice(8, 8), scratch.number), scratch);
            counters[0] = new SlowCounters(counted.get(JAVA_LONG, 0), counted.get(JAVA_LONG, 8),
                scratch.number.get(JAVA_INT, 0));
            return done;
        });
        return counters[0];
    }

    /**
     * Waits for a message, or with {@link Option#EVENTS} for a member that joins, leaves or is evicted. Messages of one
     * member arrive in order, and so do its joining and leaving among them.
     */
    public GroupIncoming receive() throws IOException {
        GroupIncoming[] incoming = new GroupIncoming[1];
        socket.untilReadable(scratch -> take(scratch, incoming));
        return incoming[0];
    }

    /** As {@link #receive()}, with a maximum wait. Nothing is lost by a time-out. */
    public GroupIncoming receive(Duration limit) throws IOException {
        GroupIncoming[] incoming = new GroupIncoming[1];
        socket.untilReadable(limit, scratch -> take(scratch, incoming));
        return incoming[0];
    }

    /** Skips messages from before the join, which name no member of the group. */
    private int take(Scratch scratch, GroupIncoming[] incoming) throws Throwable {
        while (true) {
            int length = Socket.orAgain((int) Native.RECVGROUP.invokeExact(scratch.state, socket.sd, scratch.data,
                (long) Scratch.LONGEST, scratch.first, scratch.second, scratch.number), scratch);
            if (length == Socket.AGAIN) {
                return length;
            }
            int kind = scratch.number.get(JAVA_INT, 0);
            if (scratch.second.get(JAVA_INT, 0) == type && kind != 0) {
                Member member = new Member(Scratch.port(scratch.first), scratch.second.get(JAVA_INT, 4));
                incoming[0] = incoming(scratch, length, kind, member);
                return length;
            }
        }
    }

    /** By the kinds of utipc_recvgroup. */
    private static GroupIncoming incoming(Scratch scratch, int length, int kind, Member member) {
        SentTo sentTo = switch (kind) {
            case 1 -> SentTo.MEMBER;
            case 2 -> SentTo.INSTANCE;
            case 3 -> SentTo.ALL;
            case 4 -> SentTo.UNKNOWN;
            default -> null;
        };
        if (sentTo == null) {
            return switch (kind) {
                case 5 -> new Joined(member);
                case 6 -> new Left(member);
                default -> new Evicted(member);
            };
        }
        byte[] data = new byte[length];
        scratch.get(data, 0, length);
        return new GroupMessage(data, member, sentTo, scratch.number.get(JAVA_INT, 4) != 0);
    }

    /**
     * What a call of this group would wait for now, or waits for in another thread: in a send the member that has no
     * window left or has not acknowledged. Empty if no call would wait.
     */
    public Optional<WaitReason> waitReason() throws IOException {
        WaitReason[] reason = new WaitReason[1];
        socket.control(scratch -> {
            int waits = Native.checked((int) Native.WAIT_REASON.invokeExact(scratch.state, socket.sd, scratch.data,
                (long) LONGEST_REASON, scratch.first), scratch);
            if (waits > 0) {
                PortId member = Scratch.port(scratch.first);
                reason[0] = new WaitReason(scratch.text(LONGEST_REASON),
                    member.port() == 0 ? Optional.empty() : Optional.of(member));
            }
            return waits;
        });
        return Optional.ofNullable(reason[0]);
    }

    /**
     * Leaves the group and returns the socket, which can join again. Messages that have arrived can still be received.
     * Closing this value closes the socket.
     */
    public PacketSocket leave() throws IOException {
        socket.control(scratch ->
            Native.checked((int) Native.LEAVE_GROUP.invokeExact(scratch.state, socket.sd), scratch));
        return socket;
    }

    /**
     * Sets how long calls wait; they then fail with {@link java.net.SocketTimeoutException}. Without it, or with null,
     * they wait without a limit.
     */
    public void setTimeout(Duration limit) {
        socket.setTimeout(limit);
    }

    /** Whether {@link #close} was called. */
    public boolean isClosed() {
        return socket.isClosed();
    }

    /**
     * Leaves the group and closes the socket. Calls of other threads fail with
     * {@link java.nio.channels.ClosedChannelException}.
     */
    @Override
    public void close() {
        socket.close();
    }
}
