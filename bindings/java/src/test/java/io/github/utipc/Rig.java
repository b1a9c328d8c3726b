// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicInteger;

/** Shared by the tests: a node, and addresses that no other test uses. */
final class Rig {
    static final Duration SOON = Duration.ofSeconds(60);
    private static final AtomicInteger NEXT = new AtomicInteger((int) (ProcessHandle.current().pid() % 100_000) * 1000);

    private Rig() {
    }

    static ServiceAddress service() {
        return new ServiceAddress(70_001, NEXT.getAndIncrement());
    }

    /** Both ends of a connection. */
    record Pair(Connection client, Connection server) implements AutoCloseable {
        @Override
        public void close() {
            client.close();
            server.close();
        }
    }

    /** Connects on another thread, because a connection is complete when it was accepted. */
    static Pair connected(Listener listener, Callable<Connection> connect) throws Exception {
        FutureTask<Connection> connecting = new FutureTask<>(connect);
        Thread.startVirtualThread(connecting);
        Connection server = listener.accept();
        return new Pair(connecting.get(), server);
    }

    /** A call that a thread makes. */
    interface Work {
        void run() throws Exception;
    }

    /** A thread and how it ended. */
    static final class Task {
        final Thread thread;
        private volatile Exception failure;

        Task(boolean virtual, Work work) {
            Runnable body = () -> {
                try {
                    work.run();
                } catch (Exception thrown) {
                    failure = thrown;
                }
            };
            thread = virtual ? Thread.ofVirtual().unstarted(body) : new Thread(body);
            thread.start();
        }

        /** Waits for its end; the exception that ended it, or null. */
        Exception end() throws InterruptedException {
            if (!thread.join(SOON)) {
                throw new AssertionError("the thread has not ended");
            }
            return failure;
        }

        /** Waits until the thread waits. */
        void waits() throws InterruptedException {
            while (thread.getState() != Thread.State.WAITING && thread.getState() != Thread.State.TIMED_WAITING) {
                Thread.sleep(1);
            }
        }
    }
}
