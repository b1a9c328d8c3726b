// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/**
 * A membership in a communication group: a set of sockets on any nodes that send to one another. {@link Node#join}
 * opens it.
 *
 * <p>A message goes to one member ({@link #send}, {@link #anycast}), to all members with an instance
 * ({@link #multicast}) or to all ({@link #broadcast}). Each member receives the messages of one sender in the order in
 * which they were sent, over all four calls, none twice and none left out, as long as both are members. Closing the
 * value leaves the group, which the other members are told.
 *
 * <p>A send waits while the window of a member that it goes to is full, because that member does not receive. A send
 * fails with {@link TipcException.Unreachable} if there is no such member.
 */
public final class Group implements AutoCloseable {
    /** How a socket joins a group. */
    public enum Option {
        /** Receive {@link Joined} and {@link Left}. */
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

    static Group join(PacketSocket socket, int type, int instance, Option[] options) throws IOException {
        List<Option> set = List.of(options);
        boolean events = set.contains(Option.EVENTS);
        boolean loopback = set.contains(Option.LOOPBACK);
        int scope = set.contains(Option.OWN_NODE) ? socket.node.address() : 0;
        socket.control(scratch -> {
            scratch.destination(new ServiceAddress(type, instance, scope));
            int done = (int) Native.JOIN.invokeExact(scratch.state, socket.sd, scratch.first, events, loopback);
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

    /** Sends to all members; to this one only with {@link Option#LOOPBACK}. */
    public void broadcast(byte[] data) throws IOException {
        Connection.checkLength(data.length);
        socket.untilWritable(scratch -> {
            scratch.put(data, 0, data.length);
            int sent = (int) Native.SEND.invokeExact(scratch.state, socket.sd, scratch.data, (long) data.length);
            return Socket.orAgain(sent, scratch);
        });
    }

    /** Sends to all members with an instance. */
    public void multicast(byte[] data, int to) throws IOException {
        socket.send(data, new ServiceRange(type, to, to));
    }

    /** Sends to one of the members with an instance, the one with the least unread; equals take turns. */
    public void anycast(byte[] data, int to) throws IOException {
        socket.send(data, new ServiceAddress(type, to));
    }

    /** Sends to one member. */
    public void send(byte[] data, Member to) throws IOException {
        send(data, to.port());
    }

    /** Sends to the member with that socket. */
    public void send(byte[] data, PortId to) throws IOException {
        socket.send(data, to);
    }

    /**
     * Waits for a message, or with {@link Option#EVENTS} for a member that joins or leaves. Messages of one member
     * arrive in order, and so do its joining and leaving among them.
     */
    public GroupIncoming receive() throws IOException {
        GroupIncoming[] incoming = new GroupIncoming[1];
        socket.untilReadable(scratch -> take(scratch, incoming));
        return incoming[0];
    }

    /** As {@link #receive()}, waiting at most so long. Nothing is lost by a time-out. */
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
            return kind == 5 ? new Joined(member) : new Left(member);
        }
        byte[] data = new byte[length];
        scratch.get(data, 0, length);
        return new GroupMessage(data, member, sentTo);
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
     * Leaves the group and returns the socket, which can join again. What has arrived can still be received. Closing
     * this value closes the socket.
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
