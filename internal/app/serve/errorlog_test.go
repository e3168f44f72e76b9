package serve

import (
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
)

func TestHandshakeMessages(t *testing.T) {
	for message, want := range map[string][2]string{
		handshakeError + "192.0.2.7:4711: remote error: tls: unknown certificate authority": {"192.0.2.7", "remote error: tls: unknown certificate authority"},
		handshakeError + "[2001:db8::7]:4711: client sent an HTTP request":                  {"2001:db8::7", "client sent an HTTP request"},
		handshakeError + "192.0.2.7:4711: EOF":                                              {}, // a health check
		handshakeError + "nonsense":                                                         {},
		"http: panic serving 192.0.2.7:4711: x":                                             {},
	} {
		client, reason, ok := handshake(message)
		if got := [2]string{client, reason}; got != want || ok != (want[0] != "") {
			t.Errorf("%s: %q, %t", message, got, ok)
		}
	}
}

// TestFailedHandshakesAreLoggedOnceAMinute shows that many failed handshakes cause one warning a
// minute, which counts the others.
func TestFailedHandshakesAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &collected.Text{}
		log := stdlog.New(&errorLog{log: slog.New(slog.NewTextHandler(out, nil))}, "", 0)
		fail := func(client int) { log.Printf("%s192.0.2.%d:4711: remote error", handshakeError, client) }
		want := func(client, others int) {
			t.Helper()
			line := fmt.Sprintf(`level=WARN msg="a TLS handshake failed" client=192.0.2.%d err="remote error" others=%d`, client, others)
			if n := out.Count(line); n != 1 {
				t.Errorf("%d lines %q", n, line)
			}
		}
		for i := range 4 {
			fail(i)
		}
		want(0, 0)
		time.Sleep(telemetry.WarningPause - time.Nanosecond)
		fail(4)
		if n := out.Count("handshake"); n != 1 {
			t.Errorf("%d lines in the first minute", n)
		}
		time.Sleep(time.Nanosecond)
		fail(5)
		want(5, 4)
		time.Sleep(telemetry.WarningPause)
		fail(6)
		want(6, 0)
		_, _ = io.WriteString(log.Writer(), "http: another message\n")
		if n := out.Count("another"); n > 0 {
			t.Error("a message of another kind is a warning")
		}
	})
}
