// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// numbered returns a long message that begins with the number.
func numbered(number int) []byte { return append([]byte(fmt.Sprint(number)), make([]byte, 60_000)...) }

// members returns members of a new group with these policies, instances 1, 2 and so on, which all know one another.
func members(t *testing.T, node *Node, policies ...Policy) []*Group {
	t.Helper()
	var all []*Group
	service := newService().Type
	for number, policy := range policies {
		addr := ServiceAddr{Type: service, Instance: uint32(number + 1)}
		group := join(t, node, addr, GroupOptions{Events: true, Policy: policy})
		// The garbage collector closes sockets that are no longer used.
		t.Cleanup(func() { group.Close() })
		all = append(all, group)
	}
	for _, group := range all {
		for range len(all) - 1 {
			incoming, err := group.Receive(within(t))
			check(t, err)
			if incoming.Kind != MemberJoined {
				t.Fatalf("received %+v", incoming)
			}
		}
	}
	return all
}

// message receives a message; events before it are appended to the list.
func message(t *testing.T, group *Group, events *[]Incoming) (text string, incoming Incoming) {
	t.Helper()
	for {
		incoming, err := group.Receive(within(t))
		check(t, err)
		if incoming.Kind == GroupMessage {
			data, _, _ := bytes.Cut(incoming.Data, []byte{0})
			return string(data), incoming
		}
		if events == nil {
			t.Fatalf("received %+v instead of a message", incoming)
		}
		*events = append(*events, incoming)
	}
}

func counters(t *testing.T, group, of *Group) SlowCounters {
	t.Helper()
	counted, err := group.SlowCounters(of.Member().Port)
	check(t, err)
	return counted
}

func TestMessagesForASlowMemberAreDroppedAndCounted(t *testing.T) {
	const messages = 60
	all := members(t, newNode(t), Policy{Slow: SlowDrop}, Policy{}, Policy{Slow: SlowWait})
	red, reads, slow := all[0], all[1], all[2]
	for number := range messages {
		_, err := red.Broadcast(numbered(number))
		check(t, err)
		// A copy is a broadcast for its receiver.
		text, incoming := message(t, reads, nil)
		if text != fmt.Sprint(number) || incoming.SentTo != SentToAll || incoming.AfterLoss {
			t.Fatalf("received %q instead of %d: %v, after loss %v", text, number, incoming.SentTo, incoming.AfterLoss)
		}
	}
	counted := counters(t, red, slow)
	if counted.Dropped <= messages/2 || counted.Conflated != 0 || counted.Kept != 0 {
		t.Fatalf("%+v", counted)
	}
	if other := counters(t, red, reads); other != (SlowCounters{}) {
		t.Fatalf("of a member that receives: %+v", other)
	}
	for number := range messages - int(counted.Dropped) {
		if text, incoming := message(t, slow, nil); text != fmt.Sprint(number) || incoming.AfterLoss {
			t.Fatalf("received %q instead of %d, after loss %v", text, number, incoming.AfterLoss)
		}
	}
	// It has a window again as soon as the sender learns of it.
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		before := counters(t, red, slow).Dropped
		_, err := red.Send([]byte("one"), slow.Member().Port)
		check(t, err)
		if counters(t, red, slow).Dropped == before {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a member that receives gets no window")
		}
	}
	_, err := red.Broadcast([]byte("all"))
	check(t, err)
	if text, incoming := message(t, slow, nil); text != "one" || incoming.SentTo != SentToMember || !incoming.AfterLoss {
		t.Fatalf("received %q to %v, after loss %v", text, incoming.SentTo, incoming.AfterLoss)
	}
	if text, incoming := message(t, slow, nil); text != "all" || incoming.AfterLoss {
		t.Fatalf("received %q, after loss %v", text, incoming.AfterLoss)
	}
	expectText(t, reads, "all", red)
}

func TestASlowMemberGetsTheNewestMessageOfEachKey(t *testing.T) {
	const messages = 40
	all := members(t, newNode(t), Policy{Slow: SlowConflate}, Policy{Slow: SlowWait})
	red, slow := all[0], all[1]
	for number := range messages {
		_, err := red.BroadcastKeyed(numbered(number), uint64(number%3))
		check(t, err)
	}
	counted := counters(t, red, slow)
	if counted.Dropped != 0 || counted.Kept != 3 || counted.Conflated <= messages/2 {
		t.Fatalf("%+v", counted)
	}
	var texts []string
	losses := 0
	for range messages - int(counted.Conflated) {
		text, incoming := message(t, slow, nil)
		texts = append(texts, text)
		if incoming.AfterLoss {
			losses++
		}
	}
	if newest := strings.Join(texts[len(texts)-3:], " "); newest != "37 38 39" || losses != 1 {
		t.Fatalf("received %v, %d after a loss", texts, losses)
	}
	sent(t, "two")(red.MulticastKeyed([]byte("two"), 2, 7))
	sent(t, "one")(red.SendKeyed([]byte("one"), slow.Member().Port, 7))
	expectText(t, slow, "two", red)
	expectText(t, slow, "one", red)
	// Without that policy the key has no effect.
	sent(t, "back")(slow.BroadcastKeyed([]byte("back"), 7))
	expectText(t, red, "back", slow)
	_, err := red.SendKeyed([]byte("x"), PortID{}, 7)
	if !errors.Is(err, ErrUnreachable) {
		t.Fatal(err)
	}
}

func TestASlowMemberIsEvictedAndAllLearnWhy(t *testing.T) {
	node := newNode(t)
	evict := Policy{Slow: SlowEvict, EvictAfter: 200 * time.Millisecond}
	all := members(t, node, evict, Policy{Slow: SlowDrop}, Policy{}, evict)
	red, reads, plain, slow := all[0], all[1], all[2], all[3]
	events := map[*Group]*[]Incoming{red: {}, reads: {}, plain: {}}
	for number := 0; ; number++ {
		if number == 100 {
			t.Fatal("a member that does not receive is not evicted")
		}
		// The send that waits for the slow member continues without it.
		_, err := red.Broadcast(numbered(number))
		check(t, err)
		for _, member := range []*Group{reads, plain} {
			if text, _ := message(t, member, events[member]); text != fmt.Sprint(number) {
				t.Fatalf("received %q instead of %d", text, number)
			}
		}
		if _, err = red.SlowCounters(slow.Member().Port); errors.Is(err, ErrUnreachable) {
			break
		}
		check(t, err)
	}
	for member, kind := range map[*Group]IncomingKind{red: MemberEvicted, reads: MemberEvicted, plain: MemberLeft} {
		if len(*events[member]) == 0 {
			incoming, err := member.Receive(within(t))
			check(t, err)
			*events[member] = append(*events[member], incoming)
		}
		if got := (*events[member])[0]; got.Kind != kind || got.Member != slow.Member() {
			t.Errorf("instance %d received %+v instead of kind %v", member.Member().Instance, got, kind)
		}
	}
	// The member that was evicted reads what has arrived, and then that it was.
	_, err := slow.Broadcast([]byte("x"))
	var op *net.OpError
	var own *Error
	if !errors.Is(err, ErrEvicted) || !errors.Is(err, syscall.ECONNABORTED) || !errors.As(err, &op) ||
		!errors.As(err, &own) || !strings.Contains(own.Text, "evicted") {
		t.Errorf("a send of an evicted member: %v", err)
	}
	for {
		incoming, err := slow.Receive(within(t))
		check(t, err)
		if incoming.Kind == MemberEvicted && incoming.Member == slow.Member() {
			break
		}
		if incoming.Kind != GroupMessage {
			t.Fatalf("received %+v", incoming)
		}
	}
	// It joins again with the same socket.
	socket, err := slow.Leave()
	check(t, err)
	again, err := socket.Join(ServiceAddr{Type: red.Addr().Type, Instance: 5}, GroupOptions{Policy: evict})
	check(t, err)
	expect(t, red, Incoming{Kind: MemberJoined, Member: again.Member()})
	sent(t, "again")(red.Multicast([]byte("again"), 5))
	expectText(t, again, "again", red)
}

func TestAMemberThatDoesNotAcceptItIsLeftOutByItsEvictor(t *testing.T) {
	all := members(t, newNode(t), Policy{Slow: SlowEvict, EvictAfter: 100 * time.Millisecond}, Policy{})
	red, slow := all[0], all[1]
	err := sendUntilError(func() (int, error) { return red.Send(numbered(0), slow.Member().Port) })
	if !errors.Is(err, ErrUnreachable) {
		t.Fatal(err)
	}
	expect(t, red, Incoming{Kind: MemberEvicted, Member: slow.Member()})
	var events []Incoming
	for len(events) == 0 {
		incoming, err := slow.Receive(within(t))
		check(t, err)
		if incoming.Kind != GroupMessage {
			events = append(events, incoming)
		}
	}
	if events[0].Kind != MemberLeft || events[0].Member != red.Member() {
		t.Fatalf("received %+v", events[0])
	}
}

func TestASocketThatNeverJoinsBlocksNoSend(t *testing.T) {
	node := newNode(t)
	type room struct{ red, blue *Group }
	// In each group a socket is bound to the type and does not join; the sender knows it.
	open := func(policy Policy) room {
		all := members(t, node, policy, Policy{})
		stranger, err := node.ListenPacket(ServiceAddr{Type: all[0].Addr().Type, Instance: 9})
		check(t, err)
		t.Cleanup(func() { stranger.Close() })
		port := stranger.LocalAddr().(PortID)
		for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
			_, err := all[0].SlowCounters(port)
			if err == nil {
				return room{all[0], all[1]}
			}
			if !errors.Is(err, ErrUnreachable) || time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	linux := open(Policy{})
	rooms := []room{
		open(Policy{Slow: SlowWait}),
		open(Policy{Slow: SlowDrop}),
		open(Policy{Slow: SlowConflate}),
		open(Policy{Slow: SlowEvict, EvictAfter: time.Hour}),
	}
	for _, r := range rooms {
		// The socket may still join; sends with a policy that waits do so for that time only.
		for _, text := range []string{"first", "second"} {
			sent(t, text)(r.red.Broadcast([]byte(text)))
			expectText(t, r.blue, text, r.red)
		}
	}
	check(t, linux.red.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	if _, err := linux.red.Broadcast([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("with the policy of Linux: %v", err)
	}
}

func TestJoinNamesWhatIsWrongWithAPolicy(t *testing.T) {
	node := newNode(t)
	socket, err := node.ListenPacket()
	check(t, err)
	addr := newService()
	for _, c := range []struct {
		policy Policy
		text   string
	}{
		{Policy{Slow: 5}, "unknown policy 5"},
		{Policy{Slow: -1}, "unknown policy -1"},
		{Policy{Slow: SlowEvict}, "EvictAfter is 0s"},
		{Policy{Slow: SlowEvict, EvictAfter: -time.Second}, "EvictAfter is -1s"},
		{Policy{Slow: SlowEvict, EvictAfter: time.Hour + 1}, "out of range"},
		{Policy{Slow: SlowConflate, Keys: 65_537}, "out of range"},
		{Policy{Slow: SlowConflate, Keys: -1}, "out of range"},
		{Policy{Slow: SlowConflate, Bytes: 64<<20 + 1}, "out of range"},
		{Policy{Slow: SlowDrop, EvictAfter: time.Second}, "EvictAfter is for SlowEvict only"},
		{Policy{Slow: SlowWait, Keys: 1}, "Keys and Bytes are for SlowConflate only"},
		{Policy{Bytes: 1}, "Keys and Bytes are for SlowConflate only"},
	} {
		group, err := socket.Join(addr, GroupOptions{Policy: c.policy})
		if group != nil || !errors.Is(err, syscall.EINVAL) || !strings.Contains(fmt.Sprint(err), c.text) {
			t.Errorf("%+v: %v", c.policy, err)
		}
	}
	// The socket is still free to join.
	limits := Policy{Slow: SlowConflate, Keys: 65_536, Bytes: 64 << 20}
	group, err := socket.Join(addr, GroupOptions{Policy: limits})
	check(t, err)
	if _, err := group.SlowCounters(PortID{Port: 1}); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	check(t, group.Close())
	if _, err := group.SlowCounters(PortID{Port: 1}); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	_, err = node.Join(addr, GroupOptions{Policy: Policy{Slow: SlowEvict, EvictAfter: time.Microsecond}})
	check(t, err)
	if text := SlowEvict.String() + SlowMember(9).String(); text != "evictpolicy 9" {
		t.Error(text)
	}
}
