package auth

import (
	"fmt"
	"io"
	"log/slog"

	"oras.land/oras-go/v2/registry/remote/auth"
)

const redacted = "[redacted]"

// Secret is a password or token that a configuration holds. It shows nothing:
// every formatting verb, logger and encoder sees the word redacted. The pointer
// keeps it from reflection, with which fmt prints unexported fields. The zero
// Secret is none.
type Secret struct{ value *string }

// NewSecret keeps s; an empty one is none.
func NewSecret(s string) Secret {
	if s == "" {
		return Secret{}
	}
	return Secret{&s}
}

// Reveal returns what is kept, for whoever it is meant for.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.value == nil }

// String returns a word that stands for any secret, as do the other methods by
// which a value shows itself.
func (Secret) String() string { return redacted }

// GoString implements [fmt.GoStringer].
func (Secret) GoString() string { return redacted }

// Format implements [fmt.Formatter] for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue implements [slog.LogValuer].
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements [encoding.TextMarshaler].
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON implements [json.Marshaler].
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// credential is what proves a user to a registry. It shows nothing, as
// [Secret]. The function keeps it from reflection.
type credential struct{ value func() auth.Credential }

// newCredential keeps c; one without content becomes the zero credential, which
// is none.
func newCredential(c auth.Credential) credential {
	if c == auth.EmptyCredential {
		return credential{}
	}
	return credential{func() auth.Credential { return c }}
}

func (c credential) empty() bool { return c.value == nil }

// reveal returns the credential for oras-go. Nothing else may call it.
func (c credential) reveal() auth.Credential {
	if c.value == nil {
		return auth.EmptyCredential
	}
	return c.value()
}

func (credential) String() string               { return redacted }
func (credential) GoString() string             { return redacted }
func (credential) Format(f fmt.State, _ rune)   { _, _ = io.WriteString(f, redacted) }
func (credential) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (credential) MarshalText() ([]byte, error) { return []byte(redacted), nil }
