package approval

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/fulcio/certificate"
	"google.golang.org/protobuf/encoding/protojson"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"

	"github.com/ocibridge/ocibridge/internal/base/document"
)

// candidate is a signature whose documents were decoded within their limits. Nothing of it is verified.
type candidate struct {
	manifest digest.Digest
	bundle   *protobundle.Bundle
	// payload is the document that simple signing signs. It is nil for other signatures.
	payload []byte
	// predicate is the predicate type of an attestation, or "" for a signature by cosign.
	predicate string
	// digests are the digests that the signature is over.
	digests []digest.Digest
	// leaf is the signer's certificate, and summary its identity. leaf is nil if the signer has only a key.
	leaf    *x509.Certificate
	summary certificate.Summary
	keyHint string // names the key, if leaf is nil
}

// The limits of the parts of a signature.
var (
	bundleLimits    = document.Limits{Bytes: MaxBundleBytes, Values: 5_000, Elements: 1_000}
	statementLimits = document.Limits{Bytes: MaxBundleBytes, Values: 20_000, Elements: 5_000}
	payloadLimits   = document.Limits{Bytes: MaxPayloadBytes, Values: 500, Elements: 200}
	// entryLimits limits an entry of a transparency log. Entries have about 4 KiB, most of which is the certificate.
	entryLimits = document.Limits{Bytes: 16 << 10, Values: 200, Elements: 50}
)

const (
	maxCertificateBytes = 16 << 10 // of one certificate
	maxSignatureBytes   = 4 << 10  // of the signature itself: an RSA signature has as many bits as its key
	maxTimestampBytes   = 16 << 10 // of one timestamp, which contains certificates
	maxName             = 512      // of a predicate type, an issuer and an identity, in bytes
	// maxProofs is the maximum number of log entries, and of timestamps. Signers add one or two.
	maxProofs = 4
)

// errUnreadable means that a signature cannot be decoded within the limits, or has a form that no requirement accepts.
var errUnreadable = errors.New("it is no readable signature")

func unreadable(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errUnreadable, fmt.Errorf(format, args...))
}

// parse decodes a signature.
func parse(s Signature) (c *candidate, err error) {
	defer recovered(&err)
	if s.Bundle == nil {
		c, err = parsePayload(s)
	} else {
		c, err = parseBundle(s.Bundle)
	}
	if err != nil {
		return nil, err
	}
	c.manifest = s.Manifest
	if err := c.checkSizes(); err != nil {
		return nil, err
	}
	return c, c.readSigner()
}

// recovered converts a panic of a library that decodes or verifies other parties' bytes to an error. Without it, a signature could
// end the process.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = unreadable("a decoder failed: %.200v", r)
	}
}

// parseBundle decodes a Sigstore bundle.
func parseBundle(data []byte) (*candidate, error) {
	if err := bundleLimits.Check(data); err != nil {
		return nil, unreadable("%w", err)
	}
	c := &candidate{bundle: new(protobundle.Bundle)}
	if err := protojson.Unmarshal(data, c.bundle); err != nil {
		return nil, unreadable("%.200v", err)
	}
	switch content := c.bundle.Content.(type) {
	case *protobundle.Bundle_DsseEnvelope:
		return c, c.readStatement(content.DsseEnvelope.GetPayload())
	case *protobundle.Bundle_MessageSignature:
		d := content.MessageSignature.GetMessageDigest()
		if d.GetAlgorithm() != protocommon.HashAlgorithm_SHA2_256 || len(d.GetDigest()) != 32 {
			return nil, unreadable("the digest of its message is no SHA-256")
		}
		c.digests = []digest.Digest{digest.NewDigestFromBytes(digest.SHA256, d.GetDigest())}
		return c, nil
	}
	return nil, unreadable("it contains neither an envelope nor a message signature")
}

// readStatement decodes the in-toto statement in an envelope.
func (c *candidate) readStatement(payload []byte) error {
	if err := statementLimits.Check(payload); err != nil {
		return unreadable("its statement: %w", err)
	}
	envelope, err := (&bundle.Bundle{Bundle: c.bundle}).Envelope()
	if err != nil {
		return unreadable("%.200v", err)
	}
	statement, err := envelope.Statement()
	if err != nil {
		return unreadable("its statement: %.200v", err)
	}
	if !slices.Contains(statementTypes, statement.GetType()) {
		return unreadable("a statement of type %.80q", statement.GetType())
	}
	if c.predicate = statement.GetPredicateType(); c.predicate == "" || len(c.predicate) > maxName {
		return unreadable("a statement with a predicate type of %d bytes", len(c.predicate))
	}
	c.predicate = normal(c.predicate)
	for _, s := range statement.GetSubject() {
		if sum := s.GetDigest()["sha256"]; sum != "" {
			c.digests = append(c.digests, digest.NewDigestFromEncoded(digest.SHA256, sum))
		}
	}
	return nil
}

// statementTypes are the types of in-toto statements.
var statementTypes = []string{"https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"}

// normal returns "" for the predicate type of cosign's signatures, and other predicate types unchanged.
func normal(predicate string) string {
	if predicate == PredicateCosign {
		return ""
	}
	return predicate
}

// checkSizes limits the parts whose decoding or verification takes time that grows faster than their size.
func (c *candidate) checkSizes() error {
	material := c.bundle.GetVerificationMaterial()
	entries, timestamps := material.GetTlogEntries(), material.GetTimestampVerificationData().GetRfc3161Timestamps()
	if len(entries) > maxProofs || len(timestamps) > maxProofs {
		return unreadable("it has %d log entries and %d timestamps, more than %d", len(entries), len(timestamps), maxProofs)
	}
	for _, e := range entries {
		if err := entryLimits.Check(e.GetCanonicalizedBody()); err != nil {
			return unreadable("a log entry: %w", err)
		}
	}
	for _, t := range timestamps {
		if n := len(t.GetSignedTimestamp()); n > maxTimestampBytes {
			return unreadable("a timestamp of %d bytes, more than %d", n, maxTimestampBytes)
		}
	}
	signatures := [][]byte{c.bundle.GetMessageSignature().GetSignature()}
	for _, s := range c.bundle.GetDsseEnvelope().GetSignatures() {
		signatures = append(signatures, s.GetSig())
	}
	for _, s := range signatures {
		if len(s) > maxSignatureBytes {
			return unreadable("a signature of %d bytes, more than %d", len(s), maxSignatureBytes)
		}
	}
	return nil
}

// readSigner reads the certificate or the hint of the key.
func (c *candidate) readSigner() error {
	material := c.bundle.GetVerificationMaterial()
	der := material.GetCertificate().GetRawBytes()
	if chain := material.GetX509CertificateChain().GetCertificates(); der == nil && len(chain) > 0 {
		der = chain[0].GetRawBytes()
	}
	switch {
	case der == nil && material.GetPublicKey() == nil:
		return unreadable("it names neither a key nor a certificate")
	case der == nil:
		c.keyHint = material.GetPublicKey().GetHint()
		return nil
	case len(der) > maxCertificateBytes:
		return unreadable("a certificate of %d bytes, more than %d", len(der), maxCertificateBytes)
	}
	var err error
	if c.leaf, err = x509.ParseCertificate(der); err != nil {
		return unreadable("its certificate: %.200v", err)
	}
	if _, err := hashesOf(c.leaf.PublicKey); err != nil {
		return unreadable("its certificate: %w", err)
	}
	if c.summary, err = certificate.SummarizeCertificate(c.leaf); err != nil {
		return unreadable("its certificate: %.200v", err)
	}
	if len(c.summary.Issuer) > maxName || len(c.summary.SubjectAlternativeName) > maxName {
		return unreadable("its certificate has a name of more than %d bytes", maxName)
	}
	return nil
}

// isOver reports whether the signature is over the digest.
func (c *candidate) isOver(d digest.Digest) bool { return slices.Contains(c.digests, d) }

// signer returns what the signature says about its signer.
func (c *candidate) signer() Signer {
	if c.leaf != nil {
		return Signer{Issuer: c.summary.Issuer, Identity: c.summary.SubjectAlternativeName, Predicate: c.predicate}
	}
	return Signer{Key: fingerprintOf(c.keyHint), Predicate: c.predicate}
}
