// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BOOLEAN;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;

/** The functions of libutipc. Only methods of java.lang.foreign that Java 21 and later versions share are used. */
final class Native {
    static final int EINTR = 4;
    static final int EAGAIN = 11;
    static final int EACCES = 13;
    static final int EINVAL = 22;
    static final int EPIPE = 32;
    static final int EMSGSIZE = 90;
    static final int EADDRNOTAVAIL = 99;
    static final int ENETUNREACH = 101;
    static final int ENETRESET = 102;
    static final int ECONNABORTED = 103;
    static final int ECONNRESET = 104;
    static final int ENOTCONN = 107;
    static final int ETIMEDOUT = 110;
    static final int ECONNREFUSED = 111;
    static final int EHOSTUNREACH = 113;
    static final int EINPROGRESS = 115;

    static final int STREAM = 1;
    static final int DGRAM = 2;
    static final int RDM = 4;
    static final int SEQPACKET = 5;
    private static final int NONBLOCK = 04000;

    private static final long LONGEST_TEXT = 4096;

    private static final Linker LINKER = Linker.nativeLinker();
    private static final SymbolLookup LIBRARY = library();

    static final MethodHandle OWN_NODE = plain("tipc_own_node", FunctionDescriptor.of(JAVA_INT));
    static final MethodHandle LEAVE = plain("utipc_leave", FunctionDescriptor.ofVoid());
    private static final MethodHandle VERSION = plain("utipc_version", FunctionDescriptor.of(ADDRESS));
    private static final MethodHandle STRERROR = plain("utipc_strerror", FunctionDescriptor.of(ADDRESS));
    static final MethodHandle SOCKET = failing("tipc_socket", JAVA_INT);
    static final MethodHandle NON_BLOCK = failing("tipc_sock_non_block", JAVA_INT);
    static final MethodHandle CLOSE = failing("tipc_close", JAVA_INT);
    static final MethodHandle SHUTDOWN = failing("utipc_shutdown", JAVA_INT);
    static final MethodHandle REJECTABLE = failing("tipc_sock_rejectable", JAVA_INT);
    static final MethodHandle IMPORTANCE = failing("tipc_sock_importance", JAVA_INT, JAVA_INT);
    static final MethodHandle NODELAY = failing("utipc_sock_nodelay", JAVA_INT, JAVA_BOOLEAN);
    static final MethodHandle CONNECT_TIMEOUT = failing("utipc_sock_connect_timeout", JAVA_INT, JAVA_INT);
    static final MethodHandle BIND = failing("tipc_bind", JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT);
    static final MethodHandle UNBIND = failing("tipc_unbind", JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT);
    static final MethodHandle JOIN = failing("utipc_join", JAVA_INT, ADDRESS, JAVA_BOOLEAN, JAVA_BOOLEAN, ADDRESS);
    static final MethodHandle LEAVE_GROUP = failing("tipc_leave", JAVA_INT);
    static final MethodHandle SOCKADDR = failing("tipc_sockaddr", JAVA_INT, ADDRESS);
    static final MethodHandle PEERADDR = failing("utipc_peeraddr", JAVA_INT, ADDRESS);
    static final MethodHandle CONNECT = failing("tipc_connect", JAVA_INT, ADDRESS);
    static final MethodHandle CONNECTED = failing("utipc_connected", JAVA_INT);
    static final MethodHandle LISTEN = failing("tipc_listen", JAVA_INT, JAVA_INT);
    static final MethodHandle ACCEPT = failing("tipc_accept", JAVA_INT, ADDRESS);
    static final MethodHandle SEND = failing("tipc_send", JAVA_INT, ADDRESS, JAVA_LONG);
    static final MethodHandle SENDTO = failing("tipc_sendto", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS);
    static final MethodHandle MCAST = failing("tipc_mcast", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS);
    static final MethodHandle SEND_KEYED =
        failing("utipc_send_keyed", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG);
    static final MethodHandle MCAST_KEYED =
        failing("utipc_mcast_keyed", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG);
    static final MethodHandle SLOW_MEMBER =
        failing("utipc_slow_member", JAVA_INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle RECV = failing("tipc_recv", JAVA_INT, ADDRESS, JAVA_LONG, JAVA_BOOLEAN);
    static final MethodHandle RECVFROM =
        failing("tipc_recvfrom", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle RECVGROUP =
        failing("utipc_recvgroup", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle WAIT_REASON = failing("utipc_wait_reason", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS);
    // Not utipc_epoll_wait: the waiting threads check for messages themselves.
    static final MethodHandle EPOLL_WAIT = system("epoll_wait", JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT);
    static final MethodHandle EPOLL_CREATE = system("epoll_create1", JAVA_INT);
    static final MethodHandle EPOLL_CTL = system("epoll_ctl", JAVA_INT, JAVA_INT, JAVA_INT, ADDRESS);
    static final MethodHandle EVENTFD = system("eventfd", JAVA_INT, JAVA_INT);
    static final MethodHandle CLOSE_FD = system("close", JAVA_INT);
    static final MethodHandle WRITE_FD = system("write", JAVA_INT, ADDRESS, JAVA_LONG);

    private Native() {
    }

    private static SymbolLookup library() {
        String name = System.getProperty("utipc.library", "libutipc.so.0");
        try {
            return SymbolLookup.libraryLookup(name, Arena.global());
        } catch (IllegalArgumentException missing) {
            throw new UnsatisfiedLinkError("the C library " + name + " cannot be loaded (install it: "
                + "https://github.com/utipc/utipc, docs/installing.md; or set -Dutipc.library=/path/libutipc.so.0)");
        }
    }

    private static MethodHandle plain(String name, FunctionDescriptor type) {
        return LINKER.downcallHandle(symbol(LIBRARY, name), type);
    }

    /** A function whose first parameter is where the call stores errno. */
    private static MethodHandle failing(String name, MemoryLayout... parameters) {
        return failing(LIBRARY, name, parameters);
    }

    private static MethodHandle system(String name, MemoryLayout... parameters) {
        return failing(LINKER.defaultLookup(), name, parameters);
    }

    private static MethodHandle failing(SymbolLookup from, String name, MemoryLayout... parameters) {
        FunctionDescriptor type = FunctionDescriptor.of(JAVA_INT, parameters);
        return LINKER.downcallHandle(symbol(from, name), type, Linker.Option.captureCallState("errno"));
    }

    private static MemorySegment symbol(SymbolLookup from, String name) {
        return from.find(name).orElseThrow(() -> new UnsatisfiedLinkError(
            "the C library has no function " + name + " (install the version of this package)"));
    }

    /** The version of the C library. */
    static String version() {
        try {
            return text((MemorySegment) VERSION.invokeExact());
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    /** The reason of this thread's last failed call. A virtual thread stays on its carrier between two calls. */
    static IOException failure(int errno) {
        try {
            return TipcException.of(errno, text((MemorySegment) STRERROR.invokeExact()));
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int openSocket(int kind) throws IOException {
        try (Scratch scratch = Scratch.take()) {
            int sd = (int) SOCKET.invokeExact(scratch.state, kind | NONBLOCK);
            return checked(sd, scratch);
        } catch (Throwable failure) {
            throw rethrown(failure);
        }
    }

    /** The result of a call, or its failure as an exception. */
    static int checked(int result, Scratch scratch) throws IOException {
        if (result < 0) {
            throw failure(scratch.errno());
        }
        return result;
    }

    /** An exception of a method handle; only those of checked results are expected. */
    static IOException rethrown(Throwable failure) {
        if (failure instanceof IOException expected) {
            return expected;
        }
        throw unexpected(failure);
    }

    static RuntimeException unexpected(Throwable failure) {
        if (failure instanceof RuntimeException known) {
            return known;
        }
        if (failure instanceof Error error) {
            throw error;
        }
        return new UncheckedIOException(new IOException(failure));
    }

    private static String text(MemorySegment start) {
        MemorySegment text = start.reinterpret(LONGEST_TEXT);
        int length = 0;
        while (length < LONGEST_TEXT && text.get(JAVA_BYTE, length) != 0) {
            length++;
        }
        byte[] bytes = new byte[length];
        MemorySegment.copy(text, JAVA_BYTE, 0, bytes, 0, length);
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
