// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import java.nio.charset.StandardCharsets;

/**
 * A message of a member.
 *
 * @param data its bytes
 * @param member the sender
 * @param sentTo to whom it was sent
 */
public record GroupMessage(byte[] data, Member member, SentTo sentTo) implements GroupIncoming {
    /** The data as text in UTF-8. */
    public String text() {
        return new String(data, StandardCharsets.UTF_8);
    }
}
