// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import java.time.Duration;
import java.util.Objects;

/**
 * How a membership treats slow members: those without window for a message, because they do not receive.
 * It concerns what this member sends. Without a policy sends wait, as on Linux, even for sockets that are bound to the
 * group's type and never join; with any policy they do not wait for these, and {@link Group#receive()} reports missing
 * messages ({@link GroupMessage#afterLoss}) and evictions ({@link Evicted}).
 *
 * <p>Joining fails with {@link TipcException} if a value is out of its range, and on the kernel engine, which has no
 * policies.
 */
public sealed interface Policy {
    /** The send waits. */
    record Wait() implements Policy {
    }

    /** The slow member does not get the message; the others do. */
    record Drop() implements Policy {
    }

    /**
     * The slow member gets the newest message of each key when it receives again; see {@link Group#broadcastKeyed}.
     *
     * @param keys maximum number of messages kept for one member, up to 65536; 0 for 1024
     * @param bytes maximum memory of these, up to 64 MiB; 0 for 1 MiB. The oldest message gives way
     */
    record Conflate(int keys, int bytes) implements Policy {
        /** At most 1024 messages and 1 MiB for each member. */
        public Conflate() {
            this(0, 0);
        }
    }

    /**
     * The send waits, and a member that holds it up for too long is evicted. If that member also has this policy, it
     * leaves the group, and all members see that; otherwise only this member leaves it out.
     *
     * @param after how long a member may hold up a send, 1 ms to one hour
     */
    record Evict(Duration after) implements Policy {
        public Evict {
            Objects.requireNonNull(after, "after (the limit of an eviction, 1 ms to one hour)");
        }
    }
}
