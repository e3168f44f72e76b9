// Package tunnel answers the CONNECT requests of a forward proxy's clients.
package tunnel

import (
	"io"
	"net"
	"net/http"
)

// Connect answers a CONNECT request, and connects the client to an address, whatever host the client has named. It returns when
// both sides have closed the connection.
func Connect(w http.ResponseWriter, to string) {
	far, err := net.Dial("tcp", to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer far.Close()
	w.WriteHeader(http.StatusOK)
	near, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	go func() {
		io.Copy(far, buffered)
		far.Close()
	}()
	io.Copy(near, far)
}
