// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/**
 * The address of a service: one of the sockets that are bound to it.
 *
 * @param type the service type; those below 64 are reserved
 * @param instance the instance
 * @param node the node where the socket is bound, or 0 for any; in a binding, this node or 0 for the whole cluster
 */
public record ServiceAddress(int type, int instance, int node) implements Service {
    /** A service anywhere in the cluster. */
    public ServiceAddress(int type, int instance) {
        this(type, instance, 0);
    }

    @Override
    public int lower() {
        return instance;
    }

    @Override
    public int upper() {
        return instance;
    }

    @Override
    public String toString() {
        return Text.service(type, Integer.toUnsignedString(instance), node);
    }
}
