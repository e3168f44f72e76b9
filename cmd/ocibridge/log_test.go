package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
)

func TestLogBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out collected.Text
		f := logFlag{level: slog.LevelInfo}
		log, flush := f.openBuffered(&out)
		lines := func() int { return strings.Count(out.String(), "\n") }
		want := func(n int, when string) {
			t.Helper()
			synctest.Wait()
			if lines() != n {
				t.Errorf("%s: %d lines, want %d", when, lines(), n)
			}
		}
		log.Info("one")
		log.With("a", 1).WithGroup("g").Info("two", "b", 2)
		want(0, "at once")
		time.Sleep(99 * time.Millisecond)
		want(0, "before a tenth of a second")
		time.Sleep(time.Millisecond)
		want(2, "after it")
		log.Info("three")
		log.With("a", 1).Warn("four")
		want(4, "after a warning")
		log.Debug("none")
		time.Sleep(time.Second)
		want(4, "after what is not logged")
		for range 1000 {
			log.Info(strings.Repeat("x", 100))
		}
		if lines() < 500 {
			t.Errorf("%d lines of many", lines())
		}
		if err := flush(); err != nil {
			t.Error(err)
		}
		want(1004, "at the end")
	})
}

// TestLogFormats checks that a log line in text and in JSON contains the fields and the ID of
// the request.
func TestLogFormats(t *testing.T) {
	for format, want := range map[formatFlag]string{
		"text": `level=INFO msg=waited for=1.5s n=2 request_id=id-1`,
		"json": `"level":"INFO","msg":"waited","for":1.5,"n":2,"request_id":"id-1"}`,
	} {
		var out bytes.Buffer
		f := logFlag{level: slog.LevelInfo, format: format}
		log, flush := f.openBuffered(&out)
		log.InfoContext(telemetry.WithRequest(t.Context(), "id-1", nil), "waited", "for", 1500*time.Millisecond, "n", 2)
		log.Info("nobody asked")
		if err := flush(); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); !strings.Contains(got, want) || strings.Count(got, "request_id") != 1 {
			t.Errorf("%s: %s", format, got)
		}
	}
	var f formatFlag
	if err := f.Set("xml"); err == nil || f.Set("json") != nil || f != "json" {
		t.Errorf("%q, %v", f, err)
	}
}

// TestNothingForgesALogLine shows that no text from clients and peers can add lines or fields
// to the log.
func TestNothingForgesALogLine(t *testing.T) {
	const forged = "/x\nlevel=ERROR msg=forged status=200\r\n{\"msg\":\"forged\"}\x1b[2K\u2028\u0085\u009b\u202e\u2066\x7f\" a=\"b"
	for _, format := range []formatFlag{"text", "json"} {
		var out bytes.Buffer
		f := logFlag{level: slog.LevelInfo, format: format}
		log, flush := f.openBuffered(&out)
		log.Info("request", "path", forged, "agent", []string{forged}, "err", errors.New(forged), forged, 1)
		log.WarnContext(telemetry.WithRequest(t.Context(), "id-1", nil), forged)
		if err := flush(); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != 2 || strings.ContainsAny(out.String(), "\r\x1b\u2028\u0085\u009b\u202e\u2066\x7f") {
			t.Errorf("%s: %d lines: %q", format, len(lines), lines)
		}
		for _, line := range lines {
			if format == "json" {
				var fields map[string]any
				if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["path"] != nil && fields["path"] != forged {
					t.Errorf("%s: %v", line, err)
				}
			} else if !strings.HasPrefix(line, "time=") || strings.Contains(line, " a=\"b") {
				t.Errorf("%s", line)
			}
		}
	}
}
