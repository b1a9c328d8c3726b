// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/**
 * A range of instances of a service. A message to a range goes to every socket that is bound in it.
 *
 * @param type the service type; those below 64 are reserved
 * @param lower the first instance
 * @param upper the last instance
 * @param node the node, or 0 for all; in a binding, this node or 0 for the whole cluster
 */
public record ServiceRange(int type, int lower, int upper, int node) implements Service {
    /** A range in the whole cluster. */
    public ServiceRange(int type, int lower, int upper) {
        this(type, lower, upper, 0);
    }

    @Override
    public String toString() {
        String range = Integer.toUnsignedString(lower) + "," + Integer.toUnsignedString(upper);
        return Text.service(type, range, node);
    }
}
