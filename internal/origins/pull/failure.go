package pull

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// failure is the error of a failed attempt. Callers get the error without a new attempt while
// the failure holds.
type failure struct {
	err   error // nil: nothing failed
	until time.Time
}

// flatten returns a copy of err that is small enough to be cached. The origin decides how long its errors are, and which
// data they hold in memory, such as a refused certificate.
func flatten(err error) error { return keepTimeout(err, hint.Flatten(err, reasons(err)...)) }

// keepTimeout makes the error short a timeout if err is a timeout, because the gateway answers timeouts with a status
// of their own.
func keepTimeout(err, short error) error {
	if from, ok := errors.AsType[net.Error](err); ok && from.Timeout() && !errors.As(short, new(net.Error)) {
		return timeout{short}
	}
	return short
}

// timeout is an error that is a timeout. It implements [net.Error].
type timeout struct{ error }

func (t timeout) Unwrap() error { return t.error }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

// holds reports whether callers still get the failure at the time now.
func (f failure) holds(now time.Time) bool { return f.err != nil && now.Before(f.until) }

// errorSize returns roughly the memory of err in bytes.
func errorSize(err error) int64 {
	if err == nil {
		return 0
	}
	return 512 + int64(len(err.Error())+len(hint.Of(err)))
}

// brief returns err with a text and a hint of bounded length, for logs, traces and callers.
func brief(err error) error {
	return keepTimeout(err, hint.Brief(err, reasons(err)...))
}

// reasons returns the errors that this package, the gateway and the metrics look for with errors.Is and errors.As. A
// shortened error still matches each of these errors that err matches.
func reasons(err error) []error {
	out := []error{
		catalog.ErrSource, catalog.ErrBusy, ErrNotOffered, origin.ErrVersionNotFound, origin.ErrPlatformNotFound,
		trust.ErrUnsigned, trust.ErrSignature, trust.ErrChecksum, trust.ErrNotListed, provider.ErrNotZip, artifact.ErrTooLarge,
		context.Canceled, context.DeadlineExceeded, os.ErrDeadlineExceeded, document.ErrBusy,
	}
	out = append(out, slices.Concat(moduleRefusals, conflicts)...)
	if busy, ok := errors.AsType[*catalog.BusyError](err); ok {
		out = append(out, busy)
	}
	if later, ok := errors.AsType[*outgoing.LaterError](err); ok {
		out = append(out, later.Bare())
	}
	if size, ok := errors.AsType[*SizeError](err); ok {
		out = append(out, size)
	}
	return out
}
