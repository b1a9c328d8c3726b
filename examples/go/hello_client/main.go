// Command hello_client waits for the service of hello_server, sends it a message, and prints the reply.
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
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	node, err := utipc.Start(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	if err := ask(ctx, node); err != nil {
		log.Fatal(err)
	}
}

func ask(ctx context.Context, node *utipc.Node) error {
	socket, err := node.ListenPacket()
	if err != nil {
		return err
	}
	fmt.Printf("client: node %v waits for %v\n", node.ID(), hello)
	if err := node.WaitForService(ctx, hello); err != nil {
		return err
	}
	if _, err := socket.WriteTo([]byte("Hello World!!!"), hello); err != nil {
		return err
	}
	if err := socket.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	reply := make([]byte, 100)
	size, from, err := socket.ReadFrom(reply)
	if err != nil {
		return err
	}
	fmt.Printf("client: \"%s\" from %v\n", reply[:size], from)
	return nil
}
