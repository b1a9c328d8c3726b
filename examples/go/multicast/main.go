// Command multicast sends one message to all sockets bound in a range of instances.
package main

import (
	"context"
	"fmt"
	"log"

	utipc "github.com/utipc/utipc/bindings/go"
)

const weather = 1000

func main() {
	node, err := utipc.Start(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	if err := run(node); err != nil {
		log.Fatal(err)
	}
}

func run(node *utipc.Node) error {
	instances := []uint32{10, 20, 30}
	stations := map[uint32]*utipc.PacketConn{}
	for _, instance := range instances {
		station, err := node.ListenPacket(utipc.ServiceAddr{Type: weather, Instance: instance})
		if err != nil {
			return err
		}
		stations[instance] = station
	}
	// A socket may have many bindings, also of whole ranges.
	archive, err := node.ListenPacket(utipc.AllInstances(weather))
	if err != nil {
		return err
	}
	sender, err := node.ListenPacket()
	if err != nil {
		return err
	}
	for _, report := range []struct {
		text string
		to   utipc.ServiceRange
	}{
		{"rain in the south", utipc.ServiceRange{Type: weather, Lower: 0, Upper: 25}},
		{"sun everywhere", utipc.ServiceRange{Type: weather, Lower: 0, Upper: 99}},
	} {
		if _, err := sender.WriteTo([]byte(report.text), report.to); err != nil {
			return err
		}
	}

	buffer := make([]byte, 100)
	for _, instance := range instances {
		reports := 1
		if instance <= 25 {
			reports = 2
		}
		for range reports {
			size, _, err := stations[instance].ReadFrom(buffer)
			if err != nil {
				return err
			}
			fmt.Printf("station %d: %s\n", instance, buffer[:size])
		}
	}
	for range 2 {
		report, err := archive.ReadMessage(buffer)
		if err != nil {
			return err
		}
		fmt.Printf("archive: %s (sent to %v)\n", buffer[:report.Size], report.Destination)
	}
	return nil
}
