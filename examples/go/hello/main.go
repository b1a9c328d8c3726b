// Command hello sends a message to a service address.
package main

import (
	"context"
	"fmt"
	"log"

	utipc "github.com/utipc/utipc/bindings/go"
)

func main() {
	node, err := utipc.Start(context.Background()) // uses utipcd if it runs here, else this program is a node
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	hello := utipc.ServiceAddr{Type: 18888, Instance: 1}
	server, err := node.ListenPacket(hello)
	if err != nil {
		log.Fatal(err)
	}
	client, err := node.ListenPacket()
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.WriteTo([]byte("Hello World"), hello); err != nil {
		log.Fatal(err)
	}
	text := make([]byte, 100)
	size, _, err := server.ReadFrom(text)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s at %v\n", text[:size], hello)
}
