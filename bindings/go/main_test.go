// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// limit is far longer than anything takes on a loaded machine.
const limit = 60 * time.Second

// engineVariable names the engine of a test process. A process has one node, so each engine needs its own process.
const engineVariable = "UTIPC_TEST_ENGINE"

// TestMain runs the tests once for each engine, in processes that find neither nodes nor daemons of this user. The
// daemon is the program that UTIPC_TEST_DAEMON names; without it its run is skipped.
func TestMain(m *testing.M) {
	if os.Getenv(engineVariable) != "" {
		os.Exit(m.Run())
	}
	flag.Parse()
	code := 0
	for _, engine := range []string{"embedded", "daemon"} {
		if err := runOn(engine); err != nil {
			fmt.Fprintf(os.Stderr, "tests on the engine %s: %v\n", engine, err)
			code = 1
		}
	}
	os.Exit(code)
}

// runOn runs this test program on one engine.
func runOn(engine string) error {
	home, err := os.MkdirTemp("", "utipc-go-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	environment := append(os.Environ(), "XDG_RUNTIME_DIR="+home, "UTIPC_ENGINE="+engine, engineVariable+"="+engine)
	if engine == "daemon" {
		program := os.Getenv("UTIPC_TEST_DAEMON")
		if program == "" {
			fmt.Fprintln(os.Stderr, "skipped: Go tests on the daemon: UTIPC_TEST_DAEMON does not name the program utipcd")
			return nil
		}
		socket := filepath.Join(home, "d.sock")
		stop, err := startDaemon(program, socket, home)
		if err != nil {
			return err
		}
		defer stop()
		environment = append(environment, "UTIPC_SOCKET="+socket)
	}
	tests := exec.Command(os.Args[0], os.Args[1:]...)
	tests.Env, tests.Stdout, tests.Stderr = environment, os.Stdout, os.Stderr
	return tests.Run()
}

// startDaemon returns when programs may attach.
func startDaemon(program, socket, home string) (stop func(), err error) {
	daemon := exec.Command(program, "--socket", socket)
	daemon.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+home, "UTIPC_LOG=info")
	log, err := daemon.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := daemon.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "programs may attach") {
			go io.Copy(io.Discard, log)
			return stop, nil
		}
	}
	stop()
	return nil, fmt.Errorf("%s does not open %s", program, socket)
}

var services atomic.Uint32

// newService returns a service that no other test uses.
func newService() ServiceAddr {
	return ServiceAddr{Type: 5000 + services.Add(1), Instance: 17}
}

func newNode(t testing.TB) *Node {
	t.Helper()
	node, err := Start(t.Context())
	check(t, err)
	t.Cleanup(func() { node.Close() })
	return node
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// pair returns both ends of a connection.
func pair(t testing.TB, node *Node, messages bool) (client, server *Conn) {
	t.Helper()
	service := newService()
	listen, dial := node.Listen, node.Dial
	if messages {
		listen, dial = node.ListenSeqPacket, node.DialSeqPacket
	}
	listener, err := listen(service)
	check(t, err)
	defer listener.Close()
	accepted := make(chan *Conn, 1)
	go func() {
		conn, err := listener.AcceptConn()
		if err != nil {
			t.Error(err)
		}
		accepted <- conn
	}()
	client, err = dial(within(t), service)
	check(t, err)
	server = <-accepted
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client, server
}
