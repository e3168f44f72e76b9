package trust

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"

	"github.com/ocibridge/ocibridge/internal/hint"
)

const (
	// maxSignatureBytes bounds a detached signature.
	maxSignatureBytes = 64 << 10
	// maxKeys bounds how many keys are tried.
	maxKeys = 64
)

// Signer says whose key a signature verified with.
type Signer struct {
	// Fingerprint is that of the primary key, in upper-case hexadecimal.
	Fingerprint string
	// KeyID is the primary key's 64-bit ID, as clients print it.
	KeyID string
	// Expired is set if the key or the signature is past its time. Clients
	// accept such a signature with a warning.
	Expired bool
	// Pinned is set if the policy names the key.
	Pinned bool
}

var (
	// errUnknownIssuer means that the signature was made by none of the keys.
	errUnknownIssuer = errors.New("the signature was made by none of the keys offered")
	// errNotPinned means the same of those keys that are pinned.
	errNotPinned = errors.New("the signature was made by none of the pinned keys")
)

// verifySignature checks a detached signature of doc against the keys in turn,
// with the clients' verdicts: a key that does not read or a signature that a
// key of the right ID does not confirm ends the search; an expired key counts
// only if no other verifies. Of keys that the policy does not pin, none is tried.
func (p Policy) verifySignature(doc, signature []byte, keys []string) (Signer, error) {
	if len(signature) > maxSignatureBytes {
		return Signer{}, fmt.Errorf("the signature has more than %d bytes", maxSignatureBytes)
	}
	if len(keys) > maxKeys {
		return Signer{}, fmt.Errorf("%d signing keys are offered, more than %d", len(keys), maxKeys)
	}
	rings, err := readKeys(keys)
	if err != nil {
		return Signer{}, err
	}
	var expired *Signer
	var offered []string
	for _, r := range rings {
		ring := r.keys
		if r.err != nil {
			return Signer{}, r.err
		}
		for _, e := range ring {
			offered = append(offered, fingerprintOf(e))
		}
		if ring = p.pinned(ring); len(ring) == 0 {
			continue
		}
		entity, err := check(ring, doc, signature)
		switch {
		case err == nil:
			return p.signerOf(entity, false), nil
		case errors.Is(err, pgperrors.ErrUnknownIssuer):
		case errors.Is(err, pgperrors.ErrKeyExpired), errors.Is(err, pgperrors.ErrSignatureExpired):
			if expired == nil && entity != nil {
				s := p.signerOf(entity, true)
				expired = &s
			}
		case errors.Is(err, pgperrors.ErrKeyRevoked) && entity != nil:
			return Signer{}, hint.Wrap(fmt.Errorf("the key %s that made the signature is revoked", fingerprintOf(entity)),
				"its owner revoked it, or its part that signed; ask its publisher for a release signed by another key")
		default:
			return Signer{}, fmt.Errorf("the signature is not valid: %w", err)
		}
	}
	switch {
	case expired != nil && p.StrictExpiry:
		return Signer{}, hint.Wrap(fmt.Errorf("the key %s or its signature has expired", expired.Fingerprint),
			"strict_expiry refuses it; ask its publisher for a release signed by a current key")
	case expired != nil:
		return *expired, nil
	case p.Pins():
		return Signer{}, hint.Wrap(fmt.Errorf("%w: pinned are %s, offered are %s", errNotPinned, few(p.Keys), few(offered)),
			"find out from its publisher, by another way, whether it signs with a new key; if so, add the key to the trust block")
	}
	return Signer{}, errUnknownIssuer
}

// check checks a detached binary signature with the keys of a ring.
func check(ring openpgp.EntityList, doc, signature []byte) (entity *openpgp.Entity, err error) {
	defer surviveLibrary(&err)
	return openpgp.CheckDetachedSignature(ring, bytes.NewReader(doc), bytes.NewReader(signature), nil)
}

// surviveLibrary turns a panic of the OpenPGP library into an error: it panics on
// some keys that no program makes, such as one whose only statement about its user
// ID is a revocation, and whoever sends them must not end the process.
func surviveLibrary(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the key or the signature is malformed: %v", p)
	}
}

// pinned returns those keys of a ring that may sign.
func (p Policy) pinned(ring openpgp.EntityList) openpgp.EntityList {
	if !p.Pins() {
		return ring
	}
	return slices.DeleteFunc(ring, func(e *openpgp.Entity) bool { return !slices.Contains(p.Keys, fingerprintOf(e)) })
}

// few lists fingerprints for a message, the first ones of many.
func few(fingerprints []string) string {
	const most = 4
	if n := len(fingerprints); n > most {
		return fmt.Sprintf("%s and %d more", strings.Join(fingerprints[:most], ", "), n-most)
	}
	return strings.Join(fingerprints, ", ")
}

func (p Policy) signerOf(e *openpgp.Entity, expired bool) Signer {
	return Signer{
		Fingerprint: fingerprintOf(e),
		KeyID:       e.PrimaryKey.KeyIdString(),
		Expired:     expired,
		Pinned:      p.Pins(), // of other keys none is tried
	}
}

// BinarySignature returns a detached signature without its ASCII armour, as the
// provider registry protocol wants it. A binary one is returned as it is.
func BinarySignature(signature []byte) ([]byte, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(signature), []byte("-----BEGIN")) {
		return signature, nil
	}
	block, err := armor.Decode(bytes.NewReader(signature))
	if err != nil {
		return nil, fmt.Errorf("the armoured signature does not read: %w", err)
	}
	if block.Type != openpgp.SignatureType {
		return nil, fmt.Errorf("the signature is a %s", block.Type)
	}
	raw, err := io.ReadAll(io.LimitReader(block.Body, maxSignatureBytes+1))
	if err != nil {
		return nil, fmt.Errorf("the armoured signature does not read: %w", err)
	}
	if len(raw) > maxSignatureBytes {
		return nil, fmt.Errorf("the signature has more than %d bytes", maxSignatureBytes)
	}
	return raw, nil
}
