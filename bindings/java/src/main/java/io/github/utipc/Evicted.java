// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/**
 * A member was left out because it held others up; only with {@link Group.Option#EVENTS} and a {@link Policy}. Without
 * a policy it counts as {@link Left}. The eviction of this member itself is always reported: sends then fail with
 * {@link TipcException.Evicted}, until it leaves the group and joins again.
 *
 * @param member the member
 */
public record Evicted(Member member) implements GroupIncoming {
}
