// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import java.nio.charset.StandardCharsets;

/**
 * A message of a member.
 *
 * @param data its bytes
 * @param member the sender
 * @param sentTo its destination
 * @param afterLoss whether earlier messages of the sender are missing: its policy has dropped them, or replaced them by
 *     newer ones; only if this member joined with a {@link Policy}
 */
public record GroupMessage(byte[] data, Member member, SentTo sentTo, boolean afterLoss) implements GroupIncoming {
    /** The data as text in UTF-8. */
    public String text() {
        return new String(data, StandardCharsets.UTF_8);
    }
}
