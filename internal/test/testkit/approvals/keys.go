package approvals

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"

	"github.com/opencontainers/go-digest"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/sign"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// The kinds of keys.
const (
	P256    = protocommon.PublicKeyDetails_PKIX_ECDSA_P256_SHA_256
	P384    = protocommon.PublicKeyDetails_PKIX_ECDSA_P384_SHA_384
	P521    = protocommon.PublicKeyDetails_PKIX_ECDSA_P521_SHA_512
	Ed25519 = protocommon.PublicKeyDetails_PKIX_ED25519
	RSA2048 = protocommon.PublicKeyDetails_PKIX_RSA_PKCS1V15_2048_SHA256
)

// Key signs.
type Key struct {
	tb   testkit.TB
	pair *sign.EphemeralKeypair
}

// NewKey makes a key.
func NewKey(tb testkit.TB, kind protocommon.PublicKeyDetails) *Key {
	tb.Helper()
	pair, err := sign.NewEphemeralKeypair(&sign.EphemeralKeypairOptions{Algorithm: kind})
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return &Key{tb, pair}
}

// PEM returns the public key.
func (k *Key) PEM() []byte {
	k.tb.Helper()
	text, err := k.pair.GetPublicKeyPem()
	if err != nil {
		k.tb.Fatalf("%v", err)
	}
	return []byte(text)
}

func (k *Key) public() crypto.PublicKey { return k.pair.GetPublicKey() }

const payloadType = "application/vnd.in-toto+json"

// attest returns a bundle with a signed statement.
func (k *Key) attest(statement []byte) *protobundle.Bundle {
	k.tb.Helper()
	out, err := sign.Bundle(&sign.DSSEData{Data: statement, PayloadType: payloadType}, k.pair, sign.BundleOptions{})
	if err != nil {
		k.tb.Fatalf("sign: %v", err)
	}
	return out
}

// Attest returns a bundle with a signed statement.
func (k *Key) Attest(statement []byte) []byte {
	k.tb.Helper()
	return encode(k.tb, k.attest(statement))
}

// Message returns a bundle with a message signature over a document.
func (k *Key) Message(document []byte) []byte {
	k.tb.Helper()
	out, err := sign.Bundle(&sign.PlainData{Data: document}, k.pair, sign.BundleOptions{})
	if err != nil {
		k.tb.Fatalf("sign: %v", err)
	}
	return encode(k.tb, out)
}

// Simple returns the annotations of a layer with a simple signing payload.
func (k *Key) Simple(payload []byte) map[string]string {
	k.tb.Helper()
	sig, _, err := k.pair.SignData(context.Background(), payload)
	if err != nil {
		k.tb.Fatalf("sign: %v", err)
	}
	return map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(sig)}
}

// The predicate types of the statements.
const (
	CosignSign = "https://sigstore.dev/cosign/sign/v1"
	Provenance = "https://slsa.dev/provenance/v1"
)

// Statement returns an in-toto statement about a manifest.
func Statement(tb testkit.TB, d digest.Digest, predicate string) []byte {
	tb.Helper()
	return encodeJSON(tb, map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "subject": []any{map[string]any{"digest": map[string]string{"sha256": d.Encoded()}}},
		"predicateType": predicate, "predicate": map[string]any{},
	})
}

// Payload returns the payload of a simple signing.
func Payload(tb testkit.TB, d digest.Digest) []byte {
	tb.Helper()
	return encodeJSON(tb, map[string]any{"critical": map[string]any{
		"identity": map[string]string{"docker-reference": "registry.example/a/b"}, "image": map[string]string{"docker-manifest-digest": d.String()}, "type": "cosign container image signature",
	}, "optional": nil})
}

func encode(tb testkit.TB, m proto.Message) []byte {
	tb.Helper()
	data, err := protojson.Marshal(m)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return data
}

func encodeJSON(tb testkit.TB, v any) []byte {
	tb.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return data
}

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func chainOf(authority root.CertificateAuthority) []*x509.Certificate {
	fulcio := authority.(*root.FulcioCertificateAuthority)
	return append(fulcio.Intermediates, fulcio.Root)
}

type keyKind = protocommon.PublicKeyDetails

// Hinted returns the bundle with the hint of another key.
func Hinted(tb testkit.TB, bundle []byte, k *Key) []byte {
	tb.Helper()
	var b protobundle.Bundle
	if err := protojson.Unmarshal(bundle, &b); err != nil {
		tb.Fatalf("%v", err)
	}
	b.GetVerificationMaterial().GetPublicKey().Hint = string(k.pair.GetHint())
	return encode(tb, &b)
}

func inBase64(data []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(data)) }
