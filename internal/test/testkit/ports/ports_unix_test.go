//go:build unix

package ports

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// TestHold shows that a reserved port refuses connections, and that a server that asks for exactly this port can
// listen there.
func TestHold(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var held Held
	held.Hold(addr)
	defer held.Release()
	if len(held.release) != 1 {
		t.Fatal("the address is not held")
	}
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v", err)
	}
	again, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
