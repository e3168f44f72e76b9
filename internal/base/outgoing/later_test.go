package outgoing

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                              0,
		"0":                             0,
		"120":                           2 * time.Minute,
		" 120 ":                         2 * time.Minute,
		"-1":                            0,
		"1.5":                           0,
		"soon":                          0,
		"2147483647":                    (1<<31 - 1) * time.Second,
		"2147483648":                    0,
		"Wed, 02 Jan 2030 03:06:05 GMT": 2 * time.Minute,
		"Wed, 02 Jan 2030 03:04:05 GMT": 0,
		"Wed, 02 Jan 2019 03:04:05 GMT": 0,
	} {
		if got := RetryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
	if got := RetryAfter(nil, now); got != 0 {
		t.Errorf("no header: %s", got)
	}
}

func TestLaterError(t *testing.T) {
	silent := NewLaterError(nil, io.EOF)
	if !silent.Until.IsZero() || !errors.Is(silent, io.EOF) || silent.Error() != "EOF" {
		t.Errorf("%+v", silent)
	}
	e := NewLaterError(http.Header{"Retry-After": {"60"}}, io.EOF)
	if e.Until.IsZero() {
		t.Error("no time")
	}
	bare := e.Bare()
	if wrapped := fmt.Errorf("ask: %w", e); !errors.Is(wrapped, bare) || errors.Is(wrapped, silent) || errors.Is(bare, io.EOF) || bare.Error() == "" {
		t.Errorf("bare: %v", bare)
	}
}
