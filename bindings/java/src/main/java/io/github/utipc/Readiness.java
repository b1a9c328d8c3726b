// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The readiness of a socket in one direction. Events of the poller report changes, so a thread asks for the number of
 * events before it tries a call, and waits only until that number has changed.
 */
final class Readiness {
    /** Longest time for which a call is repeated before its thread waits, ns. */
    private static final long LOOK = 30_000;
    /** Looks in vain after which only each sixteenth wait begins with one. */
    private static final int PATIENCE = 4;

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private long events;
    private int vain;

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

    /** How long to repeat a call before its thread waits, ns: only while that has paid. */
    long look() {
        int misses = vain;
        if (misses >= PATIENCE) {
            vain = misses + 1;
        }
        return misses < PATIENCE || misses % 16 == 0 ? LOOK : 0;
    }

    void looked(boolean paid) {
        if (paid) {
            vain = 0;
        } else if (vain < PATIENCE) {
            vain++;
        }
    }

    /** Waits until there were other events than so many; false if that takes longer than {@code nanos}. */
    boolean await(long seen, long nanos) throws InterruptedException {
        lock.lockInterruptibly();
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
            lock.unlock();
        }
    }
}
