// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.locks.ReentrantLock;

/** A connection. It carries bytes ({@link #input}, {@link #output}) or messages ({@link #send}, {@link #receive}). */
public final class Connection extends Socket {
    /** The maximum time that the library can wait for a connection, ms. */
    private static final long LONGEST_CONNECT = 65_535;

    private final boolean carriesBytes;
    private final InputStream input = new Input();
    private final OutputStream output = new Output();
    private final ReentrantLock writing = new ReentrantLock();

    Connection(Node node, int sd, int kind) throws IOException {
        super(node, sd);
        carriesBytes = kind == Native.STREAM;
    }

    static Connection open(Node node, int kind, Address to, Duration limit) throws IOException {
        node.check();
        Connection connection = new Connection(node, Native.openSocket(kind), kind);
        try {
            connection.establish(to, limit);
            return connection;
        } catch (IOException failure) {
            connection.close();
            throw failure;
        }
    }

    static Connection request(Node node, Address to, byte[] first) throws IOException {
        node.check();
        checkNotEmpty(first.length);
        checkLength(first.length);
        Connection connection = new Connection(node, Native.openSocket(Native.STREAM), Native.STREAM);
        try {
            connection.untilWritable(scratch -> {
                scratch.put(first, 0, first.length);
                scratch.destination(to);
                int sent = (int) Native.SENDTO.invokeExact(scratch.state, connection.sd, scratch.data,
                    (long) first.length, scratch.first);
                return orAgain(sent, scratch);
            });
            return connection;
        } catch (IOException failure) {
            connection.close();
            throw failure;
        }
    }

    private void establish(Address to, Duration limit) throws IOException {
        if (limit != null) {
            int ms = (int) Math.min(Math.max(nanos(limit) / 1_000_000, 1), LONGEST_CONNECT);
            control(scratch ->
                Native.checked((int) Native.CONNECT_TIMEOUT.invokeExact(scratch.state, sd, ms), scratch));
        }
        int begun = control(scratch -> {
            scratch.destination(to);
            int done = (int) Native.CONNECT.invokeExact(scratch.state, sd, scratch.first);
            return done < 0 && scratch.errno() == Native.EINPROGRESS ? AGAIN : Native.checked(done, scratch);
        });
        if (begun == AGAIN) {
            untilWritable(scratch -> {
                int done = (int) Native.CONNECTED.invokeExact(scratch.state, sd);
                return done == 0 ? AGAIN : Native.checked(done, scratch);
            });
        }
    }

    /** The address of the other end. */
    public PortId peer() throws IOException {
        PortId[] peer = new PortId[1];
        control(scratch -> {
            int done = (int) Native.PEERADDR.invokeExact(scratch.state, sd, scratch.first);
            Native.checked(done, scratch);
            peer[0] = Scratch.port(scratch.first);
            return done;
        });
        return peer[0];
    }

    /** Received bytes. Closing the stream closes the connection. */
    public InputStream input() {
        return input;
    }

    /** Bytes to send; they leave at once. Writes of several threads do not mix. Closing it closes the connection. */
    public OutputStream output() {
        return output;
    }

    /** Sends a message of 1 to {@link Node#MAX_MESSAGE} bytes, or bytes on a connection that carries those. */
    public void send(byte[] data) throws IOException {
        if (!carriesBytes) {
            checkLength(data.length);
            checkNotEmpty(data.length);
        }
        write(data, 0, data.length);
    }

    /** Waits for a message, or for bytes; null at the end of the connection. */
    public byte[] receive() throws IOException {
        byte[][] data = new byte[1][];
        int length = untilReadable(scratch -> {
            int got = take(scratch, Scratch.LONGEST);
            if (got > 0) {
                data[0] = new byte[got];
                scratch.get(data[0], 0, got);
            }
            return got;
        });
        return length == 0 ? null : data[0];
    }

    private int take(Scratch scratch, long most) throws Throwable {
        return orAgain((int) Native.RECV.invokeExact(scratch.state, sd, scratch.data, most, false), scratch);
    }

    private int read(byte[] bytes, int offset, int length) throws IOException {
        long most = Math.min(length, Scratch.LONGEST);
        return untilReadable(scratch -> {
            int got = take(scratch, most);
            if (got > 0) {
                scratch.get(bytes, offset, got);
            }
            return got;
        });
    }

    private void write(byte[] bytes, int offset, int length) throws IOException {
        writing.lock();
        try {
            for (int sent = 0; sent < length;) {
                int from = offset + sent;
                int most = Math.min(length - sent, Scratch.LONGEST);
                sent += untilWritable(scratch -> {
                    scratch.put(bytes, from, most);
                    int done = (int) Native.SEND.invokeExact(scratch.state, sd, scratch.data, (long) most);
                    return done < 0 && isPending(scratch) ? AGAIN : orAgain(done, scratch);
                });
            }
        } finally {
            writing.unlock();
        }
    }

    /** Whether a send has failed because the server has not answered {@link Node#connectWith} yet. */
    private boolean isPending(Scratch scratch) throws Throwable {
        return scratch.errno() == Native.ENOTCONN && (int) Native.CONNECTED.invokeExact(scratch.state, sd) >= 0;
    }

    /** Makes a connection that carries bytes send small writes at once. */
    public void setNoDelay(boolean on) throws IOException {
        control(scratch -> Native.checked((int) Native.NODELAY.invokeExact(scratch.state, sd, on), scratch));
    }

    static void checkLength(int length) throws IOException {
        if (length > Scratch.LONGEST) {
            throw new TipcException(Native.EMSGSIZE, "a message has at most " + Scratch.LONGEST
                + " bytes (send several, or use a connection that carries bytes)");
        }
    }

    private static void checkNotEmpty(int length) throws IOException {
        if (length == 0) {
            // The peer would take it for the end of the connection.
            throw new TipcException(Native.EINVAL, "an empty message is the end of a connection (use close)");
        }
    }

    /** The peer gets everything sent before, then the end. */
    @Override
    void end(Scratch scratch) throws Throwable {
        int done = (int) Native.SHUTDOWN.invokeExact(scratch.state, sd);
        assert done == 0 || scratch.errno() != 0;
    }

    private final class Input extends InputStream {
        @Override
        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
        }

        @Override
        public int read(byte[] bytes, int offset, int length) throws IOException {
            Objects.checkFromIndexSize(offset, length, bytes.length);
            if (length == 0) {
                return 0;
            }
            int got = Connection.this.read(bytes, offset, length);
            return got == 0 ? -1 : got;
        }

        @Override
        public void close() {
            Connection.this.close();
        }
    }

    private final class Output extends OutputStream {
        @Override
        public void write(int one) throws IOException {
            write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            Objects.checkFromIndexSize(offset, length, bytes.length);
            if (isClosed()) {
                throw new ClosedChannelException();
            }
            Connection.this.write(bytes, offset, length);
        }

        @Override
        public void close() {
            Connection.this.close();
        }
    }
}
