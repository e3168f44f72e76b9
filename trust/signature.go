package trust

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

const (
	maxSignatureBytes         = 64 << 10              // the maximum size of a detached signature
	maxArmouredSignatureBytes = 2 * maxSignatureBytes // ASCII armour makes it a third longer
)

// Signer identifies the key that verified a signature.
type Signer struct {
	Fingerprint string // of the primary key, in upper-case hexadecimal
	KeyID       string // the 64-bit ID of the primary key, in the form that clients print
	Expiry      Expiry // why the signature is not valid at the moment, if the policy accepts it nevertheless
	Pinned      bool   // whether the policy names the key
	// Unread is a sentence about older clients that cannot read the signature, this key, or a key that comes before
	// this key. It is "" if there are no such clients.
	Unread string
}

// Expired reports whether the key or the signature is not valid at the moment.
func (s Signer) Expired() bool { return s.Expiry != "" }

// WhyExpired says which key or signature is not valid at the moment, and which clients accept it. It returns "" if both
// are valid.
func (s Signer) WhyExpired() string {
	switch s.Expiry {
	case "":
		return ""
	case KeyExpired, KeyFromFuture:
		return fmt.Sprintf("the key %s %s; clients accept it with a warning", s.Fingerprint, s.Expiry)
	}
	return fmt.Sprintf("the signature by the key %s %s; OpenTofu accepts it with a warning, and Terraform since 1.6 refuses it", s.Fingerprint, s.Expiry)
}

// Expiry says why a key or its signature is not valid at the moment. "" means that both are valid.
type Expiry string

// The reasons why a key or a signature is not valid at the moment.
const (
	KeyExpired          Expiry = "has expired"
	KeyFromFuture       Expiry = "was created in the future, by this machine's clock"
	SignatureExpired    Expiry = "is valid no longer"
	SignatureFromFuture Expiry = "was made in the future, by this machine's clock"
)

// expiryOf returns the reason behind the library's error for a signature by the key e.
func expiryOf(err error, e *openpgp.Entity, signature []byte, now time.Time) Expiry {
	isLater := func(k openpgp.Subkey) bool { return k.PublicKey.CreationTime.After(now) }
	switch {
	case errors.Is(err, pgperrors.ErrSignatureExpired) && madeAt(signature).After(now):
		return SignatureFromFuture
	case errors.Is(err, pgperrors.ErrSignatureExpired):
		return SignatureExpired
	case e.PrimaryKey.CreationTime.After(now) || slices.ContainsFunc(e.Subkeys, isLater):
		return KeyFromFuture
	}
	return KeyExpired
}

// madeAt returns the latest time at which one of the signatures in a packet sequence was made.
func madeAt(signature []byte) (latest time.Time) {
	defer recoverPanic(new(error))
	r := packet.NewReader(bytes.NewReader(signature))
	for p, err := r.Next(); err == nil; p, err = r.Next() {
		if s, ok := p.(*packet.Signature); ok && s.CreationTime.After(latest) {
			latest = s.CreationTime
		}
	}
	return latest
}

var (
	errUnknownIssuer = errors.New("the signature was made by none of the keys offered")
	errNotPinned     = errors.New("the signature was made by none of the pinned keys")
)

// verifySignature returns the first key that verifies a detached signature of doc, as clients do. It tries the keys in
// order, and returns an error at the first invalid key, or if a key has the ID in the signature but does not verify the
// signature. It returns an expired key only if no other key verifies the signature. If the policy pins keys, other keys
// are not tried.
//
// verifySignature uses one of the process's slots. It checks ctx before each packet of the
// keys and before each key. If ctx ends, the signature is neither accepted nor refused.
func (p Policy) verifySignature(ctx context.Context, doc, signature []byte, keys []string) (Signer, error) {
	if len(signature) > maxSignatureBytes {
		return Signer{}, fmt.Errorf("the signature has more than %d bytes", maxSignatureBytes)
	}
	release, err := acquireSlot(ctx)
	if err != nil {
		return Signer{}, err
	}
	defer release()
	if err := checkSignaturePackets(signature); err != nil {
		return Signer{}, err
	}
	rings, err := readRings(ctx, keys)
	if err != nil {
		return Signer{}, err
	}
	offered := primariesOf(rings)
	p.dropUnpinned(rings)
	if err := checkCost(rings, doc); err != nil {
		return Signer{}, err
	}
	signer, err := p.findSigner(ctx, rings, doc, signature)
	switch {
	case err != nil:
		return Signer{}, err
	case signer != nil && signer.Expired() && p.StrictExpiry:
		return Signer{}, hint.Wrap(errors.New(signer.WhyExpired()),
			"strict_expiry refuses it; ask its publisher for a release signed by a current key")
	case signer != nil:
		return *signer, nil
	case p.Pins():
		return Signer{}, hint.Wrap(fmt.Errorf("%w: pinned are %s, offered are %s", errNotPinned, abbreviate(p.Keys), abbreviate(offered)),
			"%s", p.notPinnedHelp(rings))
	}
	if id := issuer(signature); id != "" {
		return Signer{}, fmt.Errorf("%w: the signature names the key %s, offered are %s", errUnknownIssuer, id, abbreviate(offered))
	}
	return Signer{}, errUnknownIssuer
}

// issuer returns the unproven ID of the key that a signature names, in the form that clients print, or "" if there is none.
func issuer(signature []byte) (id string) {
	defer recoverPanic(new(error))
	r := packet.NewReader(bytes.NewReader(signature))
	for p, err := r.Next(); err == nil; p, err = r.Next() {
		if s, ok := p.(*packet.Signature); ok && s.IssuerKeyId != nil {
			return fmt.Sprintf("%016X", *s.IssuerKeyId)
		}
	}
	return ""
}

// findSigner returns the first key that verifies the signature and has not expired, or else
// the first expired key that verifies it, or nil.
func (p Policy) findSigner(ctx context.Context, rings []ring, doc, signature []byte) (*Signer, error) {
	var expired *Signer
	var unread limit
	for _, r := range rings {
		unread.raise(r.limit)
		if r.err != nil {
			return nil, r.err
		}
		if len(r.keys) == 0 {
			continue // no key of the ring is pinned
		}
		keys, err := r.entities(ctx)
		if err != nil {
			return nil, err
		}
		if keys = p.pinned(keys); len(keys) == 0 {
			continue
		}
		if err := contextErr(ctx); err != nil {
			return nil, err
		}
		signer, err := p.signerIn(keys, doc, signature)
		if signer != nil {
			unread.raise(signatureLimit(signature, keys))
			signer.Unread = unread.String()
		}
		if err != nil || signer != nil && !signer.Expired() {
			return signer, err
		}
		if expired == nil {
			expired = signer
		}
	}
	return expired, nil
}

// signerIn returns the key of a ring that made the signature, even if it has expired, or nil.
func (p Policy) signerIn(keys openpgp.EntityList, doc, signature []byte) (*Signer, error) {
	entity, err := check(keys, doc, signature)
	switch {
	case err == nil:
		return p.signerOf(entity, ""), nil
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return nil, nil
	case errors.Is(err, pgperrors.ErrKeyExpired), errors.Is(err, pgperrors.ErrSignatureExpired):
		if entity == nil {
			return nil, nil
		}
		return p.signerOf(entity, expiryOf(err, entity, signature, time.Now())), nil
	case errors.Is(err, pgperrors.ErrKeyRevoked) && entity != nil:
		return nil, hint.Wrap(fmt.Errorf("the key %s that made the signature is revoked", fingerprintOf(entity.PrimaryKey)),
			"its owner revoked it, or its part that signed; ask its publisher for a release signed by another key")
	}
	// The library's error may contain a long text from the signature.
	return nil, fmt.Errorf("the signature is not valid: %.200s", err)
}

// primariesOf returns the fingerprints of the primary keys.
func primariesOf(rings []ring) (out []string) {
	for _, r := range rings {
		for _, k := range r.keys {
			if k.primary != nil {
				out = append(out, fingerprintOf(k.primary))
			}
		}
	}
	return out
}

// dropUnpinned removes each key that is not pinned and has no pinned subkey. It runs before self-signatures are
// verified. Packets without a primary key stay, so that they cause an error later.
func (p Policy) dropUnpinned(rings []ring) {
	if !p.Pins() {
		return
	}
	for i := range rings {
		rings[i].keys = slices.DeleteFunc(rings[i].keys, func(k unverifiedKey) bool {
			return k.primary != nil && !k.hasFingerprint(p.Keys)
		})
	}
}

// notPinnedHelp returns the hint for a signature that no pinned key made. rings are the rings that
// [Policy.dropUnpinned] left.
func (p Policy) notPinnedHelp(rings []ring) string {
	for _, r := range rings {
		for _, k := range r.keys {
			if k.primary != nil && !slices.Contains(p.Keys, fingerprintOf(k.primary)) {
				return fmt.Sprintf("the trust block names a subkey of %s: it must name the primary key", fingerprintOf(k.primary))
			}
		}
	}
	return "find out from its publisher, through another channel, whether it signs with a new key; if so, add the key to the trust block"
}

// check verifies a detached binary signature with the keys of a ring.
func check(ring openpgp.EntityList, doc, signature []byte) (entity *openpgp.Entity, err error) {
	defer recoverPanic(&err)
	return openpgp.CheckDetachedSignature(ring, bytes.NewReader(doc), bytes.NewReader(signature), nil)
}

// recoverPanic turns a panic of the OpenPGP library, such as for a malformed key, into an error.
func recoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the key or the signature is malformed: %v", p)
	}
}

// pinned returns the keys of a ring that the policy allows to sign.
func (p Policy) pinned(ring openpgp.EntityList) openpgp.EntityList {
	if !p.Pins() {
		return ring
	}
	return slices.DeleteFunc(ring, func(e *openpgp.Entity) bool { return !slices.Contains(p.Keys, fingerprintOf(e.PrimaryKey)) })
}

// abbreviate lists fingerprints for a message.
func abbreviate(fingerprints []string) string {
	const most = 4
	if n := len(fingerprints); n > most {
		return fmt.Sprintf("%s and %d more", strings.Join(fingerprints[:most], ", "), n-most)
	}
	return strings.Join(fingerprints, ", ")
}

func (p Policy) signerOf(e *openpgp.Entity, expiry Expiry) *Signer {
	// If the policy pins keys, only pinned keys are tried, so the signer's key is pinned.
	return &Signer{Fingerprint: fingerprintOf(e.PrimaryKey), KeyID: e.PrimaryKey.KeyIdString(), Expiry: expiry, Pinned: p.Pins()}
}

// BinarySignature removes the ASCII armour from a detached signature, because signatures are
// binary in the provider registry protocol. It returns a binary signature unchanged.
func BinarySignature(signature []byte) ([]byte, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(signature), []byte("-----BEGIN")) {
		return signature, nil
	}
	if len(signature) > maxArmouredSignatureBytes {
		return nil, fmt.Errorf("the armoured signature has more than %d bytes", maxArmouredSignatureBytes)
	}
	blockType, raw, err := dearmour(string(signature))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the armoured signature cannot be read: %w", err)
	case blockType != openpgp.SignatureType:
		return nil, fmt.Errorf("the signature is a %.40s", blockType)
	}
	if len(raw) > maxSignatureBytes {
		return nil, fmt.Errorf("the signature has more than %d bytes", maxSignatureBytes)
	}
	return raw, nil
}

// unverifiedSignature returns the binary form of a signature that no key verifies, or nil if
// it is too large or its armour cannot be read.
func unverifiedSignature(signature []byte) []byte {
	raw, err := BinarySignature(signature)
	if err != nil || len(raw) > maxSignatureBytes {
		return nil
	}
	return raw
}
