// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import java.io.IOException;

/** Binding of sockets to services. */
final class Bindings {
    private Bindings() {
    }

    static void bind(Socket socket, Service service) throws IOException {
        socket.control(scratch -> Native.checked((int) Native.BIND.invokeExact(scratch.state, socket.sd,
            service.type(), service.lower(), service.upper(), service.node()), scratch));
    }
}
