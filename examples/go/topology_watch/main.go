// Command topology_watch prints events of nodes and links in the cluster: topology_watch [SECONDS].
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	utipc "github.com/utipc/utipc/bindings/go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) > 1 {
		limit, err := time.ParseDuration(os.Args[1] + "s")
		if err != nil {
			log.Fatal(err)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	node, err := utipc.Start(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	if err := watch(ctx, node); err != nil && !errors.Is(err, ctx.Err()) {
		log.Fatal(err)
	}
}

func watch(ctx context.Context, node *utipc.Node) error {
	topology, err := node.Topology(ctx, 0)
	if err != nil {
		return err
	}
	fmt.Printf("the view of node %v\n", node.ID())
	if err := errors.Join(topology.Nodes(), topology.Links()); err != nil {
		return err
	}
	for event, err := range topology.Events(ctx) {
		if err != nil {
			return err
		}
		what := "node"
		if event.Change == utipc.LinkUp || event.Change == utipc.LinkDown {
			what = "link to node"
		}
		state := "down"
		if event.Change.Up() {
			state = "up"
		}
		fmt.Printf("%s %v is %s\n", what, event.Node, state)
	}
	return nil
}
