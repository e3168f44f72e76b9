package catalog

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/provider"
)

const (
	// troubleLasts is how long after a failure the registry is not asked again for
	// what can be answered without it.
	troubleLasts = 5 * time.Second
	// doubtLasts is how long after one nobody waits for it in such a case.
	doubtLasts = 30 * time.Second
)

// trouble is what is believed of a registry.
type trouble int

const (
	noTrouble trouble = iota
	troubleLately
	troubleNow
)

// troubled says what to expect of the registry when asked about an entry.
func (c *Catalog) troubled(e *entry, now time.Time) trouble {
	last := c.watch.lastFailure(e.account().Name)
	if at := e.trouble.Load(); at != 0 && time.Unix(0, at).After(last) {
		last = time.Unix(0, at)
	}
	switch since := now.Sub(last); {
	case since < troubleLasts:
		return troubleNow
	case since < doubtLasts:
		return troubleLately
	}
	return noTrouble
}

// witnesses is how many repositories of an account are remembered as existing.
const witnesses = 4

// watch remembers of each account what its registry last did.
type watch struct {
	mu       sync.Mutex
	accounts map[string]*observed
}

type observed struct {
	failed time.Time // zero: it answered since
	exist  []provider.Address
}

func newWatch() *watch { return &watch{accounts: map[string]*observed{}} }

func (w *watch) account(name string) *observed {
	o := w.accounts[name]
	if o == nil {
		o = &observed{}
		w.accounts[name] = o
	}
	return o
}

// answered takes note that a registry answered about a provider, and whether that
// shows that it has a repository, or that it has none.
func (w *watch) answered(account string, a provider.Address, exists, absent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.account(account)
	o.failed = time.Time{}
	i := slices.Index(o.exist, a)
	switch {
	case exists && i < 0:
		o.exist = append(o.exist[max(0, len(o.exist)-witnesses+1):], a)
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
	if o := w.accounts[account]; o != nil {
		return o.failed
	}
	return time.Time{}
}

// witnessesFor returns repositories of an account that were seen to exist, apart
// from that of a.
func (w *watch) witnessesFor(account string, a provider.Address) []provider.Address {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.accounts[account]; o != nil {
		return slices.DeleteFunc(slices.Clone(o.exist), func(b provider.Address) bool { return a == b })
	}
	return nil
}

// ofRegistry reports whether an error is about the whole registry: it cannot be
// reached, or cannot answer. That it rejects a credential may be about one
// repository.
func ofRegistry(err error) bool {
	var answer *errcode.ErrorResponse
	if !errors.As(err, &answer) {
		return !errors.Is(err, context.Canceled) && !errors.Is(err, ErrBusy) && !errors.Is(err, ErrSource)
	}
	return answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests
}

// noRepository reports whether a registry answered a tag listing, and not a
// request for a token on the way to it, with 404 in its own words: a bare 404 may
// come from whatever stands before it, and who is denied has not been told that
// nothing is there.
func noRepository(err error) bool {
	var answer *errcode.ErrorResponse
	if !errors.As(err, &answer) {
		return errors.Is(err, errdef.ErrNotFound)
	}
	return answer.StatusCode == http.StatusNotFound && len(answer.Errors) > 0 && strings.HasSuffix(answer.URL.Path, "/tags/list") &&
		!slices.ContainsFunc(answer.Errors, func(e errcode.Error) bool { return !slices.Contains(absentCodes, e.Code) })
}

// absentCodes are the words of registries for a repository that is not there. The
// specification has all but the last, which is Harbor's.
var absentCodes = []string{
	errcode.ErrorCodeNameUnknown, errcode.ErrorCodeNameInvalid, errcode.ErrorCodeManifestUnknown,
	"NOT_FOUND",
}

func deniedCode(e errcode.Error) bool {
	return e.Code == errcode.ErrorCodeUnauthorized || e.Code == errcode.ErrorCodeDenied
}

// saysDenied reports whether a registry, or its token server, said in its own
// words that the credential may not read a repository.
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

// mayMeanAbsent reports whether an error is a denial of a registry that is known to
// deny what is absent.
func (c *Catalog) mayMeanAbsent(account Account, err error) bool {
	return account.DeniedMeansAbsent && c.opts.Anew != nil && saysDenied(err)
}

// deniedIsAbsent reports whether a denial stands for absence: the registry is
// known for it, and still answers about a repository that exists to the same
// credential, as that is now.
func (c *Catalog) deniedIsAbsent(ctx context.Context, account Account, a provider.Address, err error) bool {
	if !c.mayMeanAbsent(account, err) {
		return false
	}
	for _, witness := range c.watch.witnessesFor(account.Name, a) {
		store, err := c.opts.Repository(ctx, witness)
		if err != nil {
			return false
		}
		if versions, _, err := listTags(c.opts.Anew(ctx), store, ""); err == nil && len(versions) > 0 {
			return true
		}
	}
	return false
}
