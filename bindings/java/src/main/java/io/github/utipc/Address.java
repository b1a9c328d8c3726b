// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/** A destination of messages and connections. Numbers are unsigned. */
public sealed interface Address permits Service, PortId {
}
