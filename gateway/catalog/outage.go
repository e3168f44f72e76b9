package catalog

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// failed implements [fresh.Options].Failed. It logs the failure if a stale answer is served, and
// records a failure of the whole registry for all repositories of the account.
func (c *Catalog) failed(ctx context.Context, q question, stale *answer, again bool, err error) {
	level := slog.LevelWarn
	if again {
		level = slog.LevelDebug // the first failure is in the log already
	}
	now := time.Now()
	if ofRegistry(err) {
		c.watch.failed(q.account().Name, now)
	}
	if stale != nil && c.ctx.Err() == nil {
		c.opts.Log.LogAttrs(ctx, level, "the registry is unavailable: serving its last good answer",
			slog.String("of", q.name()), slog.Duration("age", now.Sub(stale.At).Round(time.Second)), slog.Any("err", hint.Brief(err)))
	}
}

// witnesses is the number of existing repositories that are remembered for each account.
const witnesses = 4

// watch remembers, for each account, when the registry last failed, and some existing repositories.
type watch struct {
	mu       sync.Mutex
	accounts map[string]*observed
}

type observed struct {
	failed time.Time // when the registry last failed; zero: it has answered since
	exist  []subject.Address
}

// account returns the entry of an account. The caller must hold mu.
func (w *watch) account(name string) *observed {
	o := w.accounts[name]
	if o == nil {
		o = &observed{}
		w.accounts[name] = o
	}
	return o
}

// answered records that a registry answered a question about a provider or module, and whether its
// repository exists or is absent according to the answer.
func (w *watch) answered(account string, of subject.Address, exists, absent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.account(account)
	o.failed = time.Time{}
	i := slices.Index(o.exist, of)
	switch {
	case exists && i < 0:
		o.exist = append(o.exist[max(0, len(o.exist)-witnesses+1):], of)
	case absent && i >= 0:
		o.exist = slices.Delete(o.exist, i, i+1)
	}
}

func (w *watch) failed(account string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.account(account).failed = now
}

func (w *watch) lastFailure(account string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.account(account).failed
}

// witnessesFor returns the other subjects of an account whose repositories are known to exist.
func (w *watch) witnessesFor(account string, of subject.Address) []subject.Address {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.account(account).exist), func(other subject.Address) bool { return of == other })
}

// ofRegistry reports whether err means that the whole registry is unreachable or cannot
// answer. A rejected credential does not count, because the registry may reject it for one
// repository only, and neither does a bug that one document reaches.
func ofRegistry(err error) bool {
	if errors.As(err, new(*panics.Error)) {
		return false
	}
	var answer *errcode.ErrorResponse
	if !errors.As(err, &answer) {
		return !errors.Is(err, context.Canceled) && !errors.Is(err, ErrBusy) && !errors.Is(err, ErrSource)
	}
	return answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests
}

// noRepository reports whether err means that the registry itself responded to a request
// for tags with status 404. A 404 without the error codes of a registry may come from a
// proxy. A 404 from a token server says nothing about the repository.
func noRepository(err error) bool {
	var answer *errcode.ErrorResponse
	if !errors.As(err, &answer) {
		return errors.Is(err, errdef.ErrNotFound)
	}
	return answer.StatusCode == http.StatusNotFound && len(answer.Errors) > 0 && strings.HasSuffix(answer.URL.Path, "/tags/list") &&
		!slices.ContainsFunc(answer.Errors, func(e errcode.Error) bool { return !slices.Contains(absentCodes, e.Code) })
}

// absentCodes are the error codes for an absent repository: those of the specification, and Harbor's.
var absentCodes = []string{errcode.ErrorCodeNameUnknown, errcode.ErrorCodeNameInvalid, errcode.ErrorCodeManifestUnknown, "NOT_FOUND"}

func deniedCode(e errcode.Error) bool {
	return e.Code == errcode.ErrorCodeUnauthorized || e.Code == errcode.ErrorCodeDenied
}

// saysDenied reports whether err is a response of a registry or of its token server with an
// error code for denied access.
func saysDenied(err error) bool {
	var answer *errcode.ErrorResponse
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return slices.ContainsFunc(answer.Errors, deniedCode)
	}
	return false
}

// mayMeanAbsent reports whether err is a denial by a registry that also denies access to
// absent repositories.
func (c *Catalog) mayMeanAbsent(account Account, err error) bool {
	return account.DeniedMeansAbsent && c.opts.FreshToken != nil && saysDenied(err)
}

// deniedIsAbsent reports whether a denial means that the repository is absent. The registry must be
// one that denies access to absent repositories. It must also list the tags of another repository for
// a new token of the same credential, which shows that the credential is still valid.
func (c *Catalog) deniedIsAbsent(ctx context.Context, account Account, of subject.Address, err error) bool {
	if !c.mayMeanAbsent(account, err) {
		return false
	}
	for _, witness := range c.watch.witnessesFor(account.Name, of) {
		store, err := c.opts.Repository(ctx, witness)
		if err != nil {
			return false
		}
		if tags, err := listTags(c.opts.FreshToken(ctx), store, witness, ""); err == nil && len(tags.versions) > 0 {
			return true
		}
	}
	return false
}
