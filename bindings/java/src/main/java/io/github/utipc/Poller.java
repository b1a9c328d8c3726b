// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * One thread that waits for events of all sockets and wakes the threads that wait for them. A thread that waits occupies
 * no native call, so that a virtual thread gives its carrier back.
 */
final class Poller {
    private static final int CTL_ADD = 1;
    private static final int CTL_DEL = 2;
    private static final int IN = 1;
    private static final int OUT = 4;
    private static final int ERR = 8;
    private static final int HUP = 0x10;
    private static final int RDHUP = 0x2000;
    private static final int EDGE = 1 << 31;
    private static final int CLOEXEC = 02000000;
    private static final int BATCH = 64;

    /** On x86_64 struct epoll_event is packed. */
    private static final boolean PACKED = System.getProperty("os.arch").equals("amd64");
    private static final long EVENT_SIZE = PACKED ? 12 : 16;
    private static final long DATA_AT = PACKED ? 4 : 8;

    private final int epoll;
    private final int wake;
    private final Thread thread;
    private final Map<Long, Socket> sockets = new ConcurrentHashMap<>();
    private final AtomicLong next = new AtomicLong(1);
    private volatile boolean stopped;

    Poller() throws IOException {
        try (Scratch scratch = Scratch.take()) {
            epoll = system((int) Native.EPOLL_CREATE.invokeExact(scratch.state, CLOEXEC), scratch);
            wake = system((int) Native.EVENTFD.invokeExact(scratch.state, 0, CLOEXEC), scratch);
        } catch (Throwable failure) {
            throw Native.rethrown(failure);
        }
        control(CTL_ADD, wake, IN, 0);
        thread = new Thread(this::run, "utipc poller");
        thread.setDaemon(true);
        thread.start();
    }

    /** Watches a socket; returns its number here. */
    long add(Socket socket, int sd) throws IOException {
        long number = next.getAndIncrement();
        sockets.put(number, socket);
        try {
            control(CTL_ADD, sd, IN | OUT | RDHUP | EDGE, number);
        } catch (IOException failure) {
            sockets.remove(number);
            throw failure;
        }
        return number;
    }

    void remove(long number, int sd) {
        sockets.remove(number);
        try {
            control(CTL_DEL, sd, 0, 0);
        } catch (IOException gone) {
            // The descriptor is no longer watched, as requested.
        }
    }

    /** Ends the thread. No socket is watched now. */
    void stop() {
        stopped = true;
        try (Scratch scratch = Scratch.take()) {
            scratch.data.set(JAVA_LONG, 0, 1);
            int written = (int) Native.WRITE_FD.invokeExact(scratch.state, wake, scratch.data, 8L);
            system(written, scratch);
            thread.join();
            int first = (int) Native.CLOSE_FD.invokeExact(scratch.state, wake);
            int second = (int) Native.CLOSE_FD.invokeExact(scratch.state, epoll);
            assert first == 0 && second == 0;
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } catch (Throwable failure) {
            throw Native.unexpected(failure);
        }
    }

    private void run() {
        MemorySegment state = Arena.global().allocate(8, 8);
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment events = arena.allocate(EVENT_SIZE * BATCH, 8);
            while (!stopped) {
                int count = (int) Native.EPOLL_WAIT.invokeExact(state, epoll, events, BATCH, -1);
                if (count < 0 && state.get(JAVA_INT, 0) != Native.EINTR) {
                    throw new IllegalStateException("epoll_wait: error " + state.get(JAVA_INT, 0));
                }
                for (int at = 0; at < count; at++) {
                    deliver(events.asSlice(at * EVENT_SIZE, EVENT_SIZE));
                }
            }
        } catch (Throwable failure) {
            throw Native.unexpected(failure);
        }
    }

    private void deliver(MemorySegment event) {
        Socket socket = sockets.get(event.get(JAVA_LONG_UNALIGNED, DATA_AT));
        if (socket != null) {
            int flags = event.get(JAVA_INT, 0);
            boolean ended = (flags & (ERR | HUP | RDHUP)) != 0;
            socket.ready(ended || (flags & IN) != 0, ended || (flags & OUT) != 0);
        }
    }

    private void control(int what, int fd, int events, long number) throws IOException {
        try (Scratch scratch = Scratch.take()) {
            scratch.data.set(JAVA_INT, 0, events);
            scratch.data.set(JAVA_LONG_UNALIGNED, DATA_AT, number);
            system((int) Native.EPOLL_CTL.invokeExact(scratch.state, epoll, what, fd, scratch.data), scratch);
        } catch (Throwable failure) {
            throw Native.rethrown(failure);
        }
    }

    private static int system(int result, Scratch scratch) throws IOException {
        if (result < 0) {
            throw new IOException("the system refused to watch sockets: error " + scratch.errno()
                + " (close some, or raise the limit of open files)");
        }
        return result;
    }
}
