// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import java.io.IOException;
import java.lang.foreign.MemorySegment;

/** Accepts connections to a service. */
public final class Listener extends Socket {
    private final int kind;

    private Listener(Node node, int sd, int kind) throws IOException {
        super(node, sd);
        this.kind = kind;
    }

    static Listener open(Node node, int kind, Service service) throws IOException {
        node.check();
        Listener listener = new Listener(node, Native.openSocket(kind), kind);
        try {
            // Listen before the service is visible, so that no early client is refused.
            listener.control(scratch ->
                Native.checked((int) Native.LISTEN.invokeExact(scratch.state, listener.sd, 0), scratch));
            Bindings.bind(listener, service);
            return listener;
        } catch (IOException failure) {
            listener.close();
            throw failure;
        }
    }

    /** Waits for a connection. */
    public Connection accept() throws IOException {
        int sd = untilReadable(scratch -> {
            int accepted = (int) Native.ACCEPT.invokeExact(scratch.state, this.sd, MemorySegment.NULL);
            accepted = orAgain(accepted, scratch);
            if (accepted != AGAIN) {
                Native.checked((int) Native.NON_BLOCK.invokeExact(scratch.state, accepted), scratch);
            }
            return accepted;
        });
        return new Connection(node, sd, kind);
    }
}
