package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// firstPort is the first port that freeAddress can return, and ports is the number of these ports. The system
// never assigns these ports itself. No other test can therefore get a returned port before the program listens
// on it.
const firstPort, ports = 21000, 11000

var (
	portOffset = rand.Uint32N(ports) // differs between processes
	portsTaken atomic.Uint32
)

// freeAddress returns a free address on the loopback interface. No other caller gets the same address.
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
