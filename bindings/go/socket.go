// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// handle owns a socket of the C library. It does not refer to the values that programs hold, so that these can become
// unreachable while the node still lists the handle.
type handle struct {
	sd   int
	node *Node
	// file is a duplicate of the descriptor, registered with the runtime's poller. Its locks order calls: Close waits
	// until no call uses sd, because the next socket may get the same number.
	file *os.File
	raw  syscall.RawConn
	// connection is set for sockets whose peer sees an orderly end.
	connection atomic.Bool
	closed     atomic.Bool
	once       sync.Once
}

// socket is what a program holds. It is closed when it becomes unreachable.
type socket struct {
	*handle
	cleanup runtime.Cleanup
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// adopt makes a value for the socket sd, which it closes on failure.
func (n *Node) adopt(sd int) (*socket, error) {
	watched, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(sd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		callClose(sd)
		return nil, &Error{errno, fmt.Sprintf("no descriptor for the socket: %v (close some, or raise RLIMIT_NOFILE)", errno)}
	}
	// The runtime watches non-blocking files only. No call of the library waits on this socket.
	if err := syscall.SetNonblock(int(watched), true); err != nil {
		syscall.Close(int(watched))
		callClose(sd)
		return nil, err
	}
	file := os.NewFile(watched, "tipc")
	h := &handle{sd: sd, node: n, file: file}
	var err error
	// Without the poller, waiting calls would fail.
	if err = file.SetDeadline(time.Time{}); err == nil {
		h.raw, err = file.SyscallConn()
	}
	if err != nil {
		file.Close()
		callClose(sd)
		return nil, fmt.Errorf("the runtime cannot watch the socket: %w", err)
	}
	if !n.add(h) {
		h.release()
		return nil, net.ErrClosed
	}
	s := &socket{handle: h}
	// Closing may wait for the daemon; other cleanups must not.
	s.cleanup = runtime.AddCleanup(s, func(h *handle) { go h.release() }, h)
	return s, nil
}

// open opens a socket.
func (n *Node) open(kind int) (*socket, error) {
	if n.isClosed() {
		return nil, net.ErrClosed
	}
	out := callSocket(kind)
	if err := out.err(); err != nil {
		return nil, err
	}
	return n.adopt(out.value)
}

// release ends waiting calls, waits for them to return, and closes the socket.
func (h *handle) release() {
	h.once.Do(func() {
		h.closed.Store(true)
		if h.connection.Load() {
			// The peer gets everything sent before, then the end.
			_ = h.raw.Control(func(uintptr) { callShutdown(h.sd) })
		}
		h.file.Close()
		callClose(h.sd)
		h.node.remove(h)
	})
}

// close closes the socket; a second time it fails as in package net.
func (s *socket) close() error {
	if s.closed.Load() {
		return net.ErrClosed
	}
	s.cleanup.Stop()
	s.release()
	return nil
}

// control runs a call that does not wait for other programs.
func (s *socket) control(call func(sd int) outcome) (outcome, error) {
	var out outcome
	err := s.raw.Control(func(uintptr) { out = call(s.sd) })
	runtime.KeepAlive(s)
	if err != nil {
		return outcome{}, s.cause(err)
	}
	return out, out.err()
}

// untilReadable repeats a call until it is complete; in between the goroutine waits for the socket to become readable.
func (s *socket) untilReadable(call func(sd int) bool) error {
	err := s.raw.Read(func(uintptr) bool { return call(s.sd) })
	runtime.KeepAlive(s)
	return s.cause(err)
}

// untilWritable is untilReadable for the other direction.
func (s *socket) untilWritable(call func(sd int) bool) error {
	err := s.raw.Write(func(uintptr) bool { return call(s.sd) })
	runtime.KeepAlive(s)
	return s.cause(err)
}

// cause translates an error of the poller.
func (s *socket) cause(err error) error {
	switch {
	case err == nil:
		return nil
	case s.closed.Load():
		return net.ErrClosed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return os.ErrDeadlineExceeded
	default:
		return err
	}
}

// verdict is the error of a call that has ended, by the poller or by itself. A call that ends because of Close reports
// only that.
func (s *socket) verdict(err error, out outcome) error {
	if err == nil {
		err = out.err()
	}
	if err != nil && s.closed.Load() {
		return net.ErrClosed
	}
	return err
}

// within ends waiting calls of one direction when the context is over. The returned function undoes that and must be
// called; it reports whether the context was over.
func (s *socket) within(ctx context.Context, set func(time.Time) error) (finish func() bool) {
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = set(past)
		close(fired)
	})
	return func() bool {
		if stop() {
			return false
		}
		<-fired
		_ = set(time.Time{})
		return true
	}
}

// inTurn runs a call that receives, and ends it when the context is over. It holds the token in turn: one call runs at
// a time, so that the contexts of several callers do not interfere.
func (s *socket) inTurn(ctx context.Context, turn chan struct{}, receive func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	finish := s.within(ctx, s.file.SetReadDeadline)
	err := receive()
	finish()
	if err != nil {
		return orContext(ctx, err)
	}
	return nil
}

func (s *socket) local() net.Addr {
	return s.address(false)
}

// address is the socket's own address or its peer's; nil if it has none.
func (s *socket) address(ofPeer bool) net.Addr {
	port, err := s.port(ofPeer)
	if err != nil {
		return nil
	}
	return port
}

func (s *socket) port(ofPeer bool) (port PortID, err error) {
	_, err = s.control(func(sd int) (out outcome) {
		port, out = callAddress(sd, ofPeer)
		return out
	})
	return port, err
}

func (s *socket) setDeadline(set func(time.Time) error, t time.Time) error {
	err := set(t)
	runtime.KeepAlive(s)
	return failed("set", nil, nil, s.cause(err))
}

// SetDeadline sets the time after which calls that wait fail with os.ErrDeadlineExceeded; zero for none. It also acts on
// calls that wait already.
func (s *socket) SetDeadline(t time.Time) error { return s.setDeadline(s.file.SetDeadline, t) }

// SetReadDeadline is SetDeadline for receiving and accepting.
func (s *socket) SetReadDeadline(t time.Time) error { return s.setDeadline(s.file.SetReadDeadline, t) }

// SetWriteDeadline is SetDeadline for sending.
func (s *socket) SetWriteDeadline(t time.Time) error {
	return s.setDeadline(s.file.SetWriteDeadline, t)
}

// Importance ranks messages: under congestion, less important messages wait first.
type Importance uint32

// The levels of importance.
const (
	Low Importance = iota
	Medium
	High
	Critical
)

// SetImportance sets the importance of the messages that the socket sends.
func (s *socket) SetImportance(level Importance) error {
	_, err := s.control(func(sd int) outcome { return callImportance(sd, level) })
	return failed("set", nil, nil, err)
}
