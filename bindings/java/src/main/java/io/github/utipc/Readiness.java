// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The readiness of a socket in one direction. Events of the poller report changes, so a thread asks for the number of
 * events before it tries a call, and waits only until that number has changed.
 */
final class Readiness {
    /** Longest time for which a call is repeated before its thread waits, ns. */
    private static final long LOOK = 50_000;
    /** A look may pay after a wait that was shorter than this, ns: a wake-up of both ends takes less. */
    private static final long SHORT = 300_000;
    /** Threads of the process that may look at once. */
    private static final int LOOKERS = Math.max(2, Runtime.getRuntime().availableProcessors() / 2);
    private static final AtomicInteger LOOKING = new AtomicInteger();

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private long events;
    private volatile long lastWait;

    long events() {
        lock.lock();
        try {
            return events;
        } finally {
            lock.unlock();
        }
    }

    void report() {
        lock.lock();
        try {
            events++;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /** How long to repeat a call before its thread waits, ns; after 0, {@link #looked} is not called. */
    long look() {
        if (lastWait > SHORT) {
            return 0;
        }
        if (LOOKING.incrementAndGet() > LOOKERS) {
            LOOKING.decrementAndGet();
            return 0;
        }
        return LOOK;
    }

    void looked() {
        LOOKING.decrementAndGet();
    }

    /** Waits until there were other events than so many; false if that takes longer than {@code nanos}. */
    boolean await(long seen, long nanos) throws InterruptedException {
        lock.lockInterruptibly();
        long begun = System.nanoTime();
        try {
            long left = nanos;
            while (events == seen) {
                if (left <= 0) {
                    return false;
                }
                left = changed.awaitNanos(left);
            }
            return true;
        } finally {
            lastWait = System.nanoTime() - begun;
            lock.unlock();
        }
    }
}
