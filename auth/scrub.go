package auth

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"oras.land/oras-go/v2/registry/remote/auth"
)

// sentSecrets are the secrets that registries and token servers were given.
type sentSecrets struct {
	mu    sync.Mutex
	texts []string // the one that was sent last is the last
}

// maxSecretTexts bounds how many texts are kept. A helper may answer with another
// password every minute, and a credential has some ten spellings.
const maxSecretTexts = 1024

// minSecret is the length below which a text is not taken for a secret, as it
// would be found everywhere.
const minSecret = 3

// add keeps the secrets of a credential, in the forms in which they are sent.
func (s *sentSecrets) add(c auth.Credential) {
	for _, secret := range []string{c.Password, c.RefreshToken, c.AccessToken} {
		if secret != "" {
			s.addText(secret)
		}
	}
	if c.Password != "" {
		s.addText(base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + c.Password)))
	}
}

func (s *sentSecrets) addText(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range spellings(secret) {
		if len(text) < minSecret {
			continue
		}
		if i := slices.Index(s.texts, text); i >= 0 {
			s.texts = slices.Delete(s.texts, i, i+1)
		}
		s.texts = append(s.texts, text)
	}
	s.texts = slices.Delete(s.texts, 0, max(0, len(s.texts)-maxSecretTexts))
}

// spellings returns how a text may look in JSON and in URLs. Encoders of JSON do
// not agree on what has to be escaped.
func spellings(text string) []string {
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a string can always be encoded
	quoted, _ := json.Marshal(text)
	out := []string{text, url.QueryEscape(text), url.PathEscape(text)}
	for _, q := range []string{string(quoted), strings.TrimSpace(plain.String())} {
		q = q[1 : len(q)-1]
		out = append(out, q, strings.ReplaceAll(q, "/", `\/`))
	}
	return out
}

// scrub replaces the secrets in b, and a bearer token.
func (s *sentSecrets) scrub(b []byte, bearer string) []byte {
	s.mu.Lock()
	texts := slices.Clone(s.texts)
	s.mu.Unlock()
	// The longest first: another may be a part of it.
	slices.SortFunc(texts, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, text := range append([]string{bearer}, texts...) {
		if len(text) >= minSecret {
			b = bytes.ReplaceAll(b, []byte(text), []byte(redacted))
		}
	}
	return b
}

// secretScrubber takes what was sent as a secret out of refusals. Some servers
// repeat it there, and a refusal's words end in errors and logs.
type secretScrubber struct {
	next http.RoundTripper
	sent *sentSecrets
}

// RoundTrip implements [http.RoundTripper].
func (t secretScrubber) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.StatusCode < http.StatusBadRequest || req.Method == http.MethodHead {
		return resp, err
	}
	// Nobody would read what is cut off here.
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	_ = resp.Body.Close()
	if err != nil && len(body) == 0 {
		return nil, err
	}
	bearer, _ := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	body = t.sent.scrub(body, bearer)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, nil
}
