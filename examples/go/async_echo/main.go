// Command async_echo has a server and its clients as goroutines, none of which occupies a thread while it waits.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"time"

	utipc "github.com/utipc/utipc/bindings/go"
)

const clients = 3

var echo = utipc.ServiceAddr{Type: 4711, Instance: 2}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	node, err := utipc.Start(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	if err := run(ctx, node); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, node *utipc.Node) error {
	topology, err := node.Topology(ctx, 0)
	if err != nil {
		return err
	}
	if err := topology.Services(echo); err != nil {
		return err
	}
	listener, err := node.Listen(echo)
	if err != nil {
		return err
	}
	go serve(listener)
	if _, err := topology.Next(ctx); err != nil {
		return err
	}
	fmt.Println("the service is up")

	for number := range clients {
		if err := ask(ctx, node, fmt.Sprintf("client %d", number)); err != nil {
			return err
		}
	}
	// This withdraws the service.
	if err := listener.Close(); err != nil {
		return err
	}
	if _, err := topology.Next(ctx); err != nil {
		return err
	}
	fmt.Println("the service is gone")
	return nil
}

// serve ends when the listener is closed.
func serve(listener *utipc.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			io.Copy(conn, conn)
		}()
	}
}

func ask(ctx context.Context, node *utipc.Node, question string) error {
	conn, err := node.Dial(ctx, echo)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, question); err != nil {
		return err
	}
	reply := make([]byte, len(question))
	if _, err := io.ReadFull(conn, reply); err != nil {
		return err
	}
	fmt.Printf("%s\n", reply)
	return nil
}
