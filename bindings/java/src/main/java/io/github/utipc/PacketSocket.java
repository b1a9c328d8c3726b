// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import java.io.IOException;
import java.time.Duration;

/** Sends and receives messages without a connection. */
public final class PacketSocket extends Socket {
    private PacketSocket(Node node, int sd) throws IOException {
        super(node, sd);
    }

    static PacketSocket open(Node node, int kind, Service[] services) throws IOException {
        node.check();
        PacketSocket socket = new PacketSocket(node, Native.openSocket(kind));
        try {
            for (Service service : services) {
                socket.bind(service);
            }
            return socket;
        } catch (IOException failure) {
            socket.close();
            throw failure;
        }
    }

    /** Adds a binding. A socket may have many. */
    public void bind(Service service) throws IOException {
        Bindings.bind(this, service);
    }

    /** Removes a binding. */
    public void unbind(Service service) throws IOException {
        control(scratch -> Native.checked((int) Native.UNBIND.invokeExact(scratch.state, sd, service.type(),
            service.lower(), service.upper()), scratch));
    }

    /**
     * Joins a group (64 or more) with an instance, which other members may share. The socket then sends to members and
     * hears only them, and binds to nothing else: use the returned value to send and receive. A socket is in one group.
     */
    public Group join(int type, int instance, Group.Option... options) throws IOException {
        return Group.join(this, type, instance, null, options);
    }

    /** As {@link #join(int, int, Group.Option...)}, with a policy for slow members; null: as on Linux. */
    public Group join(int type, int instance, Policy policy, Group.Option... options) throws IOException {
        return Group.join(this, type, instance, policy, options);
    }

    /**
     * Sends a message of at most {@link Node#MAX_MESSAGE} bytes to one of the sockets bound to a {@link ServiceAddress},
     * to all sockets bound in a {@link ServiceRange}, or to the socket of a {@link PortId}.
     */
    public void send(byte[] data, Address to) throws IOException {
        Connection.checkLength(data.length);
        untilWritable(scratch -> {
            scratch.put(data, 0, data.length);
            scratch.destination(to);
            long length = data.length;
            int sent = to instanceof ServiceRange
                ? (int) Native.MCAST.invokeExact(scratch.state, sd, scratch.data, length, scratch.first)
                : (int) Native.SENDTO.invokeExact(scratch.state, sd, scratch.data, length, scratch.first);
            return orAgain(sent, scratch);
        });
    }

    /** Waits for a message. */
    public Message receive() throws IOException {
        Message[] message = new Message[1];
        untilReadable(scratch -> take(scratch, message));
        return message[0];
    }

    /** Waits for a message, for at most the given time. */
    public Message receive(Duration limit) throws IOException {
        Message[] message = new Message[1];
        untilReadable(limit, scratch -> take(scratch, message));
        return message[0];
    }

    private int take(Scratch scratch, Message[] message) throws Throwable {
        int length = orAgain((int) Native.RECVFROM.invokeExact(scratch.state, sd, scratch.data, (long) Scratch.LONGEST,
            scratch.first, scratch.second, scratch.number), scratch);
        if (length != AGAIN) {
            byte[] data = new byte[length];
            scratch.get(data, 0, length);
            int reason = scratch.number.get(java.lang.foreign.ValueLayout.JAVA_INT, 0);
            message[0] = new Message(data, Scratch.port(scratch.first), Scratch.range(scratch.second),
                Message.Returned.of(reason));
        }
        return length;
    }

    /** Makes the node return the messages of this socket that it cannot deliver; see {@link Message#returned}. */
    public void returnUndelivered() throws IOException {
        control(scratch -> Native.checked((int) Native.REJECTABLE.invokeExact(scratch.state, sd), scratch));
    }

    /** Sets the importance of messages under congestion, 0 (low, the default) to 3 (critical). */
    public void setImportance(int importance) throws IOException {
        control(scratch ->
            Native.checked((int) Native.IMPORTANCE.invokeExact(scratch.state, sd, importance), scratch));
    }
}
