package trust

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// signingKeysLimits are the limits of a signing_keys object from an origin or from evidence.
var signingKeysLimits = document.Limits{Bytes: 4 << 20, Values: 10_000, Elements: 1_000}

// ParseSigningKeys returns the armoured keys of a signing_keys object of the provider
// registry protocol, in their order. It returns no key if the object is empty or null.
func ParseSigningKeys(object json.RawMessage) ([]string, error) {
	if len(object) == 0 || string(object) == "null" {
		return nil, nil
	}
	var keys struct {
		GPG []struct {
			ASCIIArmor string `json:"ascii_armor"`
		} `json:"gpg_public_keys"`
	}
	if err := signingKeysLimits.Unmarshal(object, &keys); err != nil {
		return nil, hint.Wrap(fmt.Errorf("signing_keys: %w", err), "the registry does not keep to the provider registry protocol; nothing was stored")
	}
	var out []string
	for _, k := range keys.GPG {
		out = append(out, k.ASCIIArmor)
	}
	return out, nil
}

// fingerprintOf returns a key's fingerprint in the form of Policy.Keys.
func fingerprintOf(k *packet.PublicKey) string { return fmt.Sprintf("%X", k.Fingerprint) }

const (
	publicKeyHelp  = "a public key is in ASCII armour, as gpg --armor --export KEYID writes it"
	privateKeyHelp = "keys are stored with the release, for everybody to read: give what gpg --armor --export KEYID writes. Whoever has published a private key must revoke it"
	tooLargeHelp   = "ask the publisher for a key of a usual size; gpg --armor --export-options export-minimal --export KEYID leaves out certifications by others"
)

var errPrivateKey = errors.New("it is a private key")

// ring holds the keys of an armoured block, or the error if the block cannot be read.
type ring struct {
	keys  []unverifiedKey
	err   error
	limit limit // the highest limit of its keys
}

// readRings splits armoured blocks into their packets, and verifies nothing. It returns an
// error if the blocks exceed a limit, or if any key is private, because all keys are stored
// with the release, where everyone can read them. If a block cannot be read, the error is
// stored in its ring, and matters only if that ring is used. Cancelling ctx stops readRings
// between two packets.
func readRings(ctx context.Context, armoured []string) ([]ring, error) {
	if len(armoured) > maxKeys {
		return nil, hint.Wrap(tooLarge("%d signing keys are offered, more than %d", len(armoured), maxKeys), tooLargeHelp)
	}
	var l load
	var out []ring
	for _, text := range armoured {
		keys, err := l.read(ctx, text)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, contextErr(ctx)
		case errors.Is(err, errTooLarge):
			return nil, hint.Wrap(err, tooLargeHelp)
		case errors.Is(err, errPrivateKey):
			return nil, unreadable(err)
		}
		r := ring{keys: keys, err: unreadable(err)}
		for _, k := range keys {
			r.limit.raise(k.limit)
		}
		out = append(out, r)
	}
	return out, nil
}

// read reads an armoured block with public keys. Unlike clients, it refuses a private key.
func (l *load) read(ctx context.Context, text string) ([]unverifiedKey, error) {
	if l.bytes += len(text); l.bytes > maxKeyBytes {
		return nil, tooLarge("the signing keys have more than %d bytes", maxKeyBytes)
	}
	if strings.Contains(text, "-----BEGIN "+openpgp.PrivateKeyType) {
		return nil, errPrivateKey // even if it follows another block
	}
	blockType, body, err := dearmour(text)
	switch {
	case err == io.EOF:
		return nil, errors.New("it has no ASCII armour")
	case err != nil:
		return nil, err
	case blockType != openpgp.PublicKeyType:
		return nil, fmt.Errorf("it is a %.40q", blockType)
	}
	return l.walk(ctx, body)
}

// unreadable wraps an error about a signing key, and adds a hint.
func unreadable(err error) error {
	if err == nil {
		return nil
	}
	help := publicKeyHelp
	if errors.Is(err, errPrivateKey) {
		help = privateKeyHelp
	}
	return hint.Wrap(fmt.Errorf("a signing key cannot be read: %w", err), "%s", help)
}

// maxArmourLine is the maximum length of a line in bytes. The library copies a header line
// again for every 100 bytes.
const maxArmourLine = 4 << 10

// dearmour returns the type and the content of the first block of ASCII armour in a text, or
// io.EOF if there is none.
func dearmour(text string) (blockType string, body []byte, err error) {
	defer recoverPanic(&err)
	for line := range strings.SplitSeq(text, "\n") {
		if len(line) > maxArmourLine {
			return "", nil, tooLarge("the armour has a line of %d bytes, more than %d", len(line), maxArmourLine)
		}
	}
	block, err := armor.Decode(strings.NewReader(text))
	if err != nil {
		return "", nil, err
	}
	body, err = io.ReadAll(block.Body)
	return block.Type, body, err
}

// hashedBytes is the number of bytes that the library hashes during one unit of
// [verificationCost], in the slowest case: a text signature over a document of line feeds.
const hashedBytes = 32 << 10

// checkCost returns an error if the verifications with all keys would take too long. The
// library hashes the signed document, if there is one, once for each ring.
func checkCost(rings []ring, doc []byte) error {
	cost := 0
	for _, r := range rings {
		if len(r.keys) > 0 {
			cost += len(doc) / hashedBytes
		}
		for _, k := range r.keys {
			cost += k.cost
		}
	}
	if cost > maxCost {
		return hint.Wrap(tooLarge("the signing keys take %d ms to verify, more than %d", cost, maxCost), tooLargeHelp)
	}
	return nil
}

// entities verifies the self-signatures of the keys. Like [openpgp.ReadKeyRing], it skips
// invalid keys, and returns an error if no key is valid. It checks ctx before each key.
func (r ring) entities(ctx context.Context) (openpgp.EntityList, error) {
	var out openpgp.EntityList
	err := errors.New("its armour holds no key")
	for _, k := range r.keys {
		if err := contextErr(ctx); err != nil {
			return nil, err
		}
		read, unread := k.entity()
		switch {
		case unread == nil:
			out = append(out, read...)
		case isSkipped(unread):
			err = unread
		default:
			return nil, unreadable(unread)
		}
	}
	if len(out) == 0 {
		return nil, unreadable(err)
	}
	return out, nil
}

func (k unverifiedKey) entity() (read openpgp.EntityList, err error) {
	defer recoverPanic(&err)
	return openpgp.ReadKeyRing(bytes.NewReader(k.packets))
}

// isSkipped reports whether the library skips a key with the given error and continues with
// the next key.
func isSkipped(err error) bool {
	return errors.As(err, new(pgperrors.UnsupportedError)) || errors.As(err, new(pgperrors.StructuralError))
}

// KeyIDs returns the IDs that a registry gives for armoured public keys, in upper-case
// hexadecimal. If a block has several keys, its ID is the ID of the first key.
func KeyIDs(ctx context.Context, armoured []string) ([]string, error) {
	var out []string
	err := readEach(ctx, armoured, func(_ ring, keys openpgp.EntityList) error {
		out = append(out, keys[0].PrimaryKey.KeyIdString())
		return nil
	})
	return out, err
}

// readEach verifies the self-signatures in each armoured block, and calls take with the valid
// keys of the block. It returns an error if a block is invalid.
func readEach(ctx context.Context, armoured []string, take func(ring, openpgp.EntityList) error) error {
	release, err := acquireSlot(ctx)
	if err != nil {
		return err
	}
	defer release()
	rings, err := readRings(ctx, armoured)
	if err == nil {
		err = checkCost(rings, nil)
	}
	if err != nil {
		return err
	}
	for _, r := range rings {
		if r.err != nil {
			return r.err
		}
		keys, err := r.entities(ctx)
		if err == nil {
			err = take(r, keys)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Key is a public key in a key file. Its self-signatures are verified.
type Key struct {
	Fingerprint string    `json:"fingerprint"` // of the primary key, in the form of [Policy.Keys]
	UserIDs     []string  `json:"user_ids"`    // sorted; anyone can put any user ID into a key
	Created     time.Time `json:"created"`
	Expires     time.Time `json:"expires,omitzero"` // zero means never
	Revoked     bool      `json:"revoked"`
}

var endOfKeyBlock = "-----END " + openpgp.PublicKeyType + "-----"

// ReadKeys reads a key file, which contains blocks of public keys in ASCII armour. It
// returns an error if a key is invalid or private, if there is no key, or if the keys
// exceed the limits for the keys of a release.
func ReadKeys(ctx context.Context, file string) ([]Key, error) {
	file = strings.TrimPrefix(file, "\ufeff") // the byte order mark of editors on Windows
	blocks := strings.SplitAfter(file, endOfKeyBlock)
	if tail := len(blocks) - 1; tail > 0 && strings.TrimSpace(blocks[tail]) == "" {
		blocks = blocks[:tail]
	}
	var out []Key
	err := readEach(ctx, blocks, func(r ring, keys openpgp.EntityList) error {
		if len(keys) < len(r.keys) {
			return hint.New("a key in the file is invalid", publicKeyHelp)
		}
		for _, k := range keys {
			out = append(out, keyOf(k))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func keyOf(e *openpgp.Entity) Key {
	k := Key{Fingerprint: fingerprintOf(e.PrimaryKey), Created: e.PrimaryKey.CreationTime.UTC(), UserIDs: []string{}, Revoked: e.Revoked(time.Now())}
	for id := range e.Identities {
		k.UserIDs = append(k.UserIDs, id)
	}
	slices.Sort(k.UserIDs)
	if s, _ := e.PrimarySelfSignature(); s != nil && s.KeyLifetimeSecs != nil && *s.KeyLifetimeSecs > 0 {
		k.Expires = k.Created.Add(time.Duration(*s.KeyLifetimeSecs) * time.Second)
	}
	return k
}

// slots limits the number of releases that the process verifies concurrently, so that half
// of the CPUs remain free for other requests.
var slots = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// acquireSlot waits for a slot. It fails if ctx ends first. The caller must call release.
func acquireSlot(ctx context.Context) (release func(), err error) {
	if err := contextErr(ctx); err != nil {
		return nil, err
	}
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, contextErr(ctx)
	}
}

// contextErr returns an error that wraps the error of ctx if ctx has ended.
func contextErr(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("verify signatures: %w", err)
	}
	return nil
}
