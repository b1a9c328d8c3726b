// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestStreamCarriesAllBytesInOrder(t *testing.T) {
	client, server := pair(t, newNode(t), false)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		if n, err := client.Write(sent); n != len(sent) || err != nil {
			t.Errorf("Write: %d, %v", n, err)
		}
		client.Close()
	}()
	got, err := io.ReadAll(server)
	check(t, err)
	if !bytes.Equal(got, sent) {
		t.Fatalf("received %d bytes that differ from the %d sent", len(got), len(sent))
	}
}

func TestSeqPacketKeepsMessagesApart(t *testing.T) {
	client, server := pair(t, newNode(t), true)
	for _, text := range []string{"one", "two", "three"} {
		_, err := client.Write([]byte(text))
		check(t, err)
	}
	buffer := make([]byte, 100)
	for _, text := range []string{"one", "two", "three"} {
		n, err := server.Read(buffer)
		check(t, err)
		if got := string(buffer[:n]); got != text {
			t.Fatalf("received %q instead of %q", got, text)
		}
	}
	if _, err := client.Write(nil); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("an empty message: %v", err)
	}
	if _, err := client.Write(make([]byte, MaxMessage+1)); !errors.Is(err, syscall.EMSGSIZE) {
		t.Fatalf("a message that is too long: %v", err)
	}
}

func TestConcurrentWritesDoNotMix(t *testing.T) {
	client, server := pair(t, newNode(t), false)
	const writers, size = 8, 200_000
	var all sync.WaitGroup
	for i := range writers {
		all.Add(1)
		go func() {
			defer all.Done()
			if _, err := client.Write(bytes.Repeat([]byte{byte('a' + i)}, size)); err != nil {
				t.Error(err)
			}
		}()
	}
	go func() {
		all.Wait()
		client.Close()
	}()
	got, err := io.ReadAll(server)
	check(t, err)
	if len(got) != writers*size {
		t.Fatalf("received %d bytes", len(got))
	}
	for part := range writers {
		block := got[part*size : (part+1)*size]
		if !bytes.Equal(block, bytes.Repeat(block[:1], size)) {
			t.Fatalf("block %d has bytes of several writers", part)
		}
	}
}

func TestDeadlineEndsReadAndLosesNothing(t *testing.T) {
	client, server := pair(t, newNode(t), false)
	check(t, server.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	began := time.Now()
	_, err := server.Read(make([]byte, 10))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Read: %v", err)
	}
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("%v is not a timeout", err)
	}
	if took := time.Since(began); took < 20*time.Millisecond {
		t.Fatalf("the deadline came after %v", took)
	}
	check(t, server.SetReadDeadline(time.Time{}))
	_, err = client.Write([]byte("later"))
	check(t, err)
	buffer := make([]byte, 10)
	n, err := server.Read(buffer)
	check(t, err)
	if string(buffer[:n]) != "later" {
		t.Fatalf("received %q", buffer[:n])
	}
}

func TestDeadlineActsOnWaitingCalls(t *testing.T) {
	_, server := pair(t, newNode(t), false)
	done := make(chan error)
	go func() {
		_, err := server.Read(make([]byte, 10))
		done <- err
	}()
	check(t, server.SetDeadline(past))
	if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestDeadlineEndsWriteToFullConnection(t *testing.T) {
	client, server := pair(t, newNode(t), false)
	block := make([]byte, 64<<20)
	// Enough for a busy machine to write at least a part.
	check(t, client.SetWriteDeadline(time.Now().Add(2*time.Second)))
	n, err := client.Write(block)
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == len(block) {
		t.Fatalf("Write: %d, %v", n, err)
	}
	// Everything sent arrives, and the connection continues.
	check(t, client.SetWriteDeadline(time.Time{}))
	go client.Close()
	got, err := io.Copy(io.Discard, server)
	check(t, err)
	if got != int64(n) {
		t.Fatalf("received %d bytes of %d", got, n)
	}
}

func TestCloseEndsWaitingCalls(t *testing.T) {
	node := newNode(t)
	client, _ := pair(t, node, false)
	listener, err := node.Listen(newService())
	check(t, err)
	packets, err := node.ListenPacket()
	check(t, err)
	topology, err := node.Topology(within(t), 0)
	check(t, err)
	group := join(t, node, newService(), GroupOptions{})
	full, reader := couple(t, node)
	defer reader.Close()
	block := make([]byte, 60_000)
	fill(t, full, block)
	waits := map[string]struct {
		wait  func() error
		close func() error
	}{
		"Read":      {func() error { _, err := client.Read(make([]byte, 1)); return err }, client.Close},
		"Accept":    {func() error { _, err := listener.Accept(); return err }, listener.Close},
		"ReadFrom":  {func() error { _, _, err := packets.ReadFrom(make([]byte, 1)); return err }, packets.Close},
		"Next":      {func() error { _, err := topology.Next(t.Context()); return err }, topology.Close},
		"Receive":   {func() error { _, err := group.Receive(t.Context()); return err }, group.Close},
		"Broadcast": {func() error { return sendUntilError(func() (int, error) { return full.Broadcast(block) }) }, full.Close},
	}
	for name, call := range waits {
		done := make(chan error)
		go func() { done <- call.wait() }()
		time.Sleep(10 * time.Millisecond) // so that the call usually waits; both orders are correct
		check(t, call.close())
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
		if err := call.close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second Close after %s: %v", name, err)
		}
		if err := call.wait(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

func TestPeerReadsEverythingBeforeTheEnd(t *testing.T) {
	client, server := pair(t, newNode(t), false)
	_, err := client.Write([]byte("last words"))
	check(t, err)
	check(t, client.Close())
	got, err := io.ReadAll(server)
	check(t, err)
	if string(got) != "last words" {
		t.Fatalf("received %q", got)
	}
	if _, err := server.Write([]byte("too late")); !errors.Is(err, ErrConnectionLost) {
		t.Fatalf("Write after the end: %v", err)
	}
}

func TestDialNamesWhyItFails(t *testing.T) {
	node := newNode(t)
	_, err := node.Dial(within(t), newService())
	if !errors.Is(err, ErrUnreachable) {
		t.Errorf("nothing bound: %v", err)
	}
	service := newService()
	silent, err := node.open(stream)
	check(t, err)
	defer silent.close()
	check(t, silent.bind(service))
	if _, err = node.Dial(within(t), service); !errors.Is(err, ErrRefused) {
		t.Errorf("bound, but not listening: %v", err)
	}
	var op *net.OpError
	var own *Error
	if !errors.As(err, &op) || op.Op != "dial" || !errors.As(err, &own) || own.Text == "" {
		t.Errorf("%#v names neither call nor cause", err)
	}
	if _, err = node.Dial(within(t), AllInstances(service.Type)); err == nil {
		t.Error("connected to a range")
	}
	if _, err = node.DialContext(within(t), "tcp", "localhost:http"); err == nil || !strings.Contains(err.Error(), "type:instance") {
		t.Errorf("an invalid address: %v", err)
	}
	if _, err = node.Listen(ServiceAddr{Type: 1, Instance: 5}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("a reserved type: %v", err)
	}
}

func TestFirstDataRequestsTheConnection(t *testing.T) {
	node := newNode(t)
	service := newService()
	listener, err := node.Listen(service)
	check(t, err)
	defer listener.Close()
	client, err := node.DialData(within(t), service, []byte("first"))
	check(t, err)
	defer client.Close()
	server, err := listener.AcceptConn()
	check(t, err)
	buffer := make([]byte, 10)
	n, err := server.Read(buffer)
	check(t, err)
	if string(buffer[:n]) != "first" {
		t.Fatalf("received %q", buffer[:n])
	}
	_, err = server.Write([]byte("answer"))
	check(t, err)
	n, err = client.Read(buffer)
	check(t, err)
	if string(buffer[:n]) != "answer" || client.RemoteAddr() != server.LocalAddr() {
		t.Fatalf("received %q from %v", buffer[:n], client.RemoteAddr())
	}
}

func TestWriteAfterDialDataWaitsForTheServer(t *testing.T) {
	node := newNode(t)
	service := newService()
	listener, err := node.Listen(service)
	check(t, err)
	defer listener.Close()
	client, err := node.DialData(within(t), service, []byte("first "))
	check(t, err)
	defer client.Close()
	written := make(chan error)
	go func() {
		_, err := client.Write([]byte("second"))
		written <- err
	}()
	time.Sleep(50 * time.Millisecond)
	server, err := listener.AcceptConn()
	check(t, err)
	defer server.Close()
	check(t, <-written)
	all := make([]byte, 12)
	_, err = io.ReadFull(server, all)
	check(t, err)
	if string(all) != "first second" {
		t.Fatalf("received %q", all)
	}
}

func TestDialHonoursItsContext(t *testing.T) {
	node := newNode(t)
	service := newService()
	// It does not accept, so that dialling waits.
	listener, err := node.Listen(service)
	check(t, err)
	defer listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := node.Dial(ctx, service); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := node.Dial(ctx, service); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("timed out: %v", err)
	}
	if _, err := node.Dial(ctx, service); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("over before: %v", err)
	}
}

func TestHTTPRunsOnServiceAddresses(t *testing.T) {
	node := newNode(t)
	service := newService()
	listener, err := node.Listen(service)
	check(t, err)
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from %s", r.Host)
	})}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	host := fmt.Sprintf("%d:%d", service.Type, service.Instance)
	client := http.Client{Transport: &http.Transport{DialContext: node.DialContext}, Timeout: limit}
	reply, err := client.Get("http://" + host + "/")
	check(t, err)
	body, err := io.ReadAll(reply.Body)
	check(t, err)
	reply.Body.Close()
	if string(body) != "hello from "+host {
		t.Fatalf("received %q", body)
	}
	check(t, server.Shutdown(within(t)))
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Fatal(err)
	}
}

func TestWaitingGoroutinesOccupyNoThreads(t *testing.T) {
	node := newNode(t)
	const waiting = 200
	before := threads(t)
	var all sync.WaitGroup
	var sockets []*PacketConn
	for range waiting {
		socket, err := node.ListenPacket()
		check(t, err)
		sockets = append(sockets, socket)
		all.Add(1)
		go func() {
			defer all.Done()
			if _, _, err := socket.ReadFrom(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}()
	}
	runtime.Gosched()
	if more := threads(t) - before; more > waiting/2 {
		t.Errorf("%d goroutines that wait occupy %d threads", waiting, more)
	}
	for _, socket := range sockets {
		check(t, socket.Close())
	}
	all.Wait()
}

func threads(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/task")
	check(t, err)
	return len(entries)
}

func TestUnreachableSocketsAreClosed(t *testing.T) {
	node := newNode(t)
	service := newService()
	topology, err := node.Topology(within(t), 0)
	check(t, err)
	defer topology.Close()
	check(t, topology.Services(service))
	func() {
		_, err := node.ListenPacket(service)
		check(t, err)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	collector := time.NewTicker(10 * time.Millisecond)
	defer collector.Stop()
	go func() {
		for ctx.Err() == nil {
			<-collector.C
			runtime.GC()
		}
	}()
	for event, err := range topology.Events(ctx) {
		check(t, err)
		if event.Change == ServiceDown {
			return
		}
	}
}

func TestCloseOfNodeClosesItsSockets(t *testing.T) {
	node := newNode(t)
	listener, err := node.Listen(newService())
	check(t, err)
	done := make(chan error)
	go func() {
		_, err := listener.Accept()
		done <- err
	}()
	check(t, node.Close())
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := node.ListenPacket(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	// Another one starts.
	again := newNode(t)
	_, err = again.ListenPacket()
	check(t, err)
}
