// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import "net"

// MaxMessage is the size of the longest message in bytes.
const MaxMessage = 66000

// PacketConn sends and receives messages without a connection.
type PacketConn struct {
	*socket
	own net.Addr
}

var _ net.PacketConn = (*PacketConn)(nil)

// Message describes a received message.
type Message struct {
	// Size is the number of bytes in the buffer.
	Size int
	// Source is the socket that sent the message, or this socket for a returned message.
	Source PortID
	// Destination is the address that the sender used: a range of one instance for a service address, of more for a
	// multicast. It is zero if the sender addressed this socket itself.
	Destination ServiceRange
	// Returned is why the message of this socket came back; NotReturned for all others.
	Returned ReturnReason
}

// ListenPacket opens a reliable datagram socket (SOCK_RDM) that is bound to the services, if any: a sender waits while
// the receiver's queue is full.
func (n *Node) ListenPacket(services ...Service) (*PacketConn, error) { return n.packet(rdm, services) }

// ListenDatagram is ListenPacket for a socket whose messages are dropped when a queue is full (SOCK_DGRAM).
func (n *Node) ListenDatagram(services ...Service) (*PacketConn, error) {
	return n.packet(dgram, services)
}

func (n *Node) packet(kind int, services []Service) (*PacketConn, error) {
	s, err := n.open(kind)
	if err != nil {
		return nil, failed("listen", nil, nil, err)
	}
	for _, service := range services {
		if err := s.bind(service); err != nil {
			s.close()
			return nil, failed("listen", nil, service, err)
		}
	}
	return &PacketConn{socket: s, own: s.local()}, nil
}

// Bind adds a binding. A socket may have many.
func (p *PacketConn) Bind(service Service) error {
	return failed("bind", p.own, service, p.bind(service))
}

// Unbind removes a binding.
func (p *PacketConn) Unbind(service Service) error {
	_, err := p.control(func(sd int) outcome { return callUnbind(sd, service.span()) })
	return failed("unbind", p.own, service, err)
}

// ReadMessage receives a message into b. Bytes that do not fit b are discarded.
func (p *PacketConn) ReadMessage(b []byte) (Message, error) {
	var out outcome
	var in received
	err := p.untilReadable(func(sd int) bool {
		in, out = callReceiveFrom(sd, b)
		return !out.wouldBlock()
	})
	if err = p.verdict(err, out); err != nil {
		return Message{}, failed("read", p.own, nil, err)
	}
	message := Message{
		Size:   out.value,
		Source: PortID{Port: in.source[1], Node: NodeID(in.source[2])},
		// Negative for a member that left the socket's former group.
		Returned: ReturnReason(max(in.returned, 0)),
	}
	if to := in.destination; to[0] != 0 {
		// For a single instance the library returns no upper end.
		message.Destination = ServiceRange{Type: to[0], Lower: to[1], Upper: max(to[1], to[2])}
	}
	return message, nil
}

// ReadFrom receives a message; the address is the sender's [PortID]. For a message of this socket that came back (see
// SetReturned) the error is a *[ReturnedError].
func (p *PacketConn) ReadFrom(b []byte) (int, net.Addr, error) {
	message, err := p.ReadMessage(b)
	if err != nil {
		return 0, nil, err
	}
	if message.Returned != NotReturned {
		data := append([]byte(nil), b[:message.Size]...)
		return 0, message.Source, failed("read", p.own, nil, &ReturnedError{message.Returned, data})
	}
	return message.Size, message.Source, nil
}

// WriteTo sends a message to one of the sockets bound to a [ServiceAddr], to all sockets bound in a [ServiceRange], or
// to the socket of a [PortID].
func (p *PacketConn) WriteTo(b []byte, addr net.Addr) (int, error) {
	to, multicast, err := target(addr)
	if err != nil {
		return 0, failed("write", p.own, addr, err)
	}
	var out outcome
	err = p.untilWritable(func(sd int) bool {
		out = callSendTo(sd, b, to, multicast)
		return !out.wouldBlock()
	})
	if err = p.verdict(err, out); err != nil {
		return 0, failed("write", p.own, addr, err)
	}
	return out.value, nil
}

// SetReturned makes the node return the messages of this socket that it cannot deliver.
func (p *PacketConn) SetReturned() error {
	_, err := p.control(callRejectable)
	return failed("set", p.own, nil, err)
}

// Close withdraws the bindings. Waiting calls return net.ErrClosed.
func (p *PacketConn) Close() error { return failed("close", p.own, nil, p.close()) }

// LocalAddr returns the PortID of the socket.
func (p *PacketConn) LocalAddr() net.Addr { return p.own }
