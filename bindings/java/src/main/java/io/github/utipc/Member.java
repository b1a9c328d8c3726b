// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/**
 * A member of a group.
 *
 * @param port its socket
 * @param instance its instance, which other members may share
 */
public record Member(PortId port, int instance) {
    @Override
    public String toString() {
        return port + " (instance " + Integer.toUnsignedString(instance) + ")";
    }
}
