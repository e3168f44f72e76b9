package auth

import (
	"fmt"
	"io"
	"log/slog"

	"oras.land/oras-go/v2/registry/remote/auth"
)

const redacted = "[redacted]"

// credential is what proves a user to a registry. It shows nothing: every
// formatting verb, logger and encoder sees the word redacted. The function keeps
// it from reflection, with which fmt prints unexported fields.
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
