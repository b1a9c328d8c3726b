// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/**
 * A member has left, has ended, or its node is lost; only with {@link Group.Option#EVENTS}. Everything that it sent and
 * that arrived comes before this event.
 *
 * @param member the member
 */
public record Left(Member member) implements GroupIncoming {
}
