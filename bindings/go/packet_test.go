// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import (
	"errors"
	"net"
	"testing"
)

func TestPacketsGoToServicesAndBack(t *testing.T) {
	node := newNode(t)
	service := newService()
	server, err := node.ListenPacket(service)
	check(t, err)
	client, err := node.ListenPacket()
	check(t, err)
	n, err := client.WriteTo([]byte("question"), service)
	check(t, err)
	if n != 8 {
		t.Fatalf("WriteTo: %d", n)
	}
	buffer := make([]byte, MaxMessage)
	message, err := server.ReadMessage(buffer)
	check(t, err)
	if string(buffer[:message.Size]) != "question" || message.Destination != service.span() {
		t.Fatalf("received %+v", message)
	}
	if message.Source != client.LocalAddr() {
		t.Fatalf("from %v instead of %v", message.Source, client.LocalAddr())
	}
	_, err = server.WriteTo([]byte("answer"), message.Source)
	check(t, err)
	n, from, err := client.ReadFrom(buffer)
	check(t, err)
	if string(buffer[:n]) != "answer" || from != server.LocalAddr() {
		t.Fatalf("received %q from %v", buffer[:n], from)
	}
}

func TestMulticastReachesAllThatAreBound(t *testing.T) {
	node := newNode(t)
	service := newService()
	var stations []*PacketConn
	for instance := range uint32(3) {
		station, err := node.ListenPacket(ServiceAddr{Type: service.Type, Instance: instance})
		check(t, err)
		stations = append(stations, station)
	}
	sender, err := node.ListenPacket()
	check(t, err)
	sent := ServiceRange{Type: service.Type, Lower: 0, Upper: 1}
	_, err = sender.WriteTo([]byte("to two"), sent)
	check(t, err)
	_, err = sender.WriteTo([]byte("to all"), AllInstances(service.Type))
	check(t, err)
	for i, station := range stations {
		expected := []string{"to two", "to all"}[i/2:]
		for _, text := range expected {
			buffer := make([]byte, 100)
			message, err := station.ReadMessage(buffer)
			check(t, err)
			if string(buffer[:message.Size]) != text {
				t.Fatalf("station %d received %q instead of %q", i, buffer[:message.Size], text)
			}
			if text == "to two" && message.Destination != sent {
				t.Fatalf("sent to %v, received as sent to %v", sent, message.Destination)
			}
		}
	}
}

func TestUndeliverableMessagesComeBack(t *testing.T) {
	node := newNode(t)
	receiver, err := node.ListenPacket()
	check(t, err)
	gone := receiver.LocalAddr()
	check(t, receiver.Close())
	sender, err := node.ListenPacket()
	check(t, err)
	check(t, sender.SetReturned())
	_, err = sender.WriteTo([]byte("anyone there?"), gone)
	check(t, err)
	_, _, err = sender.ReadFrom(make([]byte, 100))
	var returned *ReturnedError
	if !errors.Is(err, ErrReturned) || !errors.As(err, &returned) {
		t.Fatal(err)
	}
	if returned.Reason != NoSocket || string(returned.Data) != "anyone there?" {
		t.Fatalf("returned %v %q", returned.Reason, returned.Data)
	}
}

func TestPacketsToOtherNetworksAreRefused(t *testing.T) {
	socket, err := newNode(t).ListenPacket()
	check(t, err)
	var wrong *net.AddrError
	if _, err := socket.WriteTo(nil, &net.UDPAddr{}); !errors.As(err, &wrong) {
		t.Fatal(err)
	}
}

func TestAddressesAreReadAndWritten(t *testing.T) {
	for text, want := range map[string]ServiceAddr{
		"4711:1":           {Type: 4711, Instance: 1},
		"{4711,1}":         {Type: 4711, Instance: 1},
		"4711:1@1001001":   {Type: 4711, Instance: 1, Node: 0x1001001},
		"{4711,1}@1001001": {Type: 4711, Instance: 1, Node: 0x1001001},
	} {
		got, err := ParseServiceAddr(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if again, err := ParseServiceAddr(got.String()); err != nil || again != got {
			t.Errorf("%v: %v, %v", got, again, err)
		}
	}
	for _, text := range []string{"", "4711", "4711:", "a:1", "1:2:3", "{1:2}", "{1,2", "1,2", "1:2@", "4294967296:0", "-1:0"} {
		if got, err := ParseServiceAddr(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
	if text := (PortID{Port: 12, Node: 0x1001001}).String(); text != "1001001:12" {
		t.Error(text)
	}
}
