package login

import (
	"fmt"
	"io"
	"log/slog"

	"oras.land/oras-go/v2/registry/remote/auth"
)

const redacted = "[redacted]"

// sealed is embedded in types that must not show their value. Every formatting verb,
// logger and encoder prints such a type as [redacted].
type sealed struct{}

func (sealed) String() string { return redacted }

// Format implements [fmt.Formatter] for every verb, %#v included.
func (sealed) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

func (sealed) LogValue() slog.Value { return slog.StringValue(redacted) }

func (sealed) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Secret is a password or token from a configuration. A formatted Secret never shows its
// value. The value is behind a pointer, because fmt prints unexported fields by
// reflection but does not follow nested pointers. The zero Secret is empty.
type Secret struct {
	sealed
	value *string
}

// NewSecret returns a secret with the value s. If s is empty, the secret is empty.
func NewSecret(s string) Secret {
	if s == "" {
		return Secret{}
	}
	return Secret{value: &s}
}

// Reveal returns the value of the secret. Only code that sends the secret should call it.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.value == nil }

// credential is what a client sends to a registry to prove the user's identity. Like
// [Secret], it never shows its value when formatted. The value is behind a function,
// because fmt does not call functions.
type credential struct {
	sealed
	value func() auth.Credential
}

// newCredential returns a credential with the value c: the zero credential if c is empty.
func newCredential(c auth.Credential) credential {
	if c == auth.EmptyCredential {
		return credential{}
	}
	return credential{value: func() auth.Credential { return c }}
}

func (c credential) empty() bool { return c.value == nil }

// reveal returns the value of the credential. Only code that passes the value to oras-go,
// or checks whether it was sent, may call reveal.
func (c credential) reveal() auth.Credential {
	if c.empty() {
		return auth.EmptyCredential
	}
	return c.value()
}
