package access

import (
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	josejson "github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"
)

// algorithms are the signature algorithms that a token may use. All are asymmetric.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// tokenTypes are the allowed values of a token's typ header: jwt of the ID tokens of CI issuers, and at+jwt of access
// tokens. A token without the header is allowed, too. Other types, such as logout+jwt and dpop+jwt, grant no access.
var tokenTypes = []string{"jwt", "at+jwt"}

// claimNames are the claims that this package reads by name.
var claimNames = []string{"iss", "sub", "aud", "exp", "nbf", "iat", "jti", "_claim_names", "_claim_sources"}

const (
	clockSkew = 5 * time.Minute // how far the issuer's clock may be ahead of this machine's clock
	maxDate   = 253402300799    // the last second of the year 9999
)

// Reasons why a token is refused. None of these errors quotes the token.
var (
	errNotJWT      = errors.New("it is not a JWT in compact serialization")
	errHeaderNames = errors.New("a header name differs from a registered name only in case")
	errExtension   = errors.New("its header has crit or b64, which no JWT for a gateway needs")
	errOwnKey      = errors.New("its header contains a key")
	errType        = errors.New("its typ header is for another purpose")
	errSignature   = errors.New("no key of the issuer has signed it")
	errClaims      = errors.New("its claims are malformed, or one of them is duplicated")
	errClaimNames  = errors.New("a claim name differs from a registered name only in case")
	errIssuer      = errors.New("it is from another issuer")
	errAudience    = errors.New("it is for another audience")
	errDates       = errors.New("it has no expiry, or a date that is out of range")
	errExpired     = errors.New("it has expired")
	errNotYet      = errors.New("it is not valid yet")
)

// unverifiedToken is a JWT whose signature is not verified yet. Its issuer and key ID serve only to find the key.
type unverifiedToken struct {
	signed        *jose.JSONWebSignature
	issuer, keyID string
}

// parseToken parses a JWT in compact serialization.
func parseToken(token string) (*unverifiedToken, error) {
	if err := checkHeader(token); err != nil {
		return nil, err
	}
	signed, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, errNotJWT
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if unmarshalExact(signed.UnsafePayloadWithoutVerification(), &claims) != nil {
		return nil, errClaims
	}
	return &unverifiedToken{signed, claims.Issuer, signed.Signatures[0].Header.KeyID}, nil
}

// checkHeader checks the header of a token before go-jose parses the token, because go-jose validates a key in the
// header, which can take seconds for an RSA key.
func checkHeader(token string) error {
	encoded, _, _ := strings.Cut(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return errNotJWT
	}
	var header map[string]json.RawMessage
	if unmarshalExact(raw, &header) != nil {
		return errNotJWT
	}
	if hasVariant(header, "alg", "kid", "typ", "crit", "b64", "jwk") {
		return errHeaderNames
	}
	_, crit := header["crit"]
	_, b64 := header["b64"]
	_, key := header["jwk"]
	typ, typed := header["typ"]
	switch {
	case crit || b64:
		return errExtension
	case key:
		return errOwnKey
	case typed && !isTokenType(typ):
		return errType
	}
	return nil
}

// isTokenType reports whether a typ header is one of tokenTypes. A token's type is a media type: its case does not
// matter, and its prefix application/ may be omitted.
func isTokenType(typ json.RawMessage) bool {
	var s string
	return json.Unmarshal(typ, &s) == nil && slices.Contains(tokenTypes, strings.TrimPrefix(strings.ToLower(s), "application/"))
}

// unmarshalExact decodes JSON. Unlike encoding/json, it compares names exactly and refuses objects with duplicate names.
func unmarshalExact(data []byte, dest any) error { return josejson.Unmarshal(data, dest) }

// hasVariant reports whether an object has a name that differs from one of the given names only in case. A parser that
// ignores case, such as encoding/json, would treat the two as the same.
func hasVariant(object map[string]json.RawMessage, names ...string) bool {
	for got := range object {
		for _, name := range names {
			if got != name && strings.EqualFold(got, name) {
				return true
			}
		}
	}
	return false
}

// verify returns the claims of a token that one of the given keys has signed.
func (t *unverifiedToken) verify(keys []crypto.PublicKey) (*tokenClaims, error) {
	for _, key := range keys {
		if payload, err := t.signed.Verify(key); err == nil {
			return parseClaims(payload)
		}
	}
	return nil, errSignature
}

// tokenClaims are the claims of a token whose signature is verified.
type tokenClaims struct {
	registered jwt.Claims
	all        map[string]json.RawMessage
}

func parseClaims(payload []byte) (*tokenClaims, error) {
	c := &tokenClaims{}
	var distributed struct {
		Names   map[string]string          `json:"_claim_names"`
		Sources map[string]json.RawMessage `json:"_claim_sources"`
	}
	for _, dest := range []any{&c.all, &c.registered, &distributed} {
		if unmarshalExact(payload, dest) != nil {
			return nil, errClaims
		}
	}
	if hasVariant(c.all, claimNames...) {
		return nil, errClaimNames
	}
	// Distributed claims are not fetched, but each of them must have a source.
	for _, source := range distributed.Names {
		if distributed.Sources[source] == nil {
			return nil, errClaims
		}
	}
	return c, nil
}

// check checks that a token is from the issuer, is for the audience, and is currently valid.
func (c *tokenClaims) check(issuer, audience string, now time.Time) error {
	r := c.registered
	switch {
	case r.Issuer != issuer:
		return errIssuer
	case audience == "" || !r.Audience.Contains(audience):
		return errAudience
	case r.Expiry == nil || !inRange(r.Expiry) || !inRange(r.NotBefore) || !inRange(r.IssuedAt):
		return errDates
	case !now.Before(r.Expiry.Time()):
		return errExpired
	case r.NotBefore != nil && now.Add(clockSkew).Before(r.NotBefore.Time()):
		return errNotYet
	}
	return nil
}

// inRange reports whether a date is absent or between 1970 and 9999. A number that does not fit into 64 bits is decoded
// as a date outside that range.
func inRange(d *jwt.NumericDate) bool { return d == nil || *d >= 0 && *d <= maxDate }
