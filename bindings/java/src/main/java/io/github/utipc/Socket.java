// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.SocketTimeoutException;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/** A socket of the C library: waits for it, and closes it when no call uses it. */
abstract class Socket implements AutoCloseable {
    /** The result of a call that has to be repeated when the socket is ready. */
    static final int AGAIN = -1;
    private static final long FOR_EVER = Long.MAX_VALUE;

    /** A call that does not wait: its result, or {@link #AGAIN}. */
    interface Attempt {
        int run(Scratch scratch) throws Throwable;
    }

    final Node node;
    final int sd;
    private final long number;
    final Readiness readable = new Readiness();
    final Readiness writable = new Readiness();
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition unused = lock.newCondition();
    private int users;
    private boolean closed;
    private volatile long timeout = FOR_EVER;

    /** Takes over the socket {@code sd}; closes it on failure. */
    Socket(Node node, int sd) throws IOException {
        this.node = node;
        this.sd = sd;
        try {
            number = node.add(this, sd);
        } catch (IOException failure) {
            release();
            throw failure;
        }
    }

    /**
     * Sets how long calls wait; they then fail with {@link SocketTimeoutException}. Without it, or with null, they wait
     * without a limit. Nothing is lost by a time-out.
     */
    public void setTimeout(Duration limit) {
        timeout = limit == null ? FOR_EVER : nanos(limit);
    }

    static long nanos(Duration limit) {
        try {
            return Math.max(limit.toNanos(), 0);
        } catch (ArithmeticException tooLong) {
            return FOR_EVER;
        }
    }

    void ready(boolean read, boolean write) {
        if (read) {
            readable.report();
        }
        if (write) {
            writable.report();
        }
    }

    int untilReadable(Attempt attempt) throws IOException {
        return repeat(readable, timeout, attempt);
    }

    int untilReadable(Duration limit, Attempt attempt) throws IOException {
        return repeat(readable, nanos(limit), attempt);
    }

    int untilWritable(Attempt attempt) throws IOException {
        return repeat(writable, timeout, attempt);
    }

    /** A call that never waits for other programs. */
    int control(Attempt attempt) throws IOException {
        enter();
        try {
            return once(attempt);
        } finally {
            leave();
        }
    }

    /** Repeats a call until it is complete; in between its thread waits, without a native call. */
    private int repeat(Readiness readiness, long limit, Attempt attempt) throws IOException {
        long begun = limit == FOR_EVER ? 0 : System.nanoTime();
        while (true) {
            long seen = readiness.events();
            int result = guarded(attempt);
            if (result == AGAIN) {
                result = spin(readiness, attempt);
            }
            if (result != AGAIN) {
                return result;
            }
            long left = limit == FOR_EVER ? FOR_EVER : limit - (System.nanoTime() - begun);
            if (!await(readiness, seen, left)) {
                throw new SocketTimeoutException("the time limit of the call is over");
            }
        }
    }

    private int spin(Readiness readiness, Attempt attempt) throws IOException {
        long limit = readiness.spinTime();
        if (limit == 0) {
            return AGAIN;
        }
        long begun = System.nanoTime();
        boolean virtual = Thread.currentThread().isVirtual();
        try {
            int result;
            do {
                if (virtual) {
                    // Other virtual threads go first.
                    Thread.yield();
                } else {
                    Thread.onSpinWait();
                }
                result = guarded(attempt);
            } while (result == AGAIN && System.nanoTime() - begun < limit);
            return result;
        } finally {
            readiness.spun();
        }
    }

    private boolean await(Readiness readiness, long seen, long left) throws IOException {
        try {
            return readiness.await(seen, left);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("the thread was interrupted while it waited");
        }
    }

    private int guarded(Attempt attempt) throws IOException {
        enter();
        try {
            return once(attempt);
        } finally {
            leave();
        }
    }

    private static int once(Attempt attempt) throws IOException {
        try (Scratch scratch = Scratch.take()) {
            return attempt.run(scratch);
        } catch (Throwable failure) {
            throw Native.rethrown(failure);
        }
    }

    /** The result of a call that may have to be repeated. */
    static int orAgain(int result, Scratch scratch) throws IOException {
        if (result < 0 && scratch.errno() == Native.EAGAIN) {
            return AGAIN;
        }
        return Native.checked(result, scratch);
    }

    private void enter() throws IOException {
        lock.lock();
        try {
            if (closed) {
                throw new ClosedChannelException();
            }
            users++;
        } finally {
            lock.unlock();
        }
    }

    private void leave() {
        lock.lock();
        try {
            users--;
            if (closed && users == 0) {
                unused.signalAll();
            }
        } finally {
            lock.unlock();
        }
    }

    /** The socket's own address. */
    public PortId address() throws IOException {
        PortId[] own = new PortId[1];
        control(scratch -> {
            int done = (int) Native.SOCKADDR.invokeExact(scratch.state, sd, scratch.first);
            Native.checked(done, scratch);
            own[0] = Scratch.port(scratch.first);
            return done;
        });
        return own[0];
    }

    /** Whether {@link #close} was called. */
    public boolean isClosed() {
        lock.lock();
        try {
            return closed;
        } finally {
            lock.unlock();
        }
    }

    /** Closes the socket. Calls of other threads fail with {@link ClosedChannelException}; a second close has no effect. */
    @Override
    public void close() {
        lock.lock();
        try {
            if (closed) {
                return;
            }
            closed = true;
            // No call waits inside: what is running ends at once. The next socket may get the same number.
            while (users > 0) {
                unused.awaitUninterruptibly();
            }
        } finally {
            lock.unlock();
        }
        ready(true, true);
        node.remove(this, number, sd);
        release();
    }

    /** Ends a connection in order before it is closed. */
    void end(Scratch scratch) throws Throwable {
    }

    private void release() {
        try (Scratch scratch = Scratch.take()) {
            end(scratch);
            int done = (int) Native.CLOSE.invokeExact(scratch.state, sd);
            assert done == 0 || scratch.errno() != 0;
        } catch (Throwable failure) {
            throw Native.unexpected(failure);
        }
    }
}
