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

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/ocibridge/ocibridge/provider"
)

// Issuer is an OpenID Connect issuer of tokens, such as a CI's.
type Issuer struct {
	Name     string
	URL      string // https; as it stands in tokens
	Audience string // that a token must be for
	Rules    []Rule
}

// Rule is what the bearers of tokens with certain claims may read.
type Rule struct {
	// Claims are those that a token must have, each with exactly that value. A list
	// has it if one of its elements is it; a bool or number, as JSON writes it.
	Claims   map[string]string
	Selector provider.Selector
}

// algorithms are those by which a token may be signed: by a key that its issuer
// alone has, while the other half is public.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512,
	oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

func joseAlgorithms() []jose.SignatureAlgorithm {
	var out []jose.SignatureAlgorithm
	for _, a := range algorithms {
		out = append(out, jose.SignatureAlgorithm(a))
	}
	return out
}

// issuer is an Issuer with its keys, which issuers of one URL share.
type issuer struct {
	name, url, audience string
	rules               []rule
	keys                *keySource
	log                 *slog.Logger
}

type rule struct {
	claims map[string]string
	grant  *grant
}

func newIssuers(in []Issuer, before *Control, client *http.Client, log *slog.Logger) []*issuer {
	sources := map[string]*keySource{}
	if before != nil {
		for _, i := range before.issuers {
			sources[i.url] = i.keys
		}
	}
	var out []*issuer
	for _, i := range in {
		if sources[i.URL] == nil {
			sources[i.URL] = newKeySource(i.URL, client, log)
		}
		iss := &issuer{name: i.Name, url: i.URL, audience: i.Audience, keys: sources[i.URL], log: log}
		for _, r := range i.Rules {
			iss.rules = append(iss.rules, rule{r.Claims, &grant{
				kind: "oidc", name: i.Name, binding: ruleSum(i, r), selector: r.Selector,
			}})
		}
		out = append(out, iss)
	}
	return out
}

// ruleSum is a sum of what a token must have for a rule to apply.
func ruleSum(i Issuer, r Rule) [sha256.Size]byte {
	text := []string{i.URL, i.Audience}
	for _, name := range slices.Sorted(maps.Keys(r.Claims)) {
		text = append(text, name, r.Claims[name])
	}
	b, _ := json.Marshal(text) // strings always can
	return sha256.Sum256(b)
}

// byIssuer returns the bearer of a token that an issuer signed. It fails with
// ErrUnknown, or with ErrUnavailable if only the issuer could tell.
func (c *Control) byIssuer(ctx context.Context, token string) (*Subject, error) {
	if len(c.issuers) == 0 {
		return nil, ErrUnknown
	}
	signed, err := jose.ParseSigned(token, joseAlgorithms())
	if err != nil || len(signed.Signatures) != 1 {
		return nil, ErrUnknown
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(signed.UnsafePayloadWithoutVerification(), &claims) != nil {
		return nil, ErrUnknown
	}
	var found *Subject
	err = ErrUnknown
	for _, i := range c.issuers {
		if i.url != claims.Issuer {
			continue
		}
		s, e := i.subject(ctx, token, signed.Signatures[0].Header.KeyID)
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

// maxSubject bounds what a log says of who a token is for.
const maxSubject = 200

// subject verifies a token. One to whom no rule applies is known, and may read
// nothing.
func (i *issuer) subject(ctx context.Context, token, keyID string) (*Subject, error) {
	keys, err := i.keys.find(ctx, keyID)
	if err != nil {
		return nil, err
	}
	verifier := oidc.NewVerifier(i.url, &oidc.StaticKeySet{PublicKeys: keys}, &oidc.Config{
		ClientID: i.audience, SupportedSigningAlgs: algorithms,
	})
	id, err := verifier.Verify(ctx, token)
	if err != nil {
		// Not the error itself, which may quote the token.
		var expired *oidc.TokenExpiredError
		i.log.DebugContext(ctx, "token refused", "issuer", i.name, "expired", errors.As(err, &expired))
		return nil, ErrUnknown
	}
	var claims map[string]json.RawMessage
	if err := id.Claims(&claims); err != nil {
		return nil, ErrUnknown
	}
	name := []rune(id.Subject)
	s := &Subject{name: fmt.Sprintf("oidc %s %s", i.name, string(name[:min(len(name), maxSubject)])), expires: id.Expiry}
	for _, r := range i.rules {
		if r.applies(claims) {
			s.grants = append(s.grants, r.grant)
		}
	}
	return s, nil
}

func (r rule) applies(claims map[string]json.RawMessage) bool {
	for name, want := range r.claims {
		if !has(claims[name], want) {
			return false
		}
	}
	return len(r.claims) > 0
}

// has reports whether a claim has a value.
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
	case '{', '[', 'n': // no text that somebody would write for it
		return false
	}
	return string(value) == want
}

// public returns the keys of a set that may have signed a token whose header
// names a key; "" is for any.
func public(set *jose.JSONWebKeySet, keyID string) []crypto.PublicKey {
	var out []crypto.PublicKey
	for _, k := range set.Keys {
		if k.IsPublic() && cmp.Or(k.Use, "sig") == "sig" && (keyID == "" || k.KeyID == keyID) {
			out = append(out, k.Key)
		}
	}
	return out
}
