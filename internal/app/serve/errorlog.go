package serve

import (
	"log/slog"
	"net"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// handshakeError is how net/http begins its message about a failed handshake. The client's
// address and the reason follow.
const handshakeError = "http: TLS handshake error from "

// errorLog receives the messages of a net/http server. It logs them at the level debug. At
// most once a minute, it logs a failed TLS handshake as a warning instead, because a client
// that does not trust the certificate sends no request, and is in no other line.
type errorLog struct {
	log      *slog.Logger
	warnings telemetry.Throttle
}

// Write implements [io.Writer]. Each call is one message.
func (e *errorLog) Write(message []byte) (int, error) {
	text := strings.TrimSpace(string(message))
	client, reason, ok := handshake(text)
	if !ok {
		e.log.Debug(text)
		return len(message), nil
	}
	warn, others := e.warnings.Allow()
	if !warn {
		e.log.Debug(text)
		return len(message), nil
	}
	e.log.Warn("a TLS handshake failed", "client", client, "err", reason, "others", others)
	return len(message), nil
}

// handshake returns the client's address without its port, and the reason, from a message
// about a failed handshake. The bool is false for other messages, and for a connection that
// the client closed before it sent anything, as a load balancer's health check does.
func handshake(message string) (client, reason string, ok bool) {
	rest, ok := strings.CutPrefix(message, handshakeError)
	if !ok {
		return "", "", false
	}
	address, reason, ok := strings.Cut(rest, ": ")
	if !ok || reason == "EOF" {
		return "", "", false
	}
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	return address, reason, true
}
