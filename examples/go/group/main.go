// Command group makes a communication group of a coordinator, and of workers that it knows by their membership.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	utipc "github.com/utipc/utipc/bindings/go"
)

const jobs = 4300

// Instances of the members.
const (
	boss   = 1
	worker = 2
)

func main() {
	ctx := context.Background()
	node, err := utipc.Start(ctx)
	if err != nil {
		log.Fatal(err)
	}
	err = run(ctx, node)
	if err = errors.Join(err, node.Close()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, node *utipc.Node) error {
	coordinator, err := node.Join(utipc.ServiceAddr{Type: jobs, Instance: boss}, utipc.GroupOptions{Events: true})
	if err != nil {
		return err
	}
	var workers [2]*utipc.Group
	for i := range workers {
		if workers[i], err = node.Join(utipc.ServiceAddr{Type: jobs, Instance: worker}, utipc.GroupOptions{}); err != nil {
			return err
		}
	}
	for range workers {
		joined, err := coordinator.Receive(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("coordinator: instance %d has %v\n", joined.Member.Instance, joined.Kind)
	}

	// To all; then to one of the workers each, in turn.
	if _, err := coordinator.Broadcast([]byte("start")); err != nil {
		return err
	}
	for range workers {
		if _, err := coordinator.Anycast([]byte("a task"), worker); err != nil {
			return err
		}
	}
	for i, group := range workers {
		for range 2 {
			message, err := group.Receive(ctx)
			if err != nil {
				return err
			}
			fmt.Printf("worker %d: %s\n", i+1, message.Data)
		}
	}

	// To one member.
	if _, err := workers[0].Send([]byte("done"), coordinator.Member().Port); err != nil {
		return err
	}
	message, err := coordinator.Receive(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("coordinator: %s from instance %d\n", message.Data, message.Member.Instance)
	if err := workers[0].Close(); err != nil {
		return err
	}
	left, err := coordinator.Receive(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("coordinator: instance %d has %v\n", left.Member.Instance, left.Kind)
	return nil
}
