// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/** The notation of addresses, which all tools of the project share. */
final class Text {
    private Text() {
    }

    static String node(int node) {
        return Integer.toHexString(node);
    }

    static String service(int type, String instances, int node) {
        String text = "{" + Integer.toUnsignedString(type) + "," + instances + "}";
        return node == 0 ? text : text + "@" + node(node);
    }
}
