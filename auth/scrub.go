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

	lru "github.com/hashicorp/golang-lru/v2"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// sentSecrets holds the secrets that were sent to registries and token servers.
type sentSecrets struct{ texts *lru.Cache[string, struct{}] }

func newSentSecrets() *sentSecrets {
	texts, _ := lru.New[string, struct{}](maxSecretTexts) // fails only for sizes below 1
	return &sentSecrets{texts}
}

// maxSecretTexts is the maximum number of recorded texts. A helper may return a new
// password every minute, and one credential has about ten spellings.
const maxSecretTexts = 1024

// minSecret is the minimum length of a text that is removed. Shorter texts occur
// everywhere.
const minSecret = 3

// add records the secrets of a credential, in every form in which they are sent.
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
	for _, text := range spellings(secret) {
		if len(text) >= minSecret {
			s.texts.Add(text, struct{}{})
		}
	}
}

// spellings returns the forms that a text may have in JSON and in URLs. JSON encoders
// differ in what they escape.
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

// scrub replaces a bearer token and all recorded secrets in b.
func (s *sentSecrets) scrub(b []byte, bearer string) []byte {
	texts := s.texts.Keys()
	// The longest secret comes first, because a shorter secret may be part of it.
	slices.SortFunc(texts, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, text := range append([]string{bearer}, texts...) {
		if len(text) >= minSecret {
			b = bytes.ReplaceAll(b, []byte(text), []byte(redacted))
		}
	}
	return b
}

// scrubRefusal removes secrets from a refusal. Some servers repeat the secret that was
// sent, and the text of a refusal ends up in errors and logs. It cuts the body at
// maxErrorBody, because no reader of a refusal reads further.
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
