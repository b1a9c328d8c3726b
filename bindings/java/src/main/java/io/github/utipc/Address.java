// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/** What a message or a connection can be sent to. Numbers are unsigned. */
public sealed interface Address permits Service, PortId {
}
