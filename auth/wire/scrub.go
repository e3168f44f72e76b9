package wire

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

	lru "github.com/hashicorp/golang-lru/v2"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// sentSecrets holds the secrets that were sent to registries and token servers.
type sentSecrets struct{ texts *lru.Cache[string, struct{}] }

func newSentSecrets() *sentSecrets {
	texts, _ := lru.New[string, struct{}](maxSecretTexts) // fails only for sizes below 1
	return &sentSecrets{texts}
}

// maxSecretTexts is the maximum number of texts in sentSecrets. Without a limit, their number would
// grow, because a helper may return a new password every minute. One credential adds about ten
// texts.
const maxSecretTexts = 1024

// minSecret is the minimum length in bytes of a text that is removed from responses. Shorter texts
// occur in ordinary words.
const minSecret = 3

// add records the secrets of the credential, in every form in which they may appear in
// a request or a response.
func (s *sentSecrets) add(c auth.Credential) {
	secrets := []string{c.Password, c.RefreshToken, c.AccessToken}
	if c.Password != "" {
		secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte(c.Username+":"+c.Password)))
	}
	for _, secret := range secrets {
		for _, text := range spellings(secret) {
			if len(text) >= minSecret {
				s.texts.Add(text, struct{}{})
			}
		}
	}
}

// spellings returns the forms that a text may have in JSON and in URLs. JSON encoders differ in
// the characters that they escape.
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

// scrub returns a copy of the text in which [redacted] replaces the given bearer token
// and all recorded secrets.
func (s *sentSecrets) scrub(b []byte, bearer string) []byte {
	texts := s.texts.Keys()
	// The longest secret comes first, because a shorter secret may be part of it.
	slices.SortFunc(texts, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, text := range append([]string{bearer}, texts...) {
		if len(text) >= minSecret {
			b = bytes.ReplaceAll(b, []byte(text), []byte("[redacted]"))
		}
	}
	return b
}

// scrubRefusal removes secrets from the body of an error response. Some servers repeat
// the secret that the client sent, and the text of the body ends up in errors and logs.
// scrubRefusal cuts the body at maxErrorBody, because no caller reads more of an error.
func (s *sentSecrets) scrubRefusal(req *http.Request, resp *http.Response) error {
	if resp.StatusCode < http.StatusBadRequest || req.Method == http.MethodHead {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	_ = resp.Body.Close()
	if err != nil && len(body) == 0 {
		return err
	}
	bearer, _ := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	body = s.scrub(body, bearer)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
}
