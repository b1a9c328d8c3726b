// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import java.util.Optional;

/**
 * The condition that a call waits for.
 *
 * @param text describes it
 * @param member the socket of the member that a send waits for; empty if it waits for something else
 */
public record WaitReason(String text, Optional<PortId> member) {
}
