// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/** What a member of a group receives. */
public sealed interface GroupIncoming permits GroupMessage, Joined, Left, Evicted {
    /** The member that has sent, has joined, has left or was evicted. */
    Member member();
}
