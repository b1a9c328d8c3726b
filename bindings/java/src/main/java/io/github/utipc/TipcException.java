// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import java.io.IOException;
import java.net.SocketTimeoutException;

/** A failure that the C library reports; its message names cause and remedy. */
public class TipcException extends IOException {
    private static final long serialVersionUID = 1;

    private final int errno;

    TipcException(int errno, String message) {
        super(message);
        this.errno = errno;
    }

    /** The number that a program on the kernel's TIPC would see. */
    public int errno() {
        return errno;
    }

    /** The socket bound there does not listen, or has refused. */
    public static final class Refused extends TipcException {
        private static final long serialVersionUID = 1;

        Refused(int errno, String message) {
            super(errno, message);
        }
    }

    /** Another member has evicted this one from the group, because it held sends up: leave the group and join again. */
    public static final class Evicted extends TipcException {
        private static final long serialVersionUID = 1;

        Evicted(int errno, String message) {
            super(errno, message);
        }
    }

    /** No socket is bound there, or the node is unreachable. */
    public static final class Unreachable extends TipcException {
        private static final long serialVersionUID = 1;

        Unreachable(int errno, String message) {
            super(errno, message);
        }
    }

    /** The peer, its node or the daemon is gone. */
    public static final class ConnectionLost extends TipcException {
        private static final long serialVersionUID = 1;

        ConnectionLost(int errno, String message) {
            super(errno, message);
        }
    }

    static IOException of(int errno, String message) {
        return switch (errno) {
            case Native.ECONNREFUSED -> new Refused(errno, message);
            case Native.EHOSTUNREACH, Native.ENETUNREACH, Native.EADDRNOTAVAIL -> new Unreachable(errno, message);
            case Native.ECONNRESET, Native.EPIPE, Native.ENOTCONN, Native.ENETRESET ->
                new ConnectionLost(errno, message);
            case Native.ETIMEDOUT -> new SocketTimeoutException(message);
            default -> new TipcException(errno, message);
        };
    }
}
