// Command connections shows three ways to set up a connection.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"

	utipc "github.com/utipc/utipc/bindings/go"
)

var echo = utipc.ServiceAddr{Type: 4711, Instance: 1}

func main() {
	ctx := context.Background()
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
	// Both ends are on one node for demonstration; they could also be on two nodes.
	listener, err := node.Listen(echo)
	if err != nil {
		return err
	}
	defer listener.Close()
	go serve(listener)

	// 1. As with TCP: connect, wait until the server has accepted, then talk.
	conn, err := node.Dial(ctx, echo)
	if err != nil {
		return err
	}
	reply, err := ask(conn, "first")
	if err != nil {
		return err
	}
	fmt.Printf("1. by request: connected to %v, answer \"%s\"\n", conn.RemoteAddr(), reply)
	conn.Close()

	// 2. By data: the first message is the connection request, which saves a round trip.
	conn, err = node.DialData(ctx, echo, []byte("second"))
	if err != nil {
		return err
	}
	if reply, err = receive(conn, len("second")); err != nil {
		return err
	}
	fmt.Printf("2. by data: answer \"%s\"\n", reply)
	conn.Close()

	// 3. Without waiting: another goroutine connects.
	type result struct {
		conn *utipc.Conn
		err  error
	}
	dialled := make(chan result)
	go func() {
		conn, err := node.Dial(ctx, echo)
		dialled <- result{conn, err}
	}()
	fmt.Println("3. without waiting: something else is done meanwhile")
	third := <-dialled
	if third.err != nil {
		return third.err
	}
	defer third.conn.Close()
	if reply, err = ask(third.conn, "third"); err != nil {
		return err
	}
	fmt.Printf("3. without waiting: connected to %v, answer \"%s\"\n", third.conn.RemoteAddr(), reply)
	return nil
}

// serve ends when the listener is closed.
func serve(listener net.Listener) {
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

func ask(conn net.Conn, question string) (string, error) {
	if _, err := io.WriteString(conn, question); err != nil {
		return "", err
	}
	return receive(conn, len(question))
}

func receive(conn net.Conn, size int) (string, error) {
	reply := make([]byte, size)
	_, err := io.ReadFull(conn, reply)
	return string(reply), err
}
