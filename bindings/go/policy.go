// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import (
	"fmt"
	"math"
	"net"
	"syscall"
	"time"
)

// Policy is how a membership treats slow members: those without window for a message, because they do not receive. It
// concerns what this member sends. The zero value is the policy of Linux, the only one of the kernel engine. Join
// refuses a policy that is not valid with [syscall.EINVAL].
type Policy struct {
	// Slow is what a send does when a member has no window left.
	Slow SlowMember
	// Keys is the largest number of messages that SlowConflate keeps for one member, up to 65536; 0 for 1024.
	Keys int
	// Bytes is the maximum memory of these messages, up to 64 MiB; 0 for 1 MiB. The oldest message gives way.
	Bytes int
	// EvictAfter is how long a member may hold up a send with SlowEvict, 1 ms to one hour.
	EvictAfter time.Duration
}

// SlowMember is what a send does when a member has no window left for a message.
type SlowMember int

// The policies. With all but SlowLinux no send waits for a socket that is bound to the group's type and never joins,
// and Receive reports missing messages ([Incoming].AfterLoss) and evictions ([MemberEvicted]).
const (
	// SlowLinux makes the send wait, also for sockets that are bound to the group's type and never join.
	SlowLinux SlowMember = iota
	// SlowWait makes the send wait.
	SlowWait
	// SlowDrop drops the message for the slow member; the others get it.
	SlowDrop
	// SlowConflate keeps the newest message of each key for the slow member, which gets them when it receives again.
	// See [Group.BroadcastKeyed].
	SlowConflate
	// SlowEvict makes the send wait, and evicts a member that holds it up for longer than [Policy].EvictAfter. If that
	// member also has this policy, it leaves the group, and all members see that; otherwise only this member leaves it
	// out.
	SlowEvict
)

// String names the policy.
func (s SlowMember) String() string {
	return nameOf(int(s), "policy", "linux", "wait", "drop", "conflate", "evict")
}

// SlowCounters is what a member did not get because it is slow.
type SlowCounters struct {
	// Dropped is the number of messages that were dropped.
	Dropped uint64
	// Conflated is the number of messages that newer ones with the same key have replaced.
	Conflated uint64
	// Kept is the number of messages that wait until the member receives.
	Kept uint32
}

// policyWords is a policy as the C library takes it.
type policyWords struct {
	slow, keys, bytes, evictAfter uint32
}

// words returns the policy for the C library, nil for that of Linux. Values out of range stay so: the library refuses
// them.
func (p Policy) words() (*policyWords, error) {
	invalid := func(format string, values ...any) (*policyWords, error) {
		return nil, &Error{Errno: syscall.EINVAL, Text: fmt.Sprintf(format, values...)}
	}
	switch {
	case p.Slow < SlowLinux || p.Slow > SlowEvict:
		return invalid("unknown %v for slow members (use SlowLinux, SlowWait, SlowDrop, SlowConflate or SlowEvict)", p.Slow)
	case p.Slow != SlowConflate && (p.Keys != 0 || p.Bytes != 0):
		return invalid("Keys and Bytes are for SlowConflate only (the policy is %v)", p.Slow)
	case p.Slow != SlowEvict && p.EvictAfter != 0:
		return invalid("EvictAfter is for SlowEvict only (the policy is %v)", p.Slow)
	case p.Slow == SlowEvict && p.EvictAfter <= 0:
		return invalid("EvictAfter is %v (SlowEvict needs a limit of 1 ms to one hour)", p.EvictAfter)
	case p.Slow == SlowLinux:
		return nil, nil
	}
	word := func(value int64) uint32 {
		if value < 0 || value > math.MaxUint32 {
			return math.MaxUint32
		}
		return uint32(value)
	}
	// A part of a millisecond counts as a whole one.
	limit := p.EvictAfter / time.Millisecond
	if p.EvictAfter%time.Millisecond > 0 {
		limit++
	}
	return &policyWords{
		slow: uint32(p.Slow - SlowWait),
		keys: word(int64(p.Keys)), bytes: word(int64(p.Bytes)),
		evictAfter: word(int64(limit)),
	}, nil
}

// BroadcastKeyed is [Group.Broadcast] with a key: with SlowConflate the message replaces the one with the same key that
// a slow member has yet to get. Other policies ignore the key. Calls without a key send with key 0.
func (g *Group) BroadcastKeyed(b []byte, key uint64) (int, error) {
	return g.send(nil, func(sd int) outcome { return callSendKeyed(sd, b, key) })
}

// MulticastKeyed is [Group.Multicast] with a key, as for [Group.BroadcastKeyed].
func (g *Group) MulticastKeyed(b []byte, instance uint32, key uint64) (int, error) {
	return g.sendToKeyed(b, ServiceRange{Type: g.addr.Type, Lower: instance, Upper: instance}, key)
}

// SendKeyed is [Group.Send] with a key, as for [Group.BroadcastKeyed].
func (g *Group) SendKeyed(b []byte, to PortID, key uint64) (int, error) {
	return g.sendToKeyed(b, to, key)
}

func (g *Group) sendToKeyed(b []byte, addr net.Addr, key uint64) (int, error) {
	to, multicast, err := target(addr)
	if err != nil {
		return 0, failed("write", g.member.Port, addr, err)
	}
	return g.send(addr, func(sd int) outcome { return callSendToKeyed(sd, b, to, multicast, key) })
}

// SlowCounters counts the messages that the slow member with that socket has missed from this one. It fails with
// [ErrUnreachable] if the socket is not a member: the counters end with the membership.
func (g *Group) SlowCounters(member PortID) (SlowCounters, error) {
	g.calls.RLock()
	defer g.calls.RUnlock()
	var counters SlowCounters
	var out outcome
	_, err := g.control(func(sd int) outcome {
		if out = hasLeft; !g.left.Load() {
			counters, out = callSlowMember(sd, member)
		}
		return out
	})
	if err = g.outcomeOf(err, out); err != nil {
		return SlowCounters{}, failed("get", g.member.Port, member, err)
	}
	return counters, nil
}
