// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// Causes of failed calls, for errors.Is. Calls also fail with [os.ErrDeadlineExceeded], [net.ErrClosed] and the errors
// of a context.
var (
	// ErrRefused: the socket bound there does not listen, or has refused.
	ErrRefused = errors.New("connection refused")
	// ErrUnreachable: no socket is bound there, the node is unreachable, or the member does not exist.
	ErrUnreachable = errors.New("service unreachable")
	// ErrConnectionLost: the peer, its node or the daemon is gone.
	ErrConnectionLost = errors.New("connection lost")
	// ErrEvicted: another member has evicted this one from the group, because it held sends up.
	ErrEvicted = errors.New("evicted from the group")
	// ErrReturned: a message of this socket came back undelivered; see [ReturnedError].
	ErrReturned = errors.New("message returned")
)

// Error is a failure that the C library reports.
type Error struct {
	// Errno is the number that a program on the kernel's TIPC would see.
	Errno syscall.Errno
	// Text names cause and remedy.
	Text string
}

// Error returns the text.
func (e *Error) Error() string {
	if e.Text == "" {
		return e.Errno.Error()
	}
	return e.Text
}

// Unwrap returns the number, so that errors.Is(err, syscall.EPERM) and errors.Is(err, os.ErrPermission) work.
func (e *Error) Unwrap() error { return e.Errno }

// Timeout reports whether the call ran out of time.
func (e *Error) Timeout() bool { return e.Errno.Timeout() }

// Is reports whether target is the cause of this package that the number stands for.
func (e *Error) Is(target error) bool {
	switch e.Errno {
	case syscall.ECONNREFUSED:
		return target == ErrRefused
	case syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EADDRNOTAVAIL:
		return target == ErrUnreachable
	case syscall.ECONNRESET, syscall.EPIPE, syscall.ENOTCONN, syscall.ENETRESET:
		return target == ErrConnectionLost
	case syscall.ETIMEDOUT:
		return target == os.ErrDeadlineExceeded
	}
	return false
}

// evictedError is the failure of a send of a group; on a connection its number has another meaning.
type evictedError struct{ cause *Error }

func (e evictedError) Error() string { return e.cause.Error() }

func (e evictedError) Unwrap() error { return e.cause }

func (e evictedError) Is(target error) bool { return target == ErrEvicted }

// ReturnedError is the error of [PacketConn.ReadFrom] for a message of this socket that came back undelivered.
type ReturnedError struct {
	Reason ReturnReason
	// Data is the beginning of the message.
	Data []byte
}

// Error names the reason.
func (e *ReturnedError) Error() string { return fmt.Sprintf("message returned: %v", e.Reason) }

// Is reports whether target is [ErrReturned].
func (e *ReturnedError) Is(target error) bool { return target == ErrReturned }

// ReturnReason is why a message came back.
type ReturnReason int

// The reasons, by their numbers in the protocol.
const (
	NotReturned ReturnReason = iota
	NotBound
	NoSocket
	NodeLost
	QueueFull
	ConnectionClosed
)

// String names the reason.
func (r ReturnReason) String() string {
	return nameOf(int(r), "reason",
		"not returned", "not bound", "no such socket", "node lost", "queue full", "connection closed")
}

// failed wraps the cause of a failed call as package net does.
func failed(op string, own, peer net.Addr, err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: network, Source: own, Addr: peer, Err: err}
}

// orContext is the error of a context if it is over, else err.
func orContext(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	return err
}
