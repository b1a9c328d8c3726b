// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import (
	"context"
	"encoding/binary"
	"iter"
	"net"
	"syscall"
)

// Service types of the topology server, and the instances of itself.
const (
	nodeState      = 0
	topologyServer = 1
	linkState      = 2
)

// Words of struct tipc_subscr and struct tipc_event of linux/tipc.h. The last two of a subscription belong to the
// subscriber.
const (
	subscriptionWords = 7
	eventWords        = 5 + subscriptionWords
)

// Values in subscriptions and events.
const (
	everyBinding = 1
	noTimeLimit  = ^uint32(0)
	published    = 1
	expired      = 3
)

// Change is what an [Event] reports.
type Change int

// The changes.
const (
	ServiceUp Change = iota + 1
	ServiceDown
	NodeUp
	NodeDown
	LinkUp
	LinkDown
)

// String names the change.
func (c Change) String() string {
	return nameOf(int(c), "change", "", "service up", "service down", "node up", "node down", "link up", "link down")
}

// Up reports whether the subject is up now.
func (c Change) Up() bool { return c == ServiceUp || c == NodeUp || c == LinkUp }

// Event is a change of the cluster.
type Event struct {
	Change Change
	// Service is the binding, for changes of services.
	Service ServiceRange
	// Port is the socket that is or was bound, for changes of services.
	Port PortID
	// Node is the node that changed, the peer of the link, or the node of the binding.
	Node NodeID
}

// Topology is a subscription to changes of services, nodes and links.
type Topology struct {
	*socket
	// next has the token of inTurn.
	next chan struct{}
}

// Topology connects to the topology server of a node; 0 is this process's node.
func (n *Node) Topology(ctx context.Context, of NodeID) (*Topology, error) {
	addr := ServiceAddr{Type: topologyServer, Instance: topologyServer, Node: of}
	s, err := n.connect(ctx, seqpacket, addr)
	if err != nil {
		return nil, failed("dial", nil, addr, err)
	}
	return &Topology{socket: s, next: make(chan struct{}, 1)}, nil
}

// Services subscribes to the bindings that overlap the service; existing bindings are also reported as events.
func (t *Topology) Services(service Service) error {
	r := service.span()
	return t.subscribe(r.Type, r.Lower, r.Upper)
}

// Nodes subscribes to the nodes of the cluster, including this one.
func (t *Topology) Nodes() error { return t.subscribe(nodeState, 0, ^uint32(0)) }

// Links subscribes to the links of the node.
func (t *Topology) Links() error { return t.subscribe(linkState, 0, ^uint32(0)) }

func (t *Topology) subscribe(service, lower, upper uint32) error {
	fields := [subscriptionWords]uint32{service, lower, upper, noTimeLimit, everyBinding}
	request, err := binary.Append(nil, binary.NativeEndian, fields)
	if err != nil {
		return failed("subscribe", nil, nil, err)
	}
	var out outcome
	err = t.untilWritable(func(sd int) bool {
		out = callSend(sd, request)
		return !out.wouldBlock()
	})
	return failed("subscribe", nil, nil, t.verdict(err, out))
}

// Next waits for an event. If the context is over first, it returns the context's error, and no event is lost.
func (t *Topology) Next(ctx context.Context) (Event, error) {
	var event Event
	err := t.inTurn(ctx, t.next, func() (err error) {
		event, err = t.receive()
		return err
	})
	return event, failed("read", nil, nil, err)
}

func (t *Topology) receive() (Event, error) {
	for {
		var buffer [4 * eventWords]byte
		var out outcome
		err := t.untilReadable(func(sd int) bool {
			out = callReceive(sd, buffer[:])
			return !out.wouldBlock()
		})
		if err = t.verdict(err, out); err != nil {
			return Event{}, err
		}
		if t.closed.Load() {
			return Event{}, net.ErrClosed
		}
		if out.value != len(buffer) {
			return Event{}, &Error{syscall.ECONNRESET, "the topology server closed the connection (an invalid " +
				"subscription, too many subscriptions, unread events, or contact lost): open a Topology again"}
		}
		var w [eventWords]uint32
		if _, err := binary.Decode(buffer[:], binary.NativeEndian, &w); err != nil {
			return Event{}, err
		}
		// Subscriptions of this package have no time limit.
		if w[0] != expired {
			return newEvent(w), nil
		}
	}
}

func newEvent(w [eventWords]uint32) Event {
	kind, lower, upper, port, node, service := w[0], w[1], w[2], w[3], NodeID(w[4]), w[5]
	change := func(up, down Change) Change {
		if kind == published {
			return up
		}
		return down
	}
	switch service {
	case nodeState:
		return Event{Change: change(NodeUp, NodeDown), Node: NodeID(lower)}
	case linkState:
		return Event{Change: change(LinkUp, LinkDown), Node: NodeID(lower)}
	default:
		return Event{
			Change:  change(ServiceUp, ServiceDown),
			Service: ServiceRange{Type: service, Lower: lower, Upper: upper},
			Port:    PortID{Port: port, Node: node},
			Node:    node,
		}
	}
}

// Events returns the events until the context is over or the caller stops. The last pair of a sequence that fails has
// the error.
func (t *Topology) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			event, err := t.Next(ctx)
			if !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// Close ends the subscriptions. Waiting calls return net.ErrClosed.
func (t *Topology) Close() error { return failed("close", nil, nil, t.close()) }

// WaitForService waits until a service is bound, on the address's node unless that is 0.
func (n *Node) WaitForService(ctx context.Context, addr ServiceAddr) error {
	t, err := n.Topology(ctx, 0)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := t.Services(addr); err != nil {
		return err
	}
	for event, err := range t.Events(ctx) {
		if err != nil {
			return err
		}
		if event.Change == ServiceUp && (addr.Node == 0 || addr.Node == event.Node) {
			return nil
		}
	}
	return net.ErrClosed
}
