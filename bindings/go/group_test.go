// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

func join(t *testing.T, node *Node, addr ServiceAddr, options GroupOptions) *Group {
	t.Helper()
	group, err := node.Join(addr, options)
	check(t, err)
	return group
}

// couple returns two members of a new group, instances 1 and 2. The first one knows the second one and has events.
func couple(t *testing.T, node *Node) (red, blue *Group) {
	t.Helper()
	group := newService().Type
	red = join(t, node, ServiceAddr{Type: group, Instance: 1}, GroupOptions{Events: true})
	blue = join(t, node, ServiceAddr{Type: group, Instance: 2}, GroupOptions{})
	expect(t, red, Incoming{Kind: MemberJoined, Member: blue.Member()})
	return red, blue
}

func expect(t *testing.T, group *Group, want Incoming) {
	t.Helper()
	got, err := group.Receive(within(t))
	check(t, err)
	if got.Kind != want.Kind || got.Member != want.Member || string(got.Data) != string(want.Data) {
		t.Fatalf("received %v %q of %v instead of %v %q of %v",
			got.Kind, got.Data, got.Member, want.Kind, want.Data, want.Member)
	}
}

func expectText(t *testing.T, group *Group, text string, from *Group) {
	t.Helper()
	expect(t, group, Incoming{Kind: GroupMessage, Member: from.Member(), Data: []byte(text)})
}

// sent checks the result of a call that sends the text.
func sent(t *testing.T, text string) func(int, error) {
	return func(n int, err error) {
		t.Helper()
		check(t, err)
		if n != len(text) {
			t.Fatalf("sent %d bytes of %q", n, text)
		}
	}
}

func TestMembersSendInFourWays(t *testing.T) {
	red, blue := couple(t, newNode(t))
	text := func(text string) ([]byte, func(int, error)) { return []byte(text), sent(t, text) }
	data, done := text("to all")
	done(red.Broadcast(data))
	data, done = text("to all with 2")
	done(red.Multicast(data, 2))
	data, done = text("to one with 2")
	done(red.Anycast(data, 2))
	data, done = text("to you")
	done(red.Send(data, blue.Member().Port))
	for _, text := range []string{"to all", "to all with 2", "to one with 2", "to you"} {
		expectText(t, blue, text, red)
	}
	data, done = text("answer")
	done(blue.Send(data, red.Member().Port))
	expectText(t, red, "answer", blue)
}

func TestLongestMessageReachesMember(t *testing.T) {
	red, blue := couple(t, newNode(t))
	long := string(make([]byte, MaxMessage))
	sent(t, long)(red.Broadcast([]byte(long)))
	expectText(t, blue, long, red)
	if _, err := red.Broadcast(make([]byte, MaxMessage+1)); !errors.Is(err, syscall.EMSGSIZE) {
		t.Fatalf("a message that is too long: %v", err)
	}
	sent(t, "")(red.Broadcast(nil))
	sent(t, "after")(red.Broadcast([]byte("after")))
	expectText(t, blue, "after", red)
}

func TestMembersOfOneInstanceTakeTurns(t *testing.T) {
	node := newNode(t)
	red, blue := couple(t, node)
	green := join(t, node, blue.Addr(), GroupOptions{})
	expect(t, red, Incoming{Kind: MemberJoined, Member: green.Member()})
	sent(t, "both")(red.Multicast([]byte("both"), 2))
	for range 2 {
		sent(t, "one")(red.Anycast([]byte("one"), 2))
	}
	for _, member := range []*Group{blue, green} {
		expectText(t, member, "both", red)
		expectText(t, member, "one", red)
	}
}

func TestLeavingIsAnEventAfterTheLastMessage(t *testing.T) {
	red, blue := couple(t, newNode(t))
	sent(t, "welcome")(red.Send([]byte("welcome"), blue.Member().Port))
	expectText(t, blue, "welcome", red)
	sent(t, "last words")(blue.Broadcast([]byte("last words")))
	check(t, blue.Close())
	expectText(t, red, "last words", blue)
	expect(t, red, Incoming{Kind: MemberLeft, Member: blue.Member()})
}

func TestEventsAreReportedOnRequest(t *testing.T) {
	red, blue := couple(t, newNode(t))
	sent(t, "first")(red.Broadcast([]byte("first")))
	// Blue has no event of red.
	expectText(t, blue, "first", red)
	var kinds []IncomingKind
	sent(t, "second")(blue.Broadcast([]byte("second")))
	check(t, blue.Close())
	for incoming, err := range red.All(within(t)) {
		check(t, err)
		if kinds = append(kinds, incoming.Kind); incoming.Kind == MemberLeft {
			break
		}
	}
	if len(kinds) != 2 || kinds[0] != GroupMessage {
		t.Fatal(kinds)
	}
}

func TestLoopbackMakesTheSocketAMemberForItself(t *testing.T) {
	own := join(t, newNode(t), newService(), GroupOptions{Events: true, Loopback: true})
	expect(t, own, Incoming{Kind: MemberJoined, Member: own.Member()})
	sent(t, "to myself")(own.Broadcast([]byte("to myself")))
	expectText(t, own, "to myself", own)
	if own.Member().Instance != own.Addr().Instance {
		t.Fatal(own.Member())
	}
}

func TestGroupOfTheNodeIsNotThatOfTheCluster(t *testing.T) {
	node := newNode(t)
	addr := newService()
	onNode := addr
	onNode.Node = node.ID()
	red := join(t, node, onNode, GroupOptions{Events: true})
	cluster := join(t, node, addr, GroupOptions{})
	blue := join(t, node, onNode, GroupOptions{})
	expect(t, red, Incoming{Kind: MemberJoined, Member: blue.Member()})
	sent(t, "here")(red.Broadcast([]byte("here")))
	expectText(t, blue, "here", red)
	sent(t, "one")(red.Anycast([]byte("one"), onNode.Instance))
	expectText(t, blue, "one", red)
	if _, err := cluster.Broadcast([]byte("lost")); !errors.Is(err, ErrUnreachable) {
		t.Fatal(err)
	}
}

// sendUntilError returns the first error of send.
func sendUntilError(send func() (int, error)) error {
	for {
		if _, err := send(); err != nil {
			return err
		}
	}
}

// fill sends to all until the write deadline ends a call; it returns the number of sent messages. On a slow machine the
// window may be open again after that.
func fill(t *testing.T, group *Group, block []byte) int {
	t.Helper()
	for sent := range 1000 {
		check(t, group.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		_, err := group.Broadcast(block)
		if err == nil {
			continue
		}
		var timeout net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatal(err)
		}
		check(t, group.SetWriteDeadline(time.Time{}))
		return sent
	}
	t.Fatal("1000 messages fit into the window of a member that does not read")
	return 0
}

func TestDeadlineEndsSendToMemberThatDoesNotRead(t *testing.T) {
	red, blue := couple(t, newNode(t))
	block := make([]byte, 60_000)
	count := fill(t, red, block)
	for name, send := range map[string]func() (int, error){
		"Anycast":   func() (int, error) { return red.Anycast(block, 2) },
		"Send":      func() (int, error) { return red.Send(block, blue.Member().Port) },
		"Multicast": func() (int, error) { return red.Multicast(block, 2) },
	} {
		check(t, red.SetWriteDeadline(time.Now().Add(10*time.Millisecond)))
		if _, err := send(); err == nil {
			count++
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	check(t, red.SetWriteDeadline(time.Time{}))
	// The messages that were sent arrive, and the others do not.
	done := make(chan error, 1)
	go func() {
		_, err := red.Broadcast([]byte("afterwards"))
		done <- err
	}()
	for range count {
		expectText(t, blue, string(block), red)
	}
	check(t, <-done)
	expectText(t, blue, "afterwards", red)
}

func TestSendWaitsForMemberThatReads(t *testing.T) {
	red, blue := couple(t, newNode(t))
	const messages = 300
	done := make(chan error, 1)
	go func() {
		for number := range messages {
			data := make([]byte, 20_000)
			data[0], data[1] = byte(number), byte(number>>8)
			var err error
			switch number % 3 {
			case 0:
				_, err = red.Broadcast(data)
			case 1:
				_, err = red.Anycast(data, 2)
			default:
				_, err = red.Send(data, blue.Member().Port)
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for number := range messages {
		incoming, err := blue.Receive(within(t))
		check(t, err)
		if got := int(incoming.Data[0]) + int(incoming.Data[1])<<8; got != number {
			t.Fatalf("received message %d instead of %d", got, number)
		}
	}
	check(t, <-done)
}

func TestClosedMemberIsUnreachable(t *testing.T) {
	red, blue := couple(t, newNode(t))
	fill(t, red, make([]byte, 60_000))
	// Red waits for a member that then closes.
	waiting := make(chan error, 1)
	go func() {
		waiting <- sendUntilError(func() (int, error) { return red.Send(make([]byte, 60_000), blue.Member().Port) })
	}()
	time.Sleep(10 * time.Millisecond) // so that the call usually waits; both orders are correct
	check(t, blue.Close())
	if err := <-waiting; !errors.Is(err, ErrUnreachable) {
		t.Errorf("waiting Send: %v", err)
	}
	expect(t, red, Incoming{Kind: MemberLeft, Member: blue.Member()})
	for name, send := range map[string]func() (int, error){
		"Broadcast": func() (int, error) { return red.Broadcast([]byte("x")) },
		"Multicast": func() (int, error) { return red.Multicast([]byte("x"), 2) },
		"Anycast":   func() (int, error) { return red.Anycast([]byte("x"), 2) },
		"Send":      func() (int, error) { return red.Send([]byte("x"), blue.Member().Port) },
	} {
		_, err := send()
		var op *net.OpError
		if !errors.Is(err, ErrUnreachable) || !errors.As(err, &op) || op.Op != "write" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := blue.Broadcast([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Broadcast of a closed member: %v", err)
	}
}

func TestReceiveHonoursContextAndDeadline(t *testing.T) {
	red, blue := couple(t, newNode(t))
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := blue.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		cancel()
	}
	check(t, blue.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	if _, err := blue.Receive(t.Context()); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	check(t, blue.SetReadDeadline(time.Time{}))
	sent(t, "later")(red.Broadcast([]byte("later")))
	expectText(t, blue, "later", red)
}

func TestFormerMemberKeepsItsSocket(t *testing.T) {
	red, blue := couple(t, newNode(t))
	waits := make(chan error, 2)
	for range cap(waits) {
		go func() {
			_, err := blue.Receive(t.Context())
			waits <- err
		}()
	}
	time.Sleep(10 * time.Millisecond) // so that the calls usually wait; both orders are correct
	socket, err := blue.Leave()
	check(t, err)
	for range cap(waits) {
		if err := <-waits; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Receive: %v", err)
		}
	}
	expect(t, red, Incoming{Kind: MemberLeft, Member: blue.Member()})
	if socket.LocalAddr() != blue.LocalAddr() {
		t.Errorf("%v instead of %v", socket.LocalAddr(), blue.LocalAddr())
	}
	_, sendErr := blue.Broadcast([]byte("x"))
	_, leaveErr := blue.Leave()
	for name, err := range map[string]error{"Broadcast": sendErr, "Leave": leaveErr, "Close": blue.Close()} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after Leave: %v", name, err)
		}
	}
	// The socket exchanges messages without a group, and joins again.
	_, err = socket.WriteTo([]byte("plain"), socket.LocalAddr())
	check(t, err)
	buffer := make([]byte, 10)
	n, _, err := socket.ReadFrom(buffer)
	check(t, err)
	if string(buffer[:n]) != "plain" {
		t.Fatalf("received %q", buffer[:n])
	}
	_, err = socket.Join(blue.Addr(), GroupOptions{})
	check(t, err)
	expect(t, red, Incoming{Kind: MemberJoined, Member: blue.Member()})
}

func TestFormerMemberReadsWhatHasArrived(t *testing.T) {
	node := newNode(t)
	for text, act := range map[string]func(*Group) error{
		"kept": func(blue *Group) error { _, err := blue.Broadcast([]byte("kept")); return err },
		// A change of the members counts as an empty message.
		"": (*Group).Close,
	} {
		red, blue := couple(t, node)
		check(t, act(blue))
		awaitReadable(t, red.socket)
		socket, err := red.Leave()
		check(t, err)
		buffer := make([]byte, 10)
		message, err := socket.ReadMessage(buffer)
		check(t, err)
		got := string(buffer[:message.Size])
		if got != text || message.Source != blue.LocalAddr() || message.Returned != NotReturned {
			t.Errorf("received %+v with %q instead of %q", message, got, text)
		}
	}
}

// awaitReadable waits until something has arrived at the socket, and leaves it there.
func awaitReadable(t *testing.T, s *socket) {
	t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); {
		var set syscall.FdSet
		set.Bits[s.sd/64] = 1 << (s.sd % 64)
		// Signals of the Go runtime interrupt it.
		if n, err := syscall.Select(s.sd+1, &set, nil, nil, &syscall.Timeval{Sec: 1}); err == nil && n == 1 {
			return
		}
	}
	t.Fatal("nothing arrives")
}

func TestJoinNamesWhyItFails(t *testing.T) {
	node := newNode(t)
	_, err := node.Join(ServiceAddr{Type: 63, Instance: 1}, GroupOptions{})
	var op *net.OpError
	var own *Error
	if !errors.Is(err, os.ErrPermission) {
		t.Errorf("a reserved group: %v", err)
	}
	if !errors.As(err, &op) || op.Op != "join" || !errors.As(err, &own) || own.Text == "" {
		t.Errorf("%#v names neither call nor cause", err)
	}
	elsewhere := newService()
	elsewhere.Node = node.ID() + 1
	if _, err := node.Join(elsewhere, GroupOptions{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a group of another node: %v", err)
	}
	socket, err := node.ListenPacket()
	check(t, err)
	_, err = socket.Join(newService(), GroupOptions{})
	check(t, err)
	if group, err := socket.Join(newService(), GroupOptions{}); !errors.Is(err, os.ErrPermission) || group != nil {
		t.Errorf("a second group: %v", err)
	}
	check(t, node.Close())
	if _, err := node.Join(newService(), GroupOptions{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed node: %v", err)
	}
}

func TestMessageTellsToWhomItWasSent(t *testing.T) {
	node := newNode(t)
	red, blue := couple(t, node)
	also := join(t, node, ServiceAddr{Type: red.Addr().Type, Instance: 2}, GroupOptions{})
	expect(t, red, Incoming{Kind: MemberJoined, Member: also.Member()})
	sent(t, "all")(red.Broadcast([]byte("all")))
	sent(t, "twos")(red.Multicast([]byte("twos"), 2))
	sent(t, "one")(red.Send([]byte("one"), blue.Member().Port))
	for _, want := range []SentTo{SentToAll, SentToInstance, SentToMember} {
		got, err := blue.Receive(within(t))
		check(t, err)
		if got.SentTo != want {
			t.Fatalf("%q was sent to %v instead of %v", got.Data, got.SentTo, want)
		}
	}
	if text := SentTo(9).String(); text != "receivers 9" {
		t.Fatal(text)
	}
}

func TestWaitReasonNamesTheMember(t *testing.T) {
	red, blue := couple(t, newNode(t))
	if reason, waits := red.WaitReason(); waits {
		t.Fatalf("an idle group waits: %v", reason)
	}
	data := make([]byte, 60_000)
	check(t, red.SetWriteDeadline(time.Now().Add(200*time.Millisecond)))
	for range 30 {
		if _, err := red.Send(data, blue.Member().Port); err != nil {
			break
		}
	}
	reason, waits := red.WaitReason()
	if !waits || reason.Member != blue.Member().Port || reason.String() == "" {
		t.Fatalf("waits %v: %q for %v", waits, reason, reason.Member)
	}
	check(t, red.Close())
	if _, waits := red.WaitReason(); waits {
		t.Fatal("a closed group waits")
	}
}
