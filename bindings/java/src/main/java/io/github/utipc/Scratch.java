// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.lang.foreign.Arena;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.ConcurrentLinkedDeque;

/**
 * Native memory for one call. A call takes one and gives it back, and never waits in between, so their number is about
 * that of processors.
 */
final class Scratch implements AutoCloseable {
    /** Size of the longest message, bytes. */
    static final int LONGEST = 66_000;

    private static final ConcurrentLinkedDeque<Scratch> FREE = new ConcurrentLinkedDeque<>();
    private static final long ADDRESS_SIZE = 16;
    private static final long POLICY_SIZE = 20;

    final MemorySegment state = Arena.global().allocate(Linker.Option.captureStateLayout());
    final MemorySegment data = Arena.global().allocate(LONGEST, 8);
    /** Two of struct tipc_addr, and a number, a struct utipc_group_info or a struct utipc_group_policy. */
    final MemorySegment first = Arena.global().allocate(ADDRESS_SIZE, 8);
    final MemorySegment second = Arena.global().allocate(ADDRESS_SIZE, 8);
    final MemorySegment number = Arena.global().allocate(POLICY_SIZE, 8);

    private Scratch() {
    }

    static Scratch take() {
        Scratch free = FREE.pollFirst();
        return free == null ? new Scratch() : free;
    }

    @Override
    public void close() {
        FREE.addFirst(this);
    }

    /** The error number of the last call. */
    int errno() {
        return state.get(JAVA_INT, 0);
    }

    void put(byte[] bytes, int offset, int length) {
        MemorySegment.copy(bytes, offset, data, JAVA_BYTE, 0, length);
    }

    void get(byte[] bytes, int offset, int length) {
        MemorySegment.copy(data, JAVA_BYTE, 0, bytes, offset, length);
    }

    /** The text at the beginning of {@link #data}, up to its zero. */
    String text(int longest) {
        int length = 0;
        while (length < longest && data.get(JAVA_BYTE, length) != 0) {
            length++;
        }
        byte[] bytes = new byte[length];
        get(bytes, 0, length);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** Stores a destination in {@link #first}. */
    void destination(Address to) {
        if (to instanceof ServiceAddress service) {
            words(service.type(), service.instance(), service.node());
        } else if (to instanceof ServiceRange range) {
            words(range.type(), range.lower(), range.upper());
        } else if (to instanceof PortId port) {
            words(0, port.port(), port.node());
        }
    }

    /** Stores a policy in {@link #number}. Values out of range stay so: the library refuses them. */
    void policy(Policy policy) {
        switch (policy) {
            case Policy.Wait wait -> policy(0, 0, 0, 0);
            case Policy.Drop drop -> policy(1, 0, 0, 0);
            case Policy.Conflate(int keys, int bytes) -> policy(2, keys, bytes, 0);
            case Policy.Evict(Duration after) -> policy(3, 0, 0, milliseconds(after));
        }
    }

    /** A part of a millisecond counts as a whole one. */
    private static int milliseconds(Duration limit) {
        long nanos = Socket.nanos(limit);
        long ms = nanos / 1_000_000 + (nanos % 1_000_000 > 0 ? 1 : 0);
        return (int) Math.min(ms, Integer.MAX_VALUE);
    }

    private void policy(int slow, int keys, int bytes, int evictAfterMs) {
        number.set(JAVA_INT, 0, slow);
        number.set(JAVA_INT, 4, keys);
        number.set(JAVA_INT, 8, bytes);
        number.set(JAVA_INT, 12, evictAfterMs);
        // Sends do not wait for sockets that never join.
        number.set(JAVA_INT, 16, 0);
    }

    private void words(int type, int instance, int node) {
        first.set(JAVA_INT, 0, type);
        first.set(JAVA_INT, 4, instance);
        first.set(JAVA_INT, 8, node);
        first.set(JAVA_INT, 12, 0);
    }

    static PortId port(MemorySegment address) {
        return new PortId(address.get(JAVA_INT, 4), address.get(JAVA_INT, 8));
    }

    /** The address that a sender used; null if it was the socket itself. */
    static ServiceRange range(MemorySegment address) {
        int type = address.get(JAVA_INT, 0);
        if (type == 0) {
            return null;
        }
        int lower = address.get(JAVA_INT, 4);
        int upper = address.get(JAVA_INT, 8);
        // For a single instance the library returns no upper end.
        return new ServiceRange(type, lower, Integer.compareUnsigned(lower, upper) > 0 ? lower : upper);
    }
}
