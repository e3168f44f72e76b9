package auth

import (
	"fmt"
	"io"
	"log/slog"

	"oras.land/oras-go/v2/registry/remote/auth"
)

const redacted = "[redacted]"

// sealed is embedded in types that must not show their value: every formatting verb,
// logger and encoder prints [redacted].
type sealed struct{}

// String implements [fmt.Stringer].
func (sealed) String() string { return redacted }

// GoString implements [fmt.GoStringer].
func (sealed) GoString() string { return redacted }

// Format implements [fmt.Formatter] for every verb.
func (sealed) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue implements [slog.LogValuer].
func (sealed) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements [encoding.TextMarshaler].
func (sealed) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Secret is a password or token from a configuration. It never shows its value. The value
// is behind a pointer because fmt prints unexported fields by reflection. The zero Secret
// is empty.
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

// Reveal returns the value, for the code that sends it.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.value == nil }

// credential proves a user's identity to a registry. Like [Secret], it never shows its
// value. The value is behind a function, which reflection cannot call.
type credential struct {
	sealed
	value func() auth.Credential
}

// newCredential wraps c. If c is empty, the result is the zero credential.
func newCredential(c auth.Credential) credential {
	if c == auth.EmptyCredential {
		return credential{}
	}
	return credential{value: func() auth.Credential { return c }}
}

func (c credential) empty() bool { return c.value == nil }

// reveal returns the credential for oras-go. No other code may call it.
func (c credential) reveal() auth.Credential {
	if c.value == nil {
		return auth.EmptyCredential
	}
	return c.value()
}
