package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// redacted is a log value with a secret.
type redacted struct{}

func (redacted) LogValue() slog.Value { return slog.StringValue("redacted") }

func TestHeldErrors(t *testing.T) {
	held := &heldErrors{}
	log := slog.New(errorHandler{add: held.add})
	log.Warn("a warning")
	for path := range 3 {
		log.Error("cannot answer", "path", path, "status", 502, "err", errors.New("first\nsecond"), "hint", "do\nthis")
	}
	log.With("provider", "acme/null").WithGroup("group").Error("version refused", "version", redacted{})
	var out strings.Builder
	held.print(&out)
	const want = "warning: a warning\nerror: cannot answer: first second\nhint: do this\nerror: version refused (provider acme/null, version redacted)\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	out.Reset()
	held.show(&out, "warning: a warning\n")
	held.print(&out)
	if got := strings.Count(out.String(), "a warning"); got != 1 || !strings.HasPrefix(out.String(), "warning: a warning\nerror: cannot answer") {
		t.Errorf("a warning that is shown at once is printed %d times: %q", got, out.String())
	}
	for i := range 100 {
		log.Error(fmt.Sprint(i))
	}
	if len(held.texts) != maxHeldErrors {
		t.Errorf("holds %d errors, want %d", len(held.texts), maxHeldErrors)
	}
}
