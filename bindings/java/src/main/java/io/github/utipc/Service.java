// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/** What a socket can bind, and a {@link Topology} can watch. */
public sealed interface Service extends Address permits ServiceAddress, ServiceRange {
    /** The service type; those below 64 are reserved. */
    int type();

    /** The first instance. */
    int lower();

    /** The last instance. */
    int upper();

    /** The only node, or 0 for the whole cluster. */
    int node();
}
