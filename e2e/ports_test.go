package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
)

// Ports of freeAddress: no system gives them out by itself, as it would to another test
// before the program listens that they are meant for.
const firstPort, ports = 21000, 11000

var (
	portOffset = rand.Uint32N(ports) // other processes have others
	portsTaken atomic.Uint32
)

// freeAddress returns one on the loopback interface that nobody listens at, and no other
// caller gets.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range ports {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+(portOffset+portsTaken.Add(1))%ports))
		if err == nil {
			clients.Must(t, l.Close())
			return l.Addr().String()
		}
	}
	t.Fatal("every port is taken")
	return ""
}
