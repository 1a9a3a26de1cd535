// Package freeport finds TCP ports of the loopback interface for servers of tests. Nothing keeps others from taking
// them before the server does.
package freeport

import (
	"fmt"
	"net"
	"testing"
)

// Several returns n different ports that nobody uses now.
func Several(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("look for a free port: %w", err)
		}
		defer func() { _ = listener.Close() }() // after the loop: all are different
		ports[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// Address returns a loopback address that nobody listens on.
func Address(t testing.TB) string {
	t.Helper()
	ports, err := Several(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0])
}
