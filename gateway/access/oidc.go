package access

import (
	"cmp"
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// Issuer is an OpenID Connect issuer of tokens, such as a CI service.
type Issuer struct {
	Name     string
	URL      string // https, exactly as in tokens
	Audience string // the audience that a token must have
	Rules    []Rule
}

// Rule gives tokens with certain claims access to some providers and modules.
type Rule struct {
	// Claims are the claims that a token must have, with their exact values. A token's claim that is a list
	// matches if one of its elements matches. A claim that is a bool or a number is compared as JSON text.
	Claims map[string]string
	// Selector selects the providers and modules, as in [Token].
	Selector subject.Selector
}

// issuer is an [Issuer] with its keys. Issuers with the same URL share their keys.
type issuer struct {
	Issuer
	grants []*grant // of the rules, in their order
	keys   *keySource
	log    *slog.Logger
}

func newIssuers(in []Issuer, before *Control, client *http.Client, log *slog.Logger) []*issuer {
	sources := map[string]*keySource{}
	if before != nil {
		for _, i := range before.issuers {
			sources[i.URL] = i.keys
		}
	}
	var out []*issuer
	for _, i := range in {
		if sources[i.URL] == nil {
			sources[i.URL] = newKeySource(i.URL, client, log)
		}
		iss := &issuer{Issuer: i, keys: sources[i.URL], log: log}
		for _, r := range i.Rules {
			iss.grants = append(iss.grants, &grant{kind: "oidc", name: i.Name, binding: ruleSum(i, r), scope: r.Selector})
		}
		out = append(out, iss)
	}
	return out
}

// ruleSum returns a hash of the conditions of a rule.
func ruleSum(i Issuer, r Rule) [sha256.Size]byte {
	text := []string{i.URL, i.Audience}
	for _, name := range slices.Sorted(maps.Keys(r.Claims)) {
		text = append(text, name, r.Claims[name])
	}
	b, _ := json.Marshal(text) // cannot fail: only strings
	return sha256.Sum256(b)
}

// byIssuer returns the client of a token that an issuer signed; see authenticate.
func (c *Control) byIssuer(ctx context.Context, token string) (*Client, error) {
	if len(c.issuers) == 0 {
		return nil, ErrUnknown
	}
	t, err := parseToken(token)
	if err != nil {
		c.log.DebugContext(ctx, "token refused", "err", err)
		return nil, ErrUnknown
	}
	var found *Client
	err = ErrUnknown
	for _, i := range c.issuers {
		if i.URL != t.issuer {
			continue
		}
		s, e := i.authenticate(ctx, t)
		switch {
		case errors.Is(e, ErrUnavailable):
			err = e
		case e == nil && found == nil:
			found = s
		case e == nil:
			found.grants = append(found.grants, s.grants...)
		}
	}
	if found == nil {
		return nil, err
	}
	return found, nil
}

// maxSubject is the maximum length of a token's subject in the log, in characters.
const maxSubject = 200

// authenticate verifies a token and returns its client, which may read nothing if no rule applies.
func (i *issuer) authenticate(ctx context.Context, t *unverifiedToken) (*Client, error) {
	keys, err := i.keys.find(ctx, t.keyID)
	if err != nil {
		return nil, err
	}
	claims, err := t.verify(keys)
	if err == nil {
		err = claims.check(i.URL, i.Audience, time.Now())
	}
	if err != nil {
		i.log.DebugContext(ctx, "token refused", "issuer", i.Name, "err", err)
		return nil, ErrUnknown
	}
	name := []rune(claims.registered.Subject)
	s := &Client{name: fmt.Sprintf("oidc %s %s", i.Name, string(name[:min(len(name), maxSubject)])), expires: claims.registered.Expiry.Time()}
	for n, r := range i.Rules {
		if r.applies(claims.all) {
			s.grants = append(s.grants, i.grants[n])
		}
	}
	return s, nil
}

func (r Rule) applies(claims map[string]json.RawMessage) bool {
	for name, want := range r.Claims {
		if !has(claims[name], want) {
			return false
		}
	}
	return len(r.Claims) > 0
}

// has reports whether a claim equals want, or is a list with an element that equals want.
func has(claim json.RawMessage, want string) bool {
	var list []json.RawMessage
	if json.Unmarshal(claim, &list) == nil {
		return slices.ContainsFunc(list, func(e json.RawMessage) bool { return is(e, want) })
	}
	return is(claim, want)
}

func is(value json.RawMessage, want string) bool {
	if len(value) == 0 {
		return false
	}
	switch value[0] {
	case '"':
		var s string
		return json.Unmarshal(value, &s) == nil && s == want
	case '{', '[', 'n': // not a value that a rule can name
		return false
	}
	return string(value) == want
}

// public returns the public keys of a set that can verify signatures and that have the given key ID, or any ID if keyID
// is "".
func public(set *jose.JSONWebKeySet, keyID string) []crypto.PublicKey {
	var out []crypto.PublicKey
	for _, k := range set.Keys {
		if k.IsPublic() && cmp.Or(k.Use, "sig") == "sig" && (keyID == "" || k.KeyID == keyID) {
			out = append(out, k.Key)
		}
	}
	return out
}
