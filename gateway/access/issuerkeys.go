package access

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
)

const (
	current = time.Hour      // the age at which keys are refreshed in the background; an unknown key refreshes them at once
	stale   = 24 * time.Hour // how long cached keys can be used while the issuer cannot be reached
	// pause is the minimum time between two requests to an issuer. Without it, forged tokens that name unknown keys
	// could cause many requests.
	pause         = 5 * time.Second
	maxWait       = 5 * time.Second  // how long a client's request waits for an issuer; clients give up after 10 seconds
	fetchTimeout  = 10 * time.Second // the maximum duration of a fetch of keys
	maxDocument   = 1 << 20          // the maximum size of an issuer's document in bytes
	maxIssuerKeys = 100
	// The minimum and the maximum size of an issuer's RSA keys in bits. RFC 7518 requires the minimum. With a key of a
	// million bits, verifying one signature would take minutes.
	minModulus = 2048
	maxModulus = 8192
	maxReason  = 500 // the maximum length in bytes of an error about an issuer in the log, and of its hint
)

// keySource fetches the keys of an issuer when a token first needs them, and caches them. Concurrent requests share one
// fetch.
type keySource struct {
	issuer string
	client *http.Client
	log    *slog.Logger
	sets   *fresh.Cache[string, *jose.JSONWebKeySet] // by the issuer's URL
}

func newKeySource(issuer string, client *http.Client, log *slog.Logger) *keySource {
	if client == nil {
		client = &http.Client{Transport: outgoing.Transport()}
	}
	bounded := *client
	bounded.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if r.URL.Scheme != "https" || len(via) > 5 {
			return errors.New("it redirects to an address that is not https")
		}
		return nil
	}
	s := &keySource{issuer: issuer, client: &bounded, log: log}
	s.sets = fresh.New(fresh.Options[string, *jose.JSONWebKeySet]{
		Key: func(issuer string) string { return issuer }, Fetch: s.fetch, Failed: s.failed, Log: log,
		Timeout: fetchTimeout, Patience: time.Nanosecond, FailureTTL: pause,
	})
	return s
}

// find returns the issuer's keys with the given key ID, or all its keys if keyID is "". It fails with ErrUnavailable if
// the issuer cannot be reached, and with ErrUnknown if it has no such key. It does not wait if the key is cached.
func (s *keySource) find(ctx context.Context, keyID string) ([]crypto.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	set, err := s.sets.Get(ctx, s.issuer)
	if err != nil {
		return nil, ErrUnavailable
	}
	keys := public(set.Value, keyID)
	if len(keys) == 0 && time.Since(set.At) >= pause { // the issuer may have a new key
		if set, err = s.sets.Ask(ctx, s.issuer); err != nil {
			return nil, ErrUnavailable
		}
		keys = public(set.Value, keyID)
	}
	if len(keys) == 0 {
		return nil, ErrUnknown
	}
	return keys, nil
}

func (s *keySource) fetch(ctx context.Context, _ string, _ *fresh.Answer[*jose.JSONWebKeySet]) (fresh.Answer[*jose.JSONWebKeySet], error) {
	began := time.Now()
	set, err := s.ask(ctx)
	return fresh.Answer[*jose.JSONWebKeySet]{Value: set, At: began, TTL: current, StaleFor: stale}, err
}

// failed logs why a fetch failed. It truncates the error and the hint, which may quote the issuer's response.
func (s *keySource) failed(_ context.Context, _ string, _ *fresh.Answer[*jose.JSONWebKeySet], _ bool, err error) {
	text, help := err.Error(), hint.Of(err)
	s.log.Error("cannot have the keys of an issuer of tokens", "issuer", s.issuer, "err", text[:min(len(text), maxReason)], "hint", help[:min(len(help), maxReason)])
}

// ask fetches the issuer's discovery document and the key set that it names.
func (s *keySource) ask(ctx context.Context) (*jose.JSONWebKeySet, error) {
	body, err := s.get(ctx, strings.TrimSuffix(s.issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return nil, err
	}
	var doc struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if unmarshalExact(body, &doc) != nil {
		return nil, errors.New("its discovery document is malformed, or has a duplicate name")
	}
	if doc.Issuer != s.issuer {
		return nil, hint.New(fmt.Sprintf("its discovery document is of the issuer %q", doc.Issuer), "write issuer = %q, if that is the one that you mean", doc.Issuer)
	}
	if body, err = s.get(ctx, doc.Keys); err != nil {
		return nil, err
	}
	return parseKeySet(body)
}

func (s *keySource) get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if req.URL.Scheme != "https" {
		return nil, fmt.Errorf("%q is not an https: URL", url)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	body, err := document.ReadAll(resp.Body, maxDocument)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return body, nil
}

// parseKeySet parses a key set. As RFC 7517 recommends, it ignores keys that this package cannot use: keys of
// unknown types, private keys, and RSA keys that are too small or too large.
func parseKeySet(body []byte) (*jose.JSONWebKeySet, error) {
	keys, err := splitKeySet(body)
	if err != nil {
		return nil, err
	}
	set := &jose.JSONWebKeySet{}
	for _, raw := range keys {
		if k, ok := parseKey(raw); ok {
			set.Keys = append(set.Keys, k)
		}
	}
	if len(public(set, "")) == 0 {
		return nil, errors.New("it has no key that could have signed a token")
	}
	return set, nil
}

// splitKeySet returns the keys of a key set, each as JSON. It returns an error, and decodes no further keys, if
// the set has more than maxIssuerKeys.
func splitKeySet(body []byte) ([]json.RawMessage, error) {
	notKeySet := errors.New("its keys are not a JSON Web Key Set")
	var set struct {
		Keys json.RawMessage `json:"keys"`
	}
	if unmarshalExact(body, &set) != nil {
		return nil, notKeySet
	}
	list := json.NewDecoder(bytes.NewReader(set.Keys))
	if start, err := list.Token(); err != nil || start != json.Delim('[') {
		return nil, notKeySet
	}
	var keys []json.RawMessage
	for list.More() {
		var key json.RawMessage
		if list.Decode(&key) != nil {
			return nil, notKeySet
		}
		if keys = append(keys, key); len(keys) > maxIssuerKeys {
			return nil, fmt.Errorf("it has more than %d keys", maxIssuerKeys)
		}
	}
	return keys, nil
}

// parseKey parses a public key, and returns false if this package cannot use it. It passes only the members of a public
// key to go-jose, which would otherwise parse certificates and validate private keys. Validating a private key can take
// hours.
func parseKey(raw json.RawMessage) (jose.JSONWebKey, bool) {
	var key struct {
		Type    string  `json:"kty"`
		Use     string  `json:"use,omitempty"`
		ID      string  `json:"kid,omitempty"`
		Curve   string  `json:"crv,omitempty"`
		X       string  `json:"x,omitempty"`
		Y       string  `json:"y,omitempty"`
		N       string  `json:"n,omitempty"`
		E       string  `json:"e,omitempty"`
		Private *string `json:"d,omitempty"`
	}
	var k jose.JSONWebKey
	if unmarshalExact(raw, &key) != nil || key.Private != nil {
		return k, false
	}
	text, err := json.Marshal(key)
	if err != nil || k.UnmarshalJSON(text) != nil || !k.Valid() {
		return k, false
	}
	if rsaKey, ok := k.Key.(*rsa.PublicKey); ok {
		bits := rsaKey.N.BitLen()
		return k, bits >= minModulus && bits <= maxModulus
	}
	return k, true
}
