// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import (
	"context"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	// maxConnectTimeout is the maximum time that the library can wait for a connection, in ms.
	maxConnectTimeout = 65535
	// connectSlack is how much longer than a context the library waits, in ms: above the delay of a timer.
	connectSlack = 1000
)

// Conn is a connection. It carries bytes (from Dial and Listen) or messages (from DialSeqPacket and ListenSeqPacket).
type Conn struct {
	*socket
	kind int
	own  net.Addr
	// peer is nil while the connection of DialData is not complete.
	peer  net.Addr
	write sync.Mutex
}

var _ net.Conn = (*Conn)(nil)

// Dial connects to a service, or to the socket of a PortID, and carries bytes. It returns when the server has accepted
// the connection; without a deadline in ctx it waits 8 s, and never
// longer than 65 s. [Node.WaitForService] waits until a service exists.
func (n *Node) Dial(ctx context.Context, addr net.Addr) (*Conn, error) {
	return n.dial(ctx, stream, addr)
}

// DialSeqPacket is Dial for a connection that carries messages: each Read returns one, and discards what its buffer
// does not hold.
func (n *Node) DialSeqPacket(ctx context.Context, addr net.Addr) (*Conn, error) {
	return n.dial(ctx, seqpacket, addr)
}

// DialData requests a connection that carries bytes with its first data, 1 to 66000 bytes, which saves a round trip. It
// does not wait: the first Read returns the reply, or why the connection failed; a Write waits until the server has
// accepted. RemoteAddr is nil until then.
func (n *Node) DialData(ctx context.Context, addr net.Addr, first []byte) (*Conn, error) {
	s, err := n.request(ctx, addr, first)
	if err != nil {
		return nil, failed("dial", nil, addr, err)
	}
	return newConn(s, stream), nil
}

func (n *Node) request(ctx context.Context, addr net.Addr, first []byte) (*socket, error) {
	to, err := server(ctx, addr)
	if err != nil {
		return nil, err
	}
	if len(first) == 0 || len(first) > MaxMessage {
		return nil, &Error{syscall.EMSGSIZE, "the first data of a connection has 1 to 66000 bytes"}
	}
	return n.openWithin(ctx, stream, func(s *socket) error {
		var out outcome
		err := s.untilWritable(func(sd int) bool {
			out = callSendTo(sd, first, to, false)
			return !out.wouldBlock()
		})
		return s.verdict(err, out)
	})
}

// openWithin opens a socket and begins its connection; if that fails, or the context is over, the socket is closed.
func (n *Node) openWithin(ctx context.Context, kind int, begin func(*socket) error) (*socket, error) {
	s, err := n.open(kind)
	if err != nil {
		return nil, err
	}
	finish := s.within(ctx, s.file.SetWriteDeadline)
	err = begin(s)
	if finish() {
		err = ctx.Err()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// DialContext is Dial with the signature that http.Transport and other packages expect. The network is ignored; the
// address is as for [ParseServiceAddr].
func (n *Node) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	addr, err := ParseServiceAddr(address)
	if err != nil {
		return nil, failed("dial", nil, nil, err)
	}
	conn, err := n.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

func (n *Node) dial(ctx context.Context, kind int, addr net.Addr) (*Conn, error) {
	s, err := n.connect(ctx, kind, addr)
	if err != nil {
		return nil, failed("dial", nil, addr, err)
	}
	return newConn(s, kind), nil
}

func newConn(s *socket, kind int) *Conn {
	s.connection.Store(true)
	return &Conn{socket: s, kind: kind, own: s.address(false), peer: s.address(true)}
}

// connect opens a connected socket.
func (n *Node) connect(ctx context.Context, kind int, addr net.Addr) (*socket, error) {
	to, err := server(ctx, addr)
	if err != nil {
		return nil, err
	}
	return n.openWithin(ctx, kind, func(s *socket) error { return s.establish(ctx, to) })
}

// server is the destination of a connection request, unless the context is over.
func server(ctx context.Context, addr net.Addr) (words, error) {
	to, multicast, err := target(addr)
	if err == nil && multicast {
		err = &net.AddrError{Err: "cannot connect to a range (pass a ServiceAddr)", Addr: addr.String()}
	}
	if err == nil {
		err = ctx.Err()
	}
	return to, err
}

// establish requests a connection and waits for the reply.
func (s *socket) establish(ctx context.Context, to words) error {
	if deadline, limited := ctx.Deadline(); limited {
		// The context ends the wait, so the node's own limit is a little longer.
		ms := min(max(time.Until(deadline).Milliseconds(), 0)+connectSlack, maxConnectTimeout)
		if _, err := s.control(func(sd int) outcome { return callConnectTimeout(sd, int(ms)) }); err != nil {
			return err
		}
	}
	out, err := s.control(func(sd int) outcome { return callConnect(sd, to) })
	if out.errno != syscall.EINPROGRESS {
		return err
	}
	err = s.untilWritable(func(sd int) bool {
		out = callConnected(sd)
		return out.value != 0
	})
	if err != nil {
		return err
	}
	return out.err()
}

// Read receives bytes, or one message. At the end of the connection it returns io.EOF.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	var out outcome
	err := c.untilReadable(func(sd int) bool {
		out = callReceive(sd, b)
		return !out.wouldBlock()
	})
	if err = c.verdict(err, out); err != nil {
		return 0, c.failed("read", err)
	}
	if out.value == 0 {
		if c.closed.Load() {
			return 0, c.failed("read", net.ErrClosed)
		}
		return 0, io.EOF
	}
	return out.value, nil
}

// Write sends all of b. Several Writes at once do not mix. On a connection that carries messages, b is one message of 1
// to 66000 bytes.
func (c *Conn) Write(b []byte) (int, error) {
	if len(b) == 0 {
		if c.kind == stream {
			return 0, nil
		}
		// The peer would take it for the end of the connection.
		return 0, c.failed("write", &Error{syscall.EINVAL, "an empty message is the end of a connection (use Close)"})
	}
	c.write.Lock()
	defer c.write.Unlock()
	sent := 0
	var out outcome
	err := c.untilWritable(func(sd int) bool {
		for sent < len(b) {
			if out = callSend(sd, b[sent:]); out.errno != 0 {
				return !out.wouldBlock() && !isPending(sd, out)
			}
			sent += out.value
		}
		return true
	})
	return sent, c.failed("write", c.verdict(err, out))
}

// isPending reports whether a send failed because the server has not answered DialData yet: the connection becomes
// writable when it does.
func isPending(sd int, out outcome) bool {
	return out.errno == syscall.ENOTCONN && callConnected(sd).errno == 0
}

// Close ends the connection: the peer reads everything that was written, then the end. Waiting calls return
// net.ErrClosed.
func (c *Conn) Close() error { return c.failed("close", c.close()) }

// LocalAddr returns the PortID of this end.
func (c *Conn) LocalAddr() net.Addr { return c.own }

// RemoteAddr returns the PortID of the other end.
func (c *Conn) RemoteAddr() net.Addr {
	if c.peer == nil {
		return c.address(true)
	}
	return c.peer
}

// SetNoDelay makes a connection that carries bytes send small writes at once.
func (c *Conn) SetNoDelay(on bool) error {
	_, err := c.control(func(sd int) outcome { return callNoDelay(sd, on) })
	return c.failed("set", err)
}

func (c *Conn) failed(op string, err error) error { return failed(op, c.own, c.peer, err) }
