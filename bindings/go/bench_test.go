// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import (
	"io"
	"net"
	"testing"
)

// BenchmarkRoundTrip measures round trips of 64 bytes between two goroutines, and the same over TCP of the standard
// library.
func BenchmarkRoundTrip(b *testing.B) {
	b.Run("utipc", func(b *testing.B) {
		client, server := pair(b, newNode(b), false)
		roundTrips(b, client, server)
	})
	b.Run("tcp", func(b *testing.B) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		check(b, err)
		defer listener.Close()
		client, err := net.Dial("tcp", listener.Addr().String())
		check(b, err)
		defer client.Close()
		server, err := listener.Accept()
		check(b, err)
		defer server.Close()
		roundTrips(b, client, server)
	})
}

func roundTrips(b *testing.B, client, server net.Conn) {
	go io.Copy(struct{ io.Writer }{server}, struct{ io.Reader }{server})
	buffer := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := client.Write(buffer); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(client, buffer); err != nil {
			b.Fatal(err)
		}
	}
}
