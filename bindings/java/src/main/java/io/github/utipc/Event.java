// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/**
 * A change of the cluster.
 *
 * @param change what has changed
 * @param service the binding, for changes of services; otherwise null
 * @param port the socket that is or was bound, for changes of services; otherwise null
 * @param node the node that changed, the peer of the link, or the node of the binding
 */
public record Event(Change change, ServiceRange service, PortId port, int node) {
    private static final int NODE_STATE = 0;
    private static final int LINK_STATE = 2;
    private static final int PUBLISHED = 1;

    /** The subject of an event. */
    public enum Change {
        SERVICE_UP, SERVICE_DOWN, NODE_UP, NODE_DOWN, LINK_UP, LINK_DOWN;

        /** Whether the subject is up now. */
        public boolean isUp() {
            return this == SERVICE_UP || this == NODE_UP || this == LINK_UP;
        }
    }

    /** An event from the first words of struct tipc_event. */
    static Event of(int kind, int lower, int upper, int port, int node, int service) {
        boolean up = kind == PUBLISHED;
        return switch (service) {
            case NODE_STATE -> new Event(up ? Change.NODE_UP : Change.NODE_DOWN, null, null, lower);
            case LINK_STATE -> new Event(up ? Change.LINK_UP : Change.LINK_DOWN, null, null, lower);
            default -> new Event(up ? Change.SERVICE_UP : Change.SERVICE_DOWN,
                new ServiceRange(service, lower, upper), new PortId(port, node), node);
        };
    }
}
