// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestTopologyReportsBindings(t *testing.T) {
	node := newNode(t)
	service := newService()
	topology, err := node.Topology(within(t), 0)
	check(t, err)
	defer topology.Close()
	check(t, topology.Services(AllInstances(service.Type)))
	bound := ServiceRange{Type: service.Type, Lower: 5, Upper: 9}
	socket, err := node.ListenPacket(bound)
	check(t, err)
	want := Event{Change: ServiceUp, Service: bound, Port: socket.LocalAddr().(PortID), Node: node.ID()}
	got, err := topology.Next(within(t))
	check(t, err)
	if got != want {
		t.Fatalf("%+v instead of %+v", got, want)
	}
	check(t, socket.Close())
	want.Change = ServiceDown
	got, err = topology.Next(within(t))
	check(t, err)
	if got != want {
		t.Fatalf("%+v instead of %+v", got, want)
	}
}

func TestTopologyReportsTheOwnNode(t *testing.T) {
	node := newNode(t)
	topology, err := node.Topology(within(t), node.ID())
	check(t, err)
	defer topology.Close()
	check(t, topology.Nodes())
	check(t, topology.Links())
	for event, err := range topology.Events(within(t)) {
		check(t, err)
		if event.Change == NodeUp && event.Node == node.ID() {
			return
		}
	}
	t.Fatal("no event of the own node")
}

func TestCancelledNextLosesNoEvent(t *testing.T) {
	node := newNode(t)
	service := newService()
	topology, err := node.Topology(within(t), 0)
	check(t, err)
	defer topology.Close()
	check(t, topology.Services(service))
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := topology.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		cancel()
	}
	socket, err := node.ListenPacket(service)
	check(t, err)
	defer socket.Close()
	event, err := topology.Next(within(t))
	check(t, err)
	if event.Change != ServiceUp {
		t.Fatal(event)
	}
}

func TestContextsOfConcurrentNextsAreIndependent(t *testing.T) {
	topology, err := newNode(t).Topology(within(t), 0)
	check(t, err)
	defer topology.Close()
	ctx, cancel := context.WithCancel(t.Context())
	other := make(chan error)
	go func() {
		_, err := topology.Next(ctx)
		other <- err
	}()
	short, cancelShort := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancelShort()
	if _, err := topology.Next(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	select {
	case err := <-other:
		t.Errorf("it ended with the context of another call: %v", err)
	default:
	}
	cancel()
	if err := <-other; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestWaitForServiceReturnsWhenItIsBound(t *testing.T) {
	node := newNode(t)
	service := newService()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := node.WaitForService(ctx, service); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- node.WaitForService(within(t), service) }()
	listener, err := node.Listen(service)
	check(t, err)
	defer listener.Close()
	check(t, <-done)
}
