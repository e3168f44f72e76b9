// Package neterr recognises network errors: a refused or lost connection, after which a retry might succeed, and a host
// that does not exist.
package neterr

import (
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// Refused reports whether err means that a connection was refused, because no server listens at the address.
func Refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || windowsErrno(err, 10061)
}

// NoSuchHost reports whether err means that the DNS has no such host. Addresses of providers and modules may name such
// hosts.
func NoSuchHost(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}

// Lost reports whether err means that a connection was refused or broken off.
func Lost(err error) bool {
	return Refused(err) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || windowsErrno(err, 10053, 10054) || http2Lost(err)
}

// http2Lost reports whether err is an HTTP/2 error for a connection or a request that the server ended. net/http does
// not export the types of these errors, but errors.As can store the error of a request in any struct of the same shape.
func http2Lost(err error) bool {
	return errors.As(err, new(http2Reset)) || strings.Contains(err.Error(), "http2: client connection ") || strings.Contains(err.Error(), "http2: server sent GOAWAY")
}

// http2Reset has the same fields as the error type of net/http for a request that the server ended.
type http2Reset struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e http2Reset) Error() string { return "the server ended the request" }

// windowsErrno reports whether err is one of the given error numbers of Winsock. On Windows, the constants of package
// syscall, such as ECONNRESET, have other numbers.
func windowsErrno(err error, numbers ...syscall.Errno) bool {
	return runtime.GOOS == "windows" && slices.ContainsFunc(numbers, func(n syscall.Errno) bool { return errors.Is(err, n) })
}
