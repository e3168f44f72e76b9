package approval

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// TrustedRoot is a trusted_root.json file: the certificate authorities, timestamp authorities and logs that identities depend on.
type TrustedRoot struct {
	root   *root.TrustedRoot
	digest digest.Digest
	// options are the proofs that a signature with a certificate needs: see [ParseTrustedRoot].
	options []verify.VerifierOption
	proof   string
}

// MaxRootBytes is the maximum size of a trusted root in bytes. The trusted root of Sigstore's public instance has about 7 KiB.
const MaxRootBytes = 1 << 20

var rootLimits = document.Limits{Bytes: MaxRootBytes, Values: 20_000, Elements: 1_000}

// ParseTrustedRoot parses a trusted_root.json file, as "cosign trusted-root create", "gh attestation trusted-root" and Sigstore's
// TUF repositories provide it. The file must name a certificate authority. The other authorities in it determine which proofs
// each signature needs:
//
//   - Transparency logs: the signature must be in a log of the file. The time of the signature is the log's time, or the time of
//     a timestamp authority in the file.
//   - Timestamp authorities, but no transparency logs: a timestamp authority of the file must state the time.
//   - Neither: the certificate must be valid now, because nothing proves an earlier time. This is for certificate authorities
//     whose certificates are valid for longer than a version is needed.
//   - Logs of certificates: the certificate must be in such a log.
func ParseTrustedRoot(data []byte) (out *TrustedRoot, err error) {
	if err := rootLimits.Check(data); err != nil {
		return nil, err
	}
	if err := notRoot(data); err != nil {
		return nil, err
	}
	parsed, err := root.NewTrustedRootFromJSON(data)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("it is no trusted root: %s", hint.OneLine(hint.Brief(err).Error())), helpRoot)
	}
	if len(parsed.FulcioCertificateAuthorities()) == 0 {
		return nil, hint.New("the trusted root names no certificate authority, so that no signer's certificate could be verified",
			"write the file again with the certificates of the authority (Fulcio) that issues your signers' certificates; a signature by a key needs no trusted root, but public_key")
	}
	out = &TrustedRoot{root: parsed, digest: digest.FromBytes(data)}
	switch {
	case len(parsed.RekorLogs()) > 0:
		out.options = append(out.options, verify.WithTransparencyLog(1), verify.WithObserverTimestamps(1))
		out.proof = "an entry in a transparency log of the trusted root"
	case len(parsed.TimestampingAuthorities()) > 0:
		out.options = append(out.options, verify.WithSignedTimestamps(1))
		out.proof = "a timestamp by an authority of the trusted root"
	default:
		out.options = append(out.options, verify.WithCurrentTime())
	}
	if len(parsed.CTLogs()) > 0 {
		out.options = append(out.options, verify.WithSignedCertificateTimestamps(1))
	}
	return out, nil
}

const helpRoot = "'cosign trusted-root create' and 'gh attestation trusted-root' write a trusted root"

// notRoot returns an error for files that are often given in place of a trusted root.
func notRoot(data []byte) error {
	data = bytes.TrimSpace(data)
	block, _ := pem.Decode(data)
	switch {
	case len(data) == 0:
		return hint.New("it is empty", helpRoot)
	case block != nil && block.Type == "PUBLIC KEY":
		return hint.New("it is a public key, and no trusted root", "give a public key as public_key, in a require block without issuer, identity and trusted_root")
	case block != nil:
		return hint.New(fmt.Sprintf("it is a PEM block of type %.80q, and no trusted root", block.Type), "a trusted root is JSON: 'cosign trusted-root create' writes one with the certificates of your authorities")
	}
	lines := json.NewDecoder(bytes.NewReader(data))
	var first json.RawMessage
	if lines.Decode(&first) == nil && lines.More() {
		return hint.New("it has more than one JSON document", "'gh attestation trusted-root' writes one trusted root a line: keep the line of the authority that your signers use, or write a require block for each")
	}
	return nil
}

// CanIssue reports whether an authority of the trusted root may issue certificates at a time.
func (t *TrustedRoot) CanIssue(at time.Time) bool {
	return slices.ContainsFunc(t.root.FulcioCertificateAuthorities(), func(a root.CertificateAuthority) bool {
		f, ok := a.(*root.FulcioCertificateAuthority)
		return ok && !at.Before(f.ValidityPeriodStart) && (f.ValidityPeriodEnd.IsZero() || !at.After(f.ValidityPeriodEnd)) &&
			f.Root != nil && !at.Before(f.Root.NotBefore) && !at.After(f.Root.NotAfter)
	})
}

// Digest returns the digest of the file.
func (t *TrustedRoot) Digest() digest.Digest { return t.digest }

// Proof says in words what proves the time of a signature, or is "" if the certificate must be valid now.
func (t *TrustedRoot) Proof() string { return t.proof }
