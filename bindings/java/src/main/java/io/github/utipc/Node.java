// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * A TIPC node. It is the node of this host's daemon if one runs; otherwise this process is a node that finds the other
 * nodes of this user on this host. The environment variables UTIPC_ENGINE, UTIPC_SOCKET and UTIPC_INSTANCE choose. A
 * process has one node; every {@link #start} returns a value for that node.
 */
public final class Node implements AutoCloseable {
    /** Size of the longest message, bytes. */
    public static final int MAX_MESSAGE = Scratch.LONGEST;

    private static final Object SHARED = new Object();
    private static Poller poller;
    private static int nodes;

    private final int address;
    private final Set<Socket> sockets = new HashSet<>();
    private boolean closed;

    private Node(int address) {
        this.address = address;
    }

    /** Starts a node, or attaches to the daemon's. */
    public static Node start() throws IOException {
        synchronized (SHARED) {
            int address;
            try {
                address = (int) Native.OWN_NODE.invokeExact();
            } catch (Throwable failure) {
                throw Native.unexpected(failure);
            }
            if (address == 0) {
                throw Native.failure(0);
            }
            if (poller == null) {
                poller = new Poller();
            }
            nodes++;
            return new Node(address);
        }
    }

    /** The version of the C library. */
    public static String version() {
        return Native.version();
    }

    /** The address of the node. */
    public int address() {
        return address;
    }

    /** The address in hexadecimal, as all tools print it. */
    @Override
    public String toString() {
        return Text.node(address);
    }

    /** Opens a socket for messages (SOCK_RDM) that is bound to the services: a sender waits while the queue is full. */
    public PacketSocket packetSocket(Service... services) throws IOException {
        return PacketSocket.open(this, Native.RDM, services);
    }

    /** As {@link #packetSocket}, for messages that are dropped when a queue is full (SOCK_DGRAM). */
    public PacketSocket datagramSocket(Service... services) throws IOException {
        return PacketSocket.open(this, Native.DGRAM, services);
    }

    /**
     * Opens a socket (SOCK_RDM) and joins a group (64 or more) with an instance, which other members may share. It does
     * not wait for other members.
     */
    public Group join(int type, int instance, Group.Option... options) throws IOException {
        return join(type, instance, null, options);
    }

    /** As {@link #join(int, int, Group.Option...)}, with a policy for slow members; null: as on Linux. */
    public Group join(int type, int instance, Policy policy, Group.Option... options) throws IOException {
        PacketSocket socket = packetSocket();
        try {
            return socket.join(type, instance, policy, options);
        } catch (IOException failure) {
            socket.close();
            throw failure;
        }
    }

    /** Binds a service and accepts connections that carry bytes. Several listeners of a service share connections. */
    public Listener listen(Service service) throws IOException {
        return Listener.open(this, Native.STREAM, service);
    }

    /** As {@link #listen}, for connections that carry messages. */
    public Listener listenMessages(Service service) throws IOException {
        return Listener.open(this, Native.SEQPACKET, service);
    }

    /** Connects to a service, or to the socket of a port, and carries bytes; waits at most 8 s until it is accepted. */
    public Connection connect(Address to) throws IOException {
        return Connection.open(this, Native.STREAM, to, null);
    }

    /** As {@link #connect(Address)}, with a time limit of 1 ms to 65 s. */
    public Connection connect(Address to, Duration limit) throws IOException {
        return Connection.open(this, Native.STREAM, to, limit);
    }

    /** Connects as {@link #connect(Address)}, and carries messages. */
    public Connection connectMessages(Address to) throws IOException {
        return Connection.open(this, Native.SEQPACKET, to, null);
    }

    /**
     * Requests a connection that carries bytes with its first data, 1 to 66000 bytes, which saves a round trip. It does
     * not wait: the first read returns the reply, or why the connection failed. A send waits until the
     * server has accepted.
     */
    public Connection connectWith(Address to, byte[] first) throws IOException {
        return Connection.request(this, to, first);
    }

    /** Connects to the topology server of this node. */
    public Topology topology() throws IOException {
        return topology(0);
    }

    /** Connects to the topology server of another node. */
    public Topology topology(int of) throws IOException {
        return Topology.open(this, of);
    }

    /** Waits until a service is bound, on the address's node unless that is 0. */
    public void waitFor(ServiceAddress service, Duration limit) throws IOException {
        long end = System.nanoTime() + Math.min(Socket.nanos(limit), Long.MAX_VALUE / 2);
        try (Topology topology = topology()) {
            topology.services(service);
            while (true) {
                Event event = topology.next(Duration.ofNanos(end - System.nanoTime()));
                if (event.change() == Event.Change.SERVICE_UP
                    && (service.node() == 0 || service.node() == event.node())) {
                    return;
                }
            }
        }
    }

    long add(Socket socket, int sd) throws IOException {
        synchronized (SHARED) {
            if (closed) {
                throw new ClosedChannelException();
            }
            long number = poller.add(socket, sd);
            sockets.add(socket);
            return number;
        }
    }

    void remove(Socket socket, long number, int sd) {
        synchronized (SHARED) {
            poller.remove(number, sd);
            sockets.remove(socket);
        }
    }

    void check() throws IOException {
        synchronized (SHARED) {
            if (closed) {
                throw new ClosedChannelException();
            }
        }
    }

    /** Closes all sockets of this value; the last one leaves the cluster. */
    @Override
    public void close() {
        List<Socket> open;
        synchronized (SHARED) {
            if (closed) {
                return;
            }
            closed = true;
            open = List.copyOf(sockets);
        }
        open.forEach(Socket::close);
        synchronized (SHARED) {
            nodes--;
            if (nodes > 0) {
                return;
            }
            poller.stop();
            poller = null;
            try {
                Native.LEAVE.invokeExact();
            } catch (Throwable failure) {
                throw Native.unexpected(failure);
            }
        }
    }
}
