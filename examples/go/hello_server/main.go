// Command hello_server is a server without a host or port number: it binds to a service address, and clients find it
// wherever it runs.
//
// Start it in one terminal and hello_client in another, in any order, with no arguments.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	utipc "github.com/utipc/utipc/bindings/go"
)

var hello = utipc.ServiceAddr{Type: 18888, Instance: 17}

func main() {
	node, err := utipc.Start(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	if err := serve(node); err != nil {
		log.Fatal(err)
	}
	fmt.Println("server: done")
}

func serve(node *utipc.Node) error {
	socket, err := node.ListenPacket(hello)
	if err != nil {
		return err
	}
	fmt.Printf("server: bound to %v on node %v\n", hello, node.ID())

	buffer := make([]byte, utipc.MaxMessage)
	request, err := socket.ReadMessage(buffer)
	if err != nil {
		return err
	}
	fmt.Printf("server: \"%s\" from %v\n", buffer[:request.Size], request.Source)
	if _, err := socket.WriteTo([]byte("Uh ?"), request.Source); err != nil {
		return err
	}
	if request.Source.Node == node.ID() {
		return nil
	}
	// The reply to another node travels over a link: stay until that node has left, so that the reply arrives.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	topology, err := node.Topology(ctx, 0)
	if err != nil {
		return err
	}
	if err := topology.Nodes(); err != nil {
		return err
	}
	for event, err := range topology.Events(ctx) {
		if err != nil || event.Change == utipc.NodeDown && event.Node == request.Source.Node {
			break
		}
	}
	return nil
}
