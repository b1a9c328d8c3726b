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
    private static final long SPIN = 50_000;
    /** Spinning may pay after a wait that was shorter than this, ns: a wake-up of both ends takes less. */
    private static final long SHORT = 300_000;
    /** Threads of the process that may spin at once. */
    private static final int SPINNERS_MAX = Math.max(2, Runtime.getRuntime().availableProcessors() / 2);
    private static final AtomicInteger SPINNING = new AtomicInteger();

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

    /** How long to repeat a call before its thread waits, ns; after 0, {@link #spun} is not called. */
    long spinTime() {
        if (lastWait > SHORT) {
            return 0;
        }
        if (SPINNING.incrementAndGet() > SPINNERS_MAX) {
            SPINNING.decrementAndGet();
            return 0;
        }
        return SPIN;
    }

    void spun() {
        SPINNING.decrementAndGet();
    }

    /** Waits until the number of events differs from {@code seen}; false if that takes longer than {@code nanos}. */
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
