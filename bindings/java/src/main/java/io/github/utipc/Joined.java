// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/**
 * A member has joined, or was already in the group; only with {@link Group.Option#EVENTS}.
 *
 * @param member the member
 */
public record Joined(Member member) implements GroupIncoming {
}
