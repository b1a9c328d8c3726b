// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Group is a membership in a communication group: a set of sockets on any nodes that send to one another.
//
// A message goes to one member (Send, Anycast), to all members with an instance (Multicast) or to all (Broadcast). Each
// member receives the messages of one sender exactly once and in the order in which they were sent, over all four
// calls, as long as both are members. A member that does not receive blocks its senders: their calls wait, until the
// write deadline if any, unless the [Policy] of the membership says otherwise. A membership sends one message at a
// time. Empty messages are not delivered.
//
// A context that ends a call of Receive also removes the read deadline.
type Group struct {
	*socket
	addr   ServiceAddr
	member Member
	// receiving has the token of inTurn.
	receiving chan struct{}
	// calls is locked for reading by calls that may wait, and for writing by Leave.
	calls sync.RWMutex
	left  atomic.Bool
}

// GroupOptions are the options of a membership. The zero value has neither events nor loopback, and waits for slow
// members.
type GroupOptions struct {
	// Events makes Receive report members that join and leave, and present members.
	Events bool
	// Loopback makes the socket receive its own messages to the group too.
	Loopback bool
	// Policy is what sends do about members that do not receive.
	Policy Policy
}

// Member is a member of a group.
type Member struct {
	// Port is its socket, a destination of [Group.Send].
	Port PortID
	// Instance is the number by which other members address it. Several members may share it.
	Instance uint32
}

// String returns the socket and the instance.
func (m Member) String() string { return fmt.Sprintf("%v instance %d", m.Port, m.Instance) }

// Incoming is what a member receives: a message of another member, or a change of the members.
type Incoming struct {
	Kind IncomingKind
	// Member is the sender of the message, or the member that has joined, has left or was evicted.
	Member Member
	// Data is the message; nil for a change of the members.
	Data []byte
	// SentTo is the destination of the message.
	SentTo SentTo
	// AfterLoss is set if earlier messages of the member are missing: its policy has dropped them, or replaced them by
	// newer ones. It is always false for a member with the policy SlowLinux.
	AfterLoss bool
}

// SentTo is the destination of a message.
type SentTo int

// The receivers of a message.
const (
	// SentToUnknown is for changes of the members, and for messages on the kernel engine, which does not report it.
	SentToUnknown SentTo = iota
	// SentToMember is this member alone.
	SentToMember
	// SentToInstance is all members with this one's instance.
	SentToInstance
	// SentToAll is all members.
	SentToAll
)

// String names the receivers.
func (s SentTo) String() string {
	return nameOf(int(s), "receivers", "unknown", "member", "instance", "all")
}

// WaitReason is what a call waits for.
type WaitReason struct {
	// Text describes it.
	Text string
	// Member is the socket of the member that a send waits for; zero if it waits for something else.
	Member PortID
}

// String returns the text.
func (r WaitReason) String() string { return r.Text }

// IncomingKind tells messages from changes of the members.
type IncomingKind int

// The kinds. Changes of the members are reported only with [GroupOptions].Events, except that a member always learns of
// its own eviction.
const (
	// GroupMessage is a message of a member.
	GroupMessage IncomingKind = iota + 1
	// MemberJoined is a member that has joined, or was already in the group.
	MemberJoined
	// MemberLeft is a member that has left, has ended, or whose node is lost. Everything that it sent and that arrived
	// comes before.
	MemberLeft
	// MemberEvicted is a member that was left out because it held others up. It counts as MemberLeft for a member with
	// the policy SlowLinux. If it is this member itself, sends fail with [ErrEvicted] until it leaves and joins again.
	MemberEvicted
)

// String names the kind.
func (k IncomingKind) String() string {
	return nameOf(int(k), "kind", "", "message", "joined", "left", "evicted")
}

// Kinds of what utipc_recvgroup has received.
const (
	kindNone     = 0
	kindMember   = 1
	kindInstance = 2
	kindAll      = 3
	kindUnknown  = 4
	kindJoined   = 5
	kindLeft     = 6
	kindEvicted  = 7
)

// buffers has space for one message each, which calls use while they do not wait.
var buffers = sync.Pool{New: func() any { return new([MaxMessage]byte) }}

// Join opens a socket and joins the group of addr.Type, 64 or more, as a member with addr.Instance. With this node in
// addr.Node it joins a group of this node only, which is separate from the cluster's. Join does not wait for other
// members.
func (n *Node) Join(addr ServiceAddr, options GroupOptions) (*Group, error) {
	s, err := n.open(rdm)
	if err != nil {
		return nil, failed("join", nil, addr, err)
	}
	group, err := s.join(addr, options)
	if err != nil {
		s.close()
		return nil, failed("join", nil, addr, err)
	}
	return group, nil
}

// Join joins a group as [Node.Join] does, with this socket. The group takes the socket over: do not send or receive
// with p before [Group.Leave]. A socket is in one group at most.
func (p *PacketConn) Join(addr ServiceAddr, options GroupOptions) (*Group, error) {
	group, err := p.join(addr, options)
	return group, failed("join", p.own, addr, err)
}

func (s *socket) join(addr ServiceAddr, options GroupOptions) (*Group, error) {
	port, err := s.port(false)
	if err != nil {
		return nil, err
	}
	policy, err := options.Policy.words()
	if err != nil {
		return nil, err
	}
	if _, err := s.control(func(sd int) outcome { return callJoin(sd, addr, options, policy) }); err != nil {
		return nil, err
	}
	member := Member{Port: port, Instance: addr.Instance}
	return &Group{socket: s, addr: addr, member: member, receiving: make(chan struct{}, 1)}, nil
}

// Addr returns the address of the membership: the group, this member's instance, and the node if the group is of one
// node.
func (g *Group) Addr() ServiceAddr { return g.addr }

// Member returns this member.
func (g *Group) Member() Member { return g.member }

// LocalAddr returns the PortID of the socket.
func (g *Group) LocalAddr() net.Addr { return g.member.Port }

// Broadcast sends to all members; to this member only with [GroupOptions].Loopback. Without another member it fails
// with [ErrUnreachable].
func (g *Group) Broadcast(b []byte) (int, error) {
	return g.send(nil, func(sd int) outcome { return callSend(sd, b) })
}

// Multicast sends to all members with an instance. It fails with [ErrUnreachable] if no member has the instance.
func (g *Group) Multicast(b []byte, instance uint32) (int, error) {
	return g.sendTo(b, ServiceRange{Type: g.addr.Type, Lower: instance, Upper: instance})
}

// Anycast sends to one of the members with an instance, the one with the least unread; equals take turns. It fails with
// [ErrUnreachable] if no member has the instance.
func (g *Group) Anycast(b []byte, instance uint32) (int, error) {
	return g.sendTo(b, ServiceAddr{Type: g.addr.Type, Instance: instance})
}

// Send sends to one member. It fails with [ErrUnreachable] if the socket is not a member.
func (g *Group) Send(b []byte, to PortID) (int, error) { return g.sendTo(b, to) }

// WaitReason reports what a call of the group would wait for now, or waits for in another goroutine: in a send the
// member that has no window left or has not acknowledged. It reports false if no call would wait.
func (g *Group) WaitReason() (WaitReason, bool) {
	var reason WaitReason
	out, err := g.control(func(sd int) (out outcome) {
		reason.Text, reason.Member, out = callWaitReason(sd)
		return out
	})
	return reason, err == nil && out.value > 0
}

func (g *Group) sendTo(b []byte, addr net.Addr) (int, error) {
	to, multicast, err := target(addr)
	if err != nil {
		return 0, failed("write", g.member.Port, addr, err)
	}
	return g.send(addr, func(sd int) outcome { return callSendTo(sd, b, to, multicast) })
}

func (g *Group) send(to net.Addr, call func(sd int) outcome) (int, error) {
	g.calls.RLock()
	defer g.calls.RUnlock()
	var out outcome
	err := g.untilWritable(func(sd int) bool {
		if out = hasLeft; !g.left.Load() {
			out = call(sd)
		}
		return !out.wouldBlock()
	})
	if err = g.outcomeOf(err, out); err != nil {
		var own *Error
		if errors.As(err, &own) && own.Errno == syscall.ECONNABORTED {
			err = evictedError{own}
		}
		return 0, failed("write", g.member.Port, to, err)
	}
	return out.value, nil
}

// Receive waits for the next message or, with [GroupOptions].Events, the next change of the members. The messages of
// one member arrive in order with its joining and leaving. If the context is over first, or the read deadline passes,
// Receive returns that error, and nothing is lost.
func (g *Group) Receive(ctx context.Context) (Incoming, error) {
	g.calls.RLock()
	defer g.calls.RUnlock()
	var incoming Incoming
	err := g.inTurn(ctx, g.receiving, func() (err error) {
		incoming, err = g.receive()
		return err
	})
	return incoming, failed("read", g.member.Port, nil, err)
}

func (g *Group) receive() (Incoming, error) {
	for {
		var in received
		var out outcome
		var data []byte
		err := g.untilReadable(func(sd int) bool {
			if g.left.Load() {
				out = hasLeft
				return true
			}
			buffer := buffers.Get().(*[MaxMessage]byte)
			defer buffers.Put(buffer)
			if in, out = callReceiveGroup(sd, buffer[:]); out.value > 0 {
				data = bytes.Clone(buffer[:out.value])
			}
			return !out.wouldBlock()
		})
		if err = g.outcomeOf(err, out); err != nil {
			return Incoming{}, err
		}
		// Others are from before the join, and not of a member.
		if in.returned != kindNone && in.destination[0] == g.addr.Type {
			return newIncoming(in, data), nil
		}
	}
}

// hasLeft is the outcome of a call that is not made because the socket has left the group.
var hasLeft = outcome{errno: syscall.EBADF}

// outcomeOf is the error of a call that has ended; a call that ends because of Leave reports only that.
func (g *Group) outcomeOf(err error, out outcome) error {
	if err = g.verdict(err, out); err != nil && g.left.Load() {
		return net.ErrClosed
	}
	return err
}

func newIncoming(in received, data []byte) Incoming {
	port := PortID{Port: in.source[1], Node: NodeID(in.source[2])}
	member := Member{Port: port, Instance: in.destination[1]}
	incoming := Incoming{Kind: GroupMessage, Member: member, Data: data, AfterLoss: in.afterLoss}
	switch in.returned {
	case kindMember:
		incoming.SentTo = SentToMember
	case kindInstance:
		incoming.SentTo = SentToInstance
	case kindAll:
		incoming.SentTo = SentToAll
	case kindJoined:
		incoming.Kind = MemberJoined
	case kindLeft:
		incoming.Kind = MemberLeft
	case kindEvicted:
		incoming.Kind = MemberEvicted
	}
	return incoming
}

// All returns what Receive returns, until the context is over or the caller stops. The last pair of a sequence that
// fails has the error.
func (g *Group) All(ctx context.Context) iter.Seq2[Incoming, error] {
	return func(yield func(Incoming, error) bool) {
		for {
			incoming, err := g.Receive(ctx)
			if !yield(incoming, err) || err != nil {
				return
			}
		}
	}
}

// Leave leaves the group and returns its socket, which keeps its PortID. Messages that have arrived can be received
// from it; changes of the members that have arrived count as empty messages. Waiting calls of the group, and all later
// ones, return net.ErrClosed. Deadlines are removed. If Leave fails, the socket is closed.
func (g *Group) Leave() (*PacketConn, error) {
	if g.closed.Load() || g.left.Swap(true) {
		return nil, failed("leave", g.member.Port, nil, net.ErrClosed)
	}
	// Waiting calls end before the socket leaves.
	err := g.cause(g.file.SetDeadline(past))
	g.calls.Lock()
	defer g.calls.Unlock()
	if err == nil {
		_, err = g.control(callLeaveGroup)
	}
	if err == nil {
		err = g.cause(g.file.SetDeadline(time.Time{}))
	}
	if err != nil {
		g.socket.close()
		return nil, failed("leave", g.member.Port, nil, err)
	}
	return &PacketConn{socket: g.socket, own: g.member.Port}, nil
}

// Close leaves the group and closes the socket; the other members get an event. Waiting calls return net.ErrClosed.
func (g *Group) Close() error {
	if g.left.Load() {
		return failed("close", g.member.Port, nil, net.ErrClosed)
	}
	return failed("close", g.member.Port, nil, g.close())
}
