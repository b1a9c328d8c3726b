// Command service_watch watches the bindings of a service, as this node or another one sees them: service_watch
// [NODE], in hexadecimal.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	utipc "github.com/utipc/utipc/bindings/go"
)

var (
	watched = utipc.ServiceRange{Type: 2222, Lower: 0, Upper: 99}
	own     = utipc.ServiceAddr{Type: 2222, Instance: 5}
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	node, err := utipc.Start(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	if err := watch(ctx, node); err != nil {
		log.Fatal(err)
	}
	fmt.Println("done")
}

func watch(ctx context.Context, node *utipc.Node) error {
	server := node.ID()
	if len(os.Args) > 1 {
		address, err := strconv.ParseUint(os.Args[1], 16, 32)
		if err != nil {
			return err
		}
		server = utipc.NodeID(address)
	}
	if server != node.ID() {
		if err := waitForNode(ctx, node, server); err != nil {
			return err
		}
	}
	// The topology server of another node is used like that of this node.
	topology, err := node.Topology(ctx, server)
	if err != nil {
		return err
	}
	fmt.Printf("watching %v as node %v sees it\n", watched, server)
	if err := topology.Services(watched); err != nil {
		return err
	}
	socket, err := node.ListenPacket(own)
	if err != nil {
		return err
	}
	for event, err := range topology.Events(ctx) {
		if err != nil {
			return err
		}
		service := utipc.ServiceAddr{Type: event.Service.Type, Instance: event.Service.Lower}
		if event.Change == utipc.ServiceDown {
			fmt.Printf("service %v is down at %v\n", service, event.Port)
			break
		}
		fmt.Printf("service %v is up at %v\n", service, event.Port)
		// Closing the socket withdraws its bindings.
		if err := socket.Close(); err != nil {
			return err
		}
	}
	return nil
}

// waitForNode waits for a node: a program that has just started does not know its peers yet.
func waitForNode(ctx context.Context, node *utipc.Node, wanted utipc.NodeID) error {
	topology, err := node.Topology(ctx, 0)
	if err != nil {
		return err
	}
	defer topology.Close()
	if err := topology.Nodes(); err != nil {
		return err
	}
	for event, err := range topology.Events(ctx) {
		if err != nil {
			return err
		}
		if event.Change == utipc.NodeUp && event.Node == wanted {
			break
		}
	}
	return nil
}
