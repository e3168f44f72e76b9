// Package doctor finds out why a registry or a gateway does not work, or says
// that it does: step by step, and with what to do about each step that failed.
//
// It asks what a push, a gateway or a client would ask, by the same means, and
// changes nothing unless it is told that it may write.
package doctor

import (
	"fmt"
	"time"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// Status is the outcome of a check.
type Status string

// What a check can come to. A skipped one was not made.
const (
	OK      Status = "ok"
	Warn    Status = "warning"
	Fail    Status = "failed"
	Skipped Status = "skipped"
)

// Check is one step of an examination.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	// Hint says what to do; every Fail has one.
	Hint string `json:"hint,omitempty"`
}

// Report is an examination of one thing. Checks are in the order in which they
// were made; one that failed ends it where what follows would make no sense.
type Report struct {
	Subject string  `json:"subject"`
	Checks  []Check `json:"checks"`
}

// Failed reports whether a check failed.
func (r *Report) Failed() bool {
	for _, c := range r.Checks {
		if c.Status == Fail {
			return true
		}
	}
	return false
}

func (r *Report) ok(name, format string, args ...any) {
	r.Checks = append(r.Checks, Check{name, OK, fmt.Sprintf(format, args...), ""})
}

func (r *Report) skip(name, help, format string, args ...any) {
	r.Checks = append(r.Checks, Check{name, Skipped, fmt.Sprintf(format, args...), help})
}

func (r *Report) warn(name, help, format string, args ...any) {
	r.Checks = append(r.Checks, Check{name, Warn, fmt.Sprintf(format, args...), help})
}

// fail takes the hint from the error, or help where it has none.
func (r *Report) fail(name string, err error, help string) {
	if h := hint.Of(err); h != "" {
		help = h
	}
	r.Checks = append(r.Checks, Check{name, Fail, err.Error(), help})
}

// Bounds of what is called healthy.
const (
	// smallSkew is a difference of clocks that troubles nobody; from largeSkew on
	// tokens and signatures are refused.
	smallSkew = time.Minute
	largeSkew = 5 * time.Minute
	// expiryWarning is how long before its end a certificate is worth a word.
	expiryWarning = 14 * 24 * time.Hour
	// clientTimeout is how long clients wait for a gateway's JSON.
	clientTimeout = 10 * time.Second
)
