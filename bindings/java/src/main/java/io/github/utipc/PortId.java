// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/**
 * The address of a socket.
 *
 * @param port the number of its port
 * @param node the address of its node
 */
public record PortId(int port, int node) implements Address {
    @Override
    public String toString() {
        return Text.node(node) + ":" + Integer.toUnsignedString(port);
    }
}
