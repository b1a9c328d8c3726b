// SPDX-License-Identifier: Apache-2.0 OR MIT

// Package utipc lets Go programs use TIPC in user space: an application binds a service address, and others send to
// it, connect to it, or watch its availability, wherever it runs.
//
// The package is a binding of the C library libutipc. Its connections, listeners and packet sockets are the types of
// package net, so that net/http and other packages of the standard library work on service addresses:
//
//	node, err := utipc.Start(ctx)
//	listener, err := node.Listen(utipc.ServiceAddr{Type: 4711, Instance: 1})
//	go http.Serve(listener, handler)
//
//	client := http.Client{Transport: &http.Transport{DialContext: node.DialContext}}
//	reply, err := client.Get("http://4711:1/")
//
// [Node.Join] makes a socket a member of a communication group.
//
// # The node
//
// A process has one node, which [Start] starts: it attaches to the daemon of this host if one runs, and otherwise the
// process becomes a node itself. The environment variables UTIPC_ENGINE, UTIPC_SOCKET and UTIPC_INSTANCE choose, as for
// every program of the library. A Go program ends without the handlers of the C library's exit, so call [Node.Close]
// before it ends: peers then see at once that an embedded node has left.
//
// # Goroutines and threads
//
// A goroutine that waits for a message, for buffer space, for a connection or for an event occupies no thread. Every
// socket of the C library is non-blocking and has a descriptor that shows its readiness; the package registers a
// duplicate of it with the poller of the Go runtime. A call first tries, and parks its goroutine only if the socket is
// not ready. Deadlines, contexts and Close therefore act as they do on the sockets of package net, and the number of
// waiting goroutines is limited by memory and descriptors (two for each socket), not by threads. The functions
// utipc_poll and utipc_epoll_wait, which poll for messages before they sleep, are not used: each needs a separate
// thread, and would hide the goroutine from the scheduler.
//
// Calls that only ask the node, such as opening and binding a socket, hold a thread until the node replies, as a system
// call does.
//
// # Memory
//
// The C library keeps no pointer into Go memory: buffers are passed for the time of one non-blocking call. A socket that
// becomes unreachable is closed by the garbage collector.
//
// # Errors
//
// Failed calls on sockets return a *[net.OpError]. Test the cause with errors.Is: [os.ErrDeadlineExceeded],
// [net.ErrClosed], [ErrRefused], [ErrUnreachable], [ErrConnectionLost], [ErrEvicted], [ErrReturned], or a
// [syscall.Errno]. The message of an [*Error] names cause and remedy.
package utipc
