// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/** To whom a member has sent a message. */
public enum SentTo {
    /** To this member alone. */
    MEMBER,
    /** To all members with this one's instance. */
    INSTANCE,
    /** To all members. */
    ALL,
    /** The kernel engine does not tell. */
    UNKNOWN
}
