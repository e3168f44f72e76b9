// Package doctor diagnoses registries, origins, gateways and this machine step by step. For each step that failed, it
// says what to do. Every examination is limited in time.
//
// It sends the same requests as a push, a gateway or a client. It changes the registry only if Repository.Write
// is set.
package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// Status is the outcome of a check.
type Status string

// The statuses of a check. Skipped means that the check was not run.
const (
	OK      Status = "ok"
	Warn    Status = "warning"
	Fail    Status = "failed"
	Skipped Status = "skipped"
)

// Check is one step of a diagnosis.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	// Hint says what to do. Every failed check has a hint.
	Hint string `json:"hint,omitempty"`
}

// Report is the diagnosis of one repository, origin, gateway or machine. The checks have the order in which they ran. A failed
// check is the last one if further checks would be meaningless.
type Report struct {
	Subject string  `json:"subject"`
	Checks  []Check `json:"checks"`
	// Origin is the origin of the newest version in a repository, or "" if it is unknown.
	Origin string `json:"-"`
}

// NotExamined returns a report that names the items of a long list that were not examined.
func NotExamined(kind string, names []string, help string) *Report {
	r := &Report{Subject: fmt.Sprintf("%d more", len(names))}
	r.skip(kind, help, "not examined: %s", list(names))
	return r
}

// Failed reports whether a check failed.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Status == Fail })
}

// has reports whether there is a check of this name.
func (r *Report) has(name string) bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Name == name })
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

// fail adds a failed check. Its hint is the hint of err. If err has no hint, the hint is help.
func (r *Report) fail(name string, err error, help string) {
	if h := hint.Of(err); h != "" {
		help = h
	}
	r.Checks = append(r.Checks, Check{name, Fail, err.Error(), help})
}

// The limits beyond which a check warns or fails.
const (
	// smallSkew is the largest harmless difference between two clocks. If the difference is largeSkew or more,
	// servers refuse tokens and signatures.
	smallSkew = time.Minute
	largeSkew = 5 * time.Minute
	// expiryWarning is the remaining lifetime below which a certificate causes a warning.
	expiryWarning = 14 * 24 * time.Hour
	// clientTimeout is how long a client waits for a JSON document of the gateway.
	clientTimeout = 10 * time.Second
)
