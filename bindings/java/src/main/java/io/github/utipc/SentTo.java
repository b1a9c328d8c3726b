// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/** The destination of a group message. */
public enum SentTo {
    /** Only this member. */
    MEMBER,
    /** All members with this member's instance. */
    INSTANCE,
    /** All members. */
    ALL,
    /** The kernel engine does not tell. */
    UNKNOWN
}
