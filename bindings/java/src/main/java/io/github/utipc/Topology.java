// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.io.IOException;
import java.time.Duration;

/** A subscription to changes of services, nodes and links. */
public final class Topology implements AutoCloseable {
    private static final int TOPOLOGY_SERVER = 1;
    private static final int NODE_STATE = 0;
    private static final int LINK_STATE = 2;
    /** Words of struct tipc_subscr and struct tipc_event. */
    private static final int SUBSCRIPTION_WORDS = 7;
    private static final int EVENT_WORDS = 5 + SUBSCRIPTION_WORDS;
    private static final int NO_LIMIT = -1;
    private static final int EVERY_BINDING = 1;
    private static final int EXPIRED = 3;

    private final Connection connection;

    private Topology(Connection connection) {
        this.connection = connection;
    }

    static Topology open(Node node, int of) throws IOException {
        Address server = new ServiceAddress(TOPOLOGY_SERVER, TOPOLOGY_SERVER, of);
        return new Topology(Connection.open(node, Native.SEQPACKET, server, null));
    }

    /** Subscribes to the bindings that overlap the service; existing bindings are also reported as events. */
    public void services(Service service) throws IOException {
        subscribe(service.type(), service.lower(), service.upper());
    }

    /** Subscribes to the nodes of the cluster, including this one. */
    public void nodes() throws IOException {
        subscribe(NODE_STATE, 0, -1);
    }

    /** Subscribes to the links of the node. */
    public void links() throws IOException {
        subscribe(LINK_STATE, 0, -1);
    }

    private void subscribe(int type, int lower, int upper) throws IOException {
        int[] words = {type, lower, upper, NO_LIMIT, EVERY_BINDING, 0, 0};
        connection.untilWritable(scratch -> {
            for (int at = 0; at < words.length; at++) {
                scratch.data.set(JAVA_INT, 4L * at, words[at]);
            }
            int sent = (int) Native.SEND.invokeExact(scratch.state, connection.sd, scratch.data, 4L * words.length);
            return Socket.orAgain(sent, scratch);
        });
    }

    /** Waits for an event. */
    public Event next() throws IOException {
        return next(Duration.ofSeconds(Long.MAX_VALUE));
    }

    /** Waits for an event, for at most the given time. No event is lost by a time-out. */
    public Event next(Duration limit) throws IOException {
        Event[] event = new Event[1];
        long end = System.nanoTime() + Math.min(Socket.nanos(limit), Long.MAX_VALUE / 2);
        while (event[0] == null) {
            Duration left = Duration.ofNanos(end - System.nanoTime());
            connection.untilReadable(left, scratch -> take(scratch, event));
        }
        return event[0];
    }

    private int take(Scratch scratch, Event[] event) throws Throwable {
        long size = 4L * EVENT_WORDS;
        int got = Socket.orAgain(
            (int) Native.RECV.invokeExact(scratch.state, connection.sd, scratch.data, size, false), scratch);
        if (got == Socket.AGAIN) {
            return got;
        }
        if (got != size) {
            throw new TipcException.ConnectionLost(Native.ECONNRESET, "the topology server closed the connection (an "
                + "invalid subscription, too many subscriptions, unread events, or contact lost): open a Topology again");
        }
        int[] words = new int[EVENT_WORDS];
        for (int at = 0; at < words.length; at++) {
            words[at] = scratch.data.get(JAVA_INT, 4L * at);
        }
        // Subscriptions of this package have no time limit.
        if (words[0] != EXPIRED) {
            event[0] = Event.of(words[0], words[1], words[2], words[3], words[4], words[5]);
        }
        return got;
    }

    /** Ends the subscriptions. Calls of other threads fail with {@link java.nio.channels.ClosedChannelException}. */
    @Override
    public void close() {
        connection.close();
    }
}
