// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import "net"

// Listener accepts connections to a service.
type Listener struct {
	*socket
	kind    int
	service net.Addr
}

var _ net.Listener = (*Listener)(nil)

// Listen binds a service and accepts connections that carry bytes. A service may have several listeners, also on
// several nodes; connections are shared between them.
func (n *Node) Listen(service Service) (*Listener, error) { return n.listen(stream, service) }

// ListenSeqPacket is Listen for connections that carry messages.
func (n *Node) ListenSeqPacket(service Service) (*Listener, error) {
	return n.listen(seqpacket, service)
}

func (n *Node) listen(kind int, service Service) (*Listener, error) {
	s, err := n.open(kind)
	if err != nil {
		return nil, failed("listen", nil, service, err)
	}
	// Listen before the service is visible, so that no early client is refused.
	if _, err = s.control(callListen); err == nil {
		err = s.bind(service)
	}
	if err != nil {
		s.close()
		return nil, failed("listen", nil, service, err)
	}
	return &Listener{socket: s, kind: kind, service: service}, nil
}

func (s *socket) bind(service Service) error {
	r := service.span()
	_, err := s.control(func(sd int) outcome { return callBind(sd, r, r.Node) })
	return err
}

// Accept waits for a connection; it returns a *[Conn].
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// AcceptConn is Accept with the type of this package.
func (l *Listener) AcceptConn() (*Conn, error) {
	var out outcome
	err := l.untilReadable(func(sd int) bool {
		out = callAccept(sd)
		return !out.wouldBlock()
	})
	if err = l.verdict(err, out); err != nil {
		return nil, failed("accept", nil, l.service, err)
	}
	s, err := l.node.adopt(out.value)
	if err != nil {
		return nil, failed("accept", nil, l.service, err)
	}
	return newConn(s, l.kind), nil
}

// Close withdraws the service and ends Accept with net.ErrClosed. Accepted connections stay.
func (l *Listener) Close() error { return failed("close", nil, l.service, l.close()) }

// Addr returns the service.
func (l *Listener) Addr() net.Addr { return l.service }

// Port returns the address of the listening socket itself, or nil after Close.
func (l *Listener) Port() net.Addr { return l.local() }
