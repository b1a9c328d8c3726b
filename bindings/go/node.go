// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import (
	"context"
	"net"
	"sync"
)

// Node is the node of this process. Its methods may be called by several goroutines at once.
type Node struct {
	id      NodeID
	mu      sync.Mutex
	sockets map[*handle]struct{}
	closed  bool
}

// users counts the open values of Node, which share one node.
var users struct {
	sync.Mutex
	count int
}

// Start starts the node of this process, or returns another value for it if it runs already. With a network it takes
// about a second, the trial of the node's address.
func Start(ctx context.Context) (*Node, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed("start", nil, nil, err)
	}
	type result struct {
		node *Node
		err  error
	}
	started := make(chan result, 1)
	go func() {
		// No value may close between the start and the count.
		users.Lock()
		defer users.Unlock()
		id, out := callOwnNode()
		if err := out.err(); err != nil {
			started <- result{err: err}
			return
		}
		users.count++
		started <- result{node: &Node{id: id, sockets: map[*handle]struct{}{}}}
	}()
	select {
	case r := <-started:
		return r.node, failed("start", nil, nil, r.err)
	case <-ctx.Done():
		// Give the node back once it has started.
		go func() {
			if r := <-started; r.node != nil {
				r.node.Close()
			}
		}()
		return nil, failed("start", nil, nil, ctx.Err())
	}
}

// Version returns the version of the C library.
func Version() string { return callVersion() }

// ID returns the address of the node.
func (n *Node) ID() NodeID { return n.id }

// Close closes everything that was opened by this value. With the last value of the process the node leaves the
// cluster; this also closes sockets of the C library that other code of the process has opened.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return net.ErrClosed
	}
	n.closed = true
	handles := make([]*handle, 0, len(n.sockets))
	for h := range n.sockets {
		handles = append(handles, h)
	}
	n.mu.Unlock()
	for _, h := range handles {
		h.release()
	}
	users.Lock()
	defer users.Unlock()
	if users.count--; users.count == 0 {
		callLeave()
	}
	return nil
}

func (n *Node) isClosed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed
}

// add lists an open socket; false if the node is closed.
func (n *Node) add(h *handle) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		n.sockets[h] = struct{}{}
	}
	return !n.closed
}

func (n *Node) remove(h *handle) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sockets, h)
}
