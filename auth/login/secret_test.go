package login

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"oras.land/oras-go/v2/registry/remote/auth"
)

func TestCredentialShowsNothing(t *testing.T) {
	const secret = "s3cr3t"
	cred := newCredential(auth.Credential{Username: "u", Password: secret, RefreshToken: secret, AccessToken: secret})
	l := &source{name: "ghcr.io", cred: cred}
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	for _, v := range []any{cred, &cred, l, *l, []credential{cred}, map[string]any{"x": cred}, struct{ c credential }{cred}} {
		fmt.Fprintf(&out, "%v %+v %#v %s %q %x %X %d %t\n", v, v, v, v, v, v, v, v, v)
		log.Info("x", "v", v)
		_ = json.NewEncoder(&out).Encode(v)
	}
	if s := strings.ToLower(out.String()); strings.Contains(s, secret) || strings.Contains(s, fmt.Sprintf("%x", secret)) {
		t.Errorf("the secret shows: %s", s)
	}
	if !strings.Contains(out.String(), redacted) {
		t.Error("the placeholder is missing")
	}
	if cred.reveal().Password != secret || (credential{}).reveal() != auth.EmptyCredential {
		t.Error("reveal does not return the credential")
	}
}

func TestSecretShowsNothing(t *testing.T) {
	const text = "s3cr3t"
	s := NewSecret(text)
	l := Login{Prefix: "ghcr.io", Username: NewSecret("u"), Password: s, AccessToken: s, RefreshToken: s}
	opts := Options{Explicit: []Login{l}}
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	for _, v := range []any{s, &s, l, &l, []Secret{s}, map[string]any{"x": s}, struct{ s Secret }{s}, opts.Explicit} {
		fmt.Fprintf(&out, "%v %+v %#v %s %q %x %X %d %t\n", v, v, v, v, v, v, v, v, v)
		log.Info("x", "v", v)
		_ = json.NewEncoder(&out).Encode(v)
	}
	if shown := strings.ToLower(out.String()); strings.Contains(shown, text) || strings.Contains(shown, fmt.Sprintf("%x", text)) {
		t.Errorf("the secret shows: %s", shown)
	}
	if !strings.Contains(out.String(), redacted) || s.Reveal() != text {
		t.Errorf("the placeholder is missing, or Reveal returns another value: %s", &out)
	}
	if none := NewSecret(""); !none.IsZero() || none.Reveal() != "" || s.IsZero() {
		t.Error("IsZero must be true for the empty secret only")
	}
}
