// Package signing makes the signatures that approve versions, in the format of "cosign sign --key" of cosign 3: a Sigstore
// bundle whose DSSE envelope has an in-toto statement about a digest. Nothing is logged in a transparency log, and no
// timestamp authority is asked.
//
// Other programs may import this package. Until version 1.0, a change that breaks them needs a new minor version.
//
// It has no cryptography of its own, and does no I/O.
package signing

import (
	"bytes"
	"context"
	"crypto"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// MediaType is the media type of the bundles that [Key.Sign] returns.
const MediaType = "application/vnd.dev.sigstore.bundle.v0.3+json"

// MaxKeyBytes is the maximum size in bytes of a private key in PEM format.
const MaxKeyBytes = 64 << 10

// The types of the in-toto statement and of its envelope.
const (
	statementType = "https://in-toto.io/Statement/v1"
	payloadType   = "application/vnd.in-toto+json"
)

// Key is a private key that approves versions.
type Key struct {
	signer signature.Signer
	public *approval.PublicKey
	policy *approval.Policy
}

// ParseKey parses a private key in PEM format: ECDSA, Ed25519 or RSA, in PKCS #8, SEC 1 or PKCS #1, or as "cosign
// generate-key-pair" encrypts it. password returns the password; it is called only for an encrypted key.
func ParseKey(text []byte, password func() ([]byte, error)) (*Key, error) {
	if len(text) > MaxKeyBytes {
		return nil, fmt.Errorf("a private key of more than %d bytes", MaxKeyBytes)
	}
	block, rest := pem.Decode(text)
	if block != nil && block.Type == "EC PARAMETERS" { // openssl ecparam -genkey writes the name of the curve before the key
		text = rest
		block, _ = pem.Decode(text)
	}
	switch {
	case bytes.Contains(text, []byte("-----BEGIN PGP ")):
		return nil, hint.New("an OpenPGP key, and approvals are no OpenPGP signatures", `name another private key: "cosign generate-key-pair" writes one to cosign.key`)
	case block == nil:
		return nil, hint.New("no private key in PEM format", `"cosign generate-key-pair" and "openssl genpkey" write such a key`)
	case strings.HasSuffix(block.Type, "PUBLIC KEY"), block.Type == "CERTIFICATE":
		return nil, hint.New(fmt.Sprintf("a %s, and no private key", strings.ToLower(block.Type)), "name the private key: the public key belongs into a require block")
	case block.Headers["Proc-Type"] != "", block.Type == "ENCRYPTED PRIVATE KEY":
		return nil, hint.New("a private key that OpenSSL has encrypted", `only the encryption of cosign can be read: "cosign import-key-pair --key FILE" converts the key`)
	}
	private, err := cryptoutils.UnmarshalPEMToPrivateKey(text, func(bool) ([]byte, error) { return password() })
	if err != nil {
		if strings.HasPrefix(block.Type, "ENCRYPTED ") {
			return nil, hint.Wrap(fmt.Errorf("the private key cannot be decrypted: %w", err), "set "+passwordVariable+" to the password of the key")
		}
		return nil, hint.Wrap(fmt.Errorf("the private key cannot be read: %w", err), helpKinds)
	}
	return newKey(private)
}

// passwordVariable is the variable that has the password of an encrypted key, for cosign and for commands here.
const passwordVariable = "COSIGN_PASSWORD"

// PasswordFrom returns a function for [ParseKey] that takes the password from the variable COSIGN_PASSWORD. lookup is [os.LookupEnv].
// ask asks for the password if the variable is not set. If ask is nil, the function returns an error.
func PasswordFrom(lookup func(string) (string, bool), ask func() ([]byte, error)) func() ([]byte, error) {
	return func() ([]byte, error) {
		password, ok := lookup(passwordVariable)
		switch {
		case ok:
			return []byte(password), nil
		case ask == nil:
			return nil, errors.New("no password is given")
		}
		return ask()
	}
}

const helpKinds = `use ECDSA with P-256, P-384 or P-521, Ed25519, or RSA with 2048 to 8192 bits; "cosign generate-key-pair" makes such a key`

func newKey(private crypto.PrivateKey) (*Key, error) {
	if s, ok := private.(crypto.Signer); ok {
		if _, err := approval.NewPublicKey(s.Public()); err != nil {
			return nil, hint.Wrap(fmt.Errorf("a private key that cannot be used: %w", err), helpKinds)
		}
	}
	// Without the option for Ed25519ph, Ed25519 keys sign the envelope itself, as sigstore-go and cosign expect it.
	signer, err := signature.LoadDefaultSigner(private)
	if err != nil {
		return nil, fmt.Errorf("a private key of an unknown kind: %w", err)
	}
	public, err := signer.PublicKey()
	if err != nil {
		return nil, err
	}
	k := &Key{signer: signer}
	if k.public, err = approval.NewPublicKey(public); err != nil {
		return nil, err
	}
	k.policy, err = approval.NewPolicy(approval.Requirement{Name: "the signing key", Key: k.public})
	return k, err
}

// Public returns the public key.
func (k *Key) Public() *approval.PublicKey { return k.public }

// Policy returns a policy whose only requirement is a signature by the key.
func (k *Key) Policy() *approval.Policy { return k.policy }

// statement is an in-toto statement without a predicate.
type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     struct{}  `json:"predicate"`
}

type subject struct {
	Digest map[string]string `json:"digest"`
}

// Sign signs the digest of a manifest, and returns a bundle in JSON.
func (k *Key) Sign(ctx context.Context, d digest.Digest) ([]byte, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	payload, err := json.Marshal(statement{
		Type: statementType, PredicateType: approval.PredicateCosign,
		Subject: []subject{{map[string]string{d.Algorithm().String(): d.Encoded()}}},
	})
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	sig, err := k.signer.SignMessage(bytes.NewReader(dsse.PAE(payloadType, payload)))
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", d, err)
	}
	return protojson.Marshal(&protobundle.Bundle{
		MediaType: MediaType,
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
			Payload: payload, PayloadType: payloadType, Signatures: []*protodsse.Signature{{Sig: sig}},
		}},
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content: &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{Hint: k.public.Hint()}},
		},
	})
}
