// Package neterr recognises errors of refused or lost connections, after which a retry might succeed.
package neterr

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"syscall"
)

// Refused reports whether no server listens at the address.
func Refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || windowsErrno(err, 10061)
}

// Lost reports whether a connection was refused or broken off.
func Lost(err error) bool {
	return Refused(err) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || windowsErrno(err, 10053, 10054) || http2Lost(err)
}

// http2Lost recognises HTTP/2's own errors for connections and requests that the server ended. net/http exports
// none of them; errors.As can read the errors of requests into any struct of the same shape.
func http2Lost(err error) bool {
	var reset http2Reset
	return errors.As(err, &reset) || strings.Contains(err.Error(), "http2: client connection ") || strings.Contains(err.Error(), "http2: server sent GOAWAY")
}

// http2Reset has the shape of net/http's error for a request that the server ended.
type http2Reset struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e http2Reset) Error() string { return "the server ended the request" }

// windowsErrno reports whether err is one of Winsock's error numbers, which
// package syscall does not map to the names that other systems have.
func windowsErrno(err error, numbers ...syscall.Errno) bool {
	if runtime.GOOS != "windows" {
		return false
	}
	for _, n := range numbers {
		if errors.Is(err, n) {
			return true
		}
	}
	return false
}
