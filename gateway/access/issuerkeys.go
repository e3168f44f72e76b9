package access

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/ocibridge/ocibridge/internal/hint"
)

const (
	// fresh is how old keys may be before the issuer is asked again in the
	// background. A token that names another one has it asked at once.
	fresh = time.Hour
	// stale is how long they are good for while the issuer cannot be asked.
	stale = 24 * time.Hour
	// pause is the least time between two times that an issuer is asked: anybody
	// can make up a token that names a key.
	pause = 5 * time.Second
	// maxWait is how long somebody is kept waiting for an issuer, as clients wait for
	// 10 seconds, and fetchTimeout bounds the asking itself.
	maxWait      = 5 * time.Second
	fetchTimeout = 10 * time.Second
	// maxDocument bounds each document of an issuer, and maxIssuerKeys its keys.
	maxDocument   = 1 << 20
	maxIssuerKeys = 100
	// maxReason bounds what the log says of an issuer's trouble.
	maxReason = 500
)

// keySource has the keys of an issuer. It asks the issuer when somebody first
// needs it, once however many do.
type keySource struct {
	issuer string
	client *http.Client
	log    *slog.Logger

	mu      sync.Mutex
	set     *jose.JSONWebKeySet // nil: never seen
	fetched time.Time           // when that was
	asked   time.Time           // when the issuer was last asked
	failed  bool                // and whether that failed
	pending chan struct{}       // closed when the one under way is done
}

func newKeySource(issuer string, client *http.Client, log *slog.Logger) *keySource {
	if client == nil {
		client = &http.Client{}
	}
	bounded := *client
	bounded.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if r.URL.Scheme != "https" || len(via) > 5 {
			return errors.New("it redirects to where its keys cannot be trusted")
		}
		return nil
	}
	transport := bounded.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	bounded.Transport = boundedBodies{transport}
	return &keySource{issuer: issuer, client: &bounded, log: log}
}

// find returns the keys that may have signed a token whose header names a key. It
// fails with ErrUnavailable if only the issuer could tell, and with ErrUnknown if
// the issuer has no such key. Keys that are there are never waited for.
func (s *keySource) find(ctx context.Context, keyID string) ([]crypto.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	s.mu.Lock()
	keys := s.lookup(keyID)
	wanted := len(keys) == 0 || time.Since(s.fetched) >= fresh
	if wanted && s.pending == nil && (s.asked.IsZero() || time.Since(s.asked) >= pause) {
		s.asked, s.pending = time.Now(), make(chan struct{})
		go s.fetch()
	}
	pending := s.pending
	s.mu.Unlock()
	if len(keys) > 0 {
		return keys, nil
	}
	if pending != nil {
		select {
		case <-pending:
		case <-ctx.Done():
			return nil, ErrUnavailable
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if keys = s.lookup(keyID); len(keys) > 0 {
		return keys, nil
	}
	if s.failed || s.set == nil {
		return nil, ErrUnavailable
	}
	return nil, ErrUnknown
}

// lookup returns the keys that are there and good. It is called with the lock.
func (s *keySource) lookup(keyID string) []crypto.PublicKey {
	if s.set == nil || time.Since(s.fetched) >= stale {
		return nil
	}
	return public(s.set, keyID)
}

// fetch asks the issuer, for everybody who waits.
func (s *keySource) fetch() {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	set, err := s.ask(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed = err != nil; s.failed {
		text := err.Error() // which may hold all that it answered
		s.log.Error("cannot have the keys of an issuer of tokens", "issuer", s.issuer, "err", text[:min(len(text), maxReason)], "hint", hint.Of(err))
	} else {
		s.set, s.fetched = set, s.asked
	}
	close(s.pending)
	s.pending = nil
}

// ask reads the issuer's discovery document and the keys that it leads to.
func (s *keySource) ask(ctx context.Context) (*jose.JSONWebKeySet, error) {
	p, err := oidc.NewProvider(oidc.ClientContext(ctx, s.client), s.issuer)
	if err != nil {
		var other *oidc.IssuerMismatchError
		if errors.As(err, &other) {
			return nil, hint.New(fmt.Sprintf("its discovery document is of the issuer %q", other.Discovered), "write issuer = %q, if that is the one that you mean", other.Discovered)
		}
		return nil, err
	}
	var doc struct {
		Keys string `json:"jwks_uri"`
	}
	if err := p.Claims(&doc); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, doc.Keys, nil)
	if err != nil {
		return nil, err
	}
	if req.URL.Scheme != "https" {
		return nil, fmt.Errorf("its keys are at %q, which is not an https: URL", doc.Keys)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", doc.Keys, resp.Status)
	}
	body, err := io.ReadAll(resp.Body) // bounded by the client
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doc.Keys, err)
	}
	return parseKeySet(body)
}

// parseKeySet reads a set of keys. Those of kinds that are not known here are left
// out, as RFC 7517 has it.
func parseKeySet(body []byte) (*jose.JSONWebKeySet, error) {
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return nil, errors.New("its keys are no JSON Web Key Set")
	}
	if len(raw.Keys) > maxIssuerKeys {
		return nil, fmt.Errorf("it has %d keys, more than %d", len(raw.Keys), maxIssuerKeys)
	}
	set := &jose.JSONWebKeySet{}
	for _, r := range raw.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(r) == nil && k.Valid() {
			set.Keys = append(set.Keys, k)
		}
	}
	if len(public(set, "")) == 0 {
		return nil, errors.New("it has no key that could have signed a token")
	}
	return set, nil
}

// boundedBodies fails on what is larger than a document of an issuer can be.
type boundedBodies struct{ http.RoundTripper }

func (b boundedBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = &boundedBody{resp.Body, maxDocument}
	}
	return resp, err
}

type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("more than %d MiB", maxDocument>>20)
	}
	return n, err
}
