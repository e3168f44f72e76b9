package page

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// messageView is a page with only a message. The templates have the texts.
type messageView struct {
	Kind   string // one of the kinds in the template "heading"
	Status int
	What   string // "provider" or "module"; "" if the message is about neither
	// Address and Version are the requested address and version; they may be "".
	Address, Version string
	Origin           string // the host from which the gateway fetches missing versions, or to which it redirects clients, or ""
	Reason           string // why the configuration denies the version, or ""
	Who              string // the name of the subject
	Again            int    // seconds until a retry may succeed; 0 if the error is not temporary
	RequestID        string
}

// kindOf returns the kind of message for err. version is "" if err concerns a whole provider.
func kindOf(err error, version string) string {
	switch status := gateway.StatusOf(err); {
	case errors.Is(err, catalog.ErrNotServed):
		return "not served"
	case status == http.StatusNotFound && version != "":
		return "no version"
	case status == http.StatusNotFound:
		return "no provider"
	case status == http.StatusUnavailableForLegalReasons:
		return "denied"
	case isInvalid(err):
		return "invalid"
	case trust.Refused(err):
		return "refused"
	case errors.Is(err, catalog.ErrSource):
		return "origin unavailable"
	}
	return "registry unavailable"
}

// reasonOf returns the reason of the rule that denies a version, or "".
func reasonOf(err error) string {
	denied := &catalog.DeniedError{}
	errors.As(err, &denied)
	return denied.Reason
}

// notFound answers requests for unknown paths.
func (p *page) notFound(w http.ResponseWriter, r *http.Request) {
	p.say(w, r, messageView{Kind: "no page", Status: http.StatusNotFound})
}

// say answers with a message.
func (p *page) say(w http.ResponseWriter, r *http.Request, m messageView) {
	m.RequestID = w.Header().Get("X-Request-Id")
	if m.Again > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(m.Again))
	}
	p.render(w, r, m.Status, "message", layout{View: m})
}

// refuse answers a request without a valid token. err is the error of [access.Control.Person].
func (p *page) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p.Access.Refused(err)
	if errors.Is(err, access.ErrUnavailable) {
		p.say(w, r, messageView{Kind: "unknown token", Status: http.StatusServiceUnavailable, Again: gateway.RetryAfterOf(err)})
		return
	}
	w.Header().Set("WWW-Authenticate", access.Challenge)
	p.say(w, r, messageView{Kind: "no token", Status: http.StatusUnauthorized})
}

// forbid answers a request for a provider or module that the subject may not read. The response does not depend on
// whether it exists.
func (p *page) forbid(w http.ResponseWriter, r *http.Request, who *access.Client, e entry) {
	p.Access.Refused(nil)
	p.say(w, r, messageView{Kind: "not allowed", Status: http.StatusForbidden, What: e.What(), Address: e.String(), Who: who.Name()})
}

// fail answers a request for a provider or module that cannot be shown. If version is not "", the request is for that
// version. The page shows nothing of err but the reason of a rule that denies the version.
func (p *page) fail(w http.ResponseWriter, r *http.Request, e entry, version string, err error) {
	m := messageView{Kind: kindOf(err, version), Status: gateway.StatusOf(err), What: e.What(), Address: e.String(), Version: version, Reason: reasonOf(err)}
	if p.reachesOrigin(r, e, m.Status) {
		m.Origin = displayHost(e.Hostname())
	}
	if m.Status >= 500 {
		m.Again = gateway.RetryAfterOf(err)
		w.Header().Set("Cache-Control", "no-store")
		if p.Access != nil {
			w.Header().Set("Cache-Control", access.Private)
		}
		level := slog.LevelError
		if r.Context().Err() != nil || errors.Is(err, verify.ErrRefused) {
			level = slog.LevelDebug // the client has left, or the reason is already in the log
		}
		p.Log.Log(r.Context(), level, "cannot show", "path", r.URL.Path, "status", m.Status, "err", hint.Brief(err))
	}
	p.say(w, r, m)
}

// reachesOrigin reports whether clients get a missing version of an entry from its origin. status is the status of the
// page.
func (p *page) reachesOrigin(r *http.Request, e entry, status int) bool {
	if a, ok := e.Address.(provider.Address); ok {
		return p.Pulls(a)
	}
	if p.ModuleOrigin == nil || status != http.StatusNotFound {
		return false
	}
	ctx, cancel := context.WithTimeout(r.Context(), metadataTimeout)
	defer cancel()
	base, err := p.ModuleOrigin(ctx, e.Address.(module.Address))
	return err == nil && base != nil
}

// isInvalid reports whether err means that the stored version is invalid, or that the version's evidence
// does not prove its origin.
func isInvalid(err error) bool {
	return artifact.IsInvalid(err) || errors.Is(err, verify.ErrRefused)
}
