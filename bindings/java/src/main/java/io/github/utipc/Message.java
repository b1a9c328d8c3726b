// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import java.nio.charset.StandardCharsets;

/**
 * A received message.
 *
 * @param data its bytes; of a returned message the beginning
 * @param source the socket that sent it; of a returned message the receiving socket itself
 * @param destination what the sender addressed: a range of one instance for a service address, of more for a multicast;
 *     null if it addressed this socket itself
 * @param returned why a message of this socket came back; null for all others
 */
public record Message(byte[] data, PortId source, ServiceRange destination, Returned returned) {
    /** Why a message came back. */
    public enum Returned {
        /** No socket is bound to the service. */
        NOT_BOUND,
        /** The socket does not exist. */
        NO_SOCKET,
        /** The node is gone. */
        NODE_LOST,
        /** The queue of the receiver is full. */
        QUEUE_FULL,
        /** The connection was closed. */
        CONNECTION_CLOSED;

        static Returned of(int reason) {
            return reason <= 0 ? null : values()[Math.min(reason, values().length) - 1];
        }
    }

    /** The data as text in UTF-8. */
    public String text() {
        return new String(data, StandardCharsets.UTF_8);
    }
}
