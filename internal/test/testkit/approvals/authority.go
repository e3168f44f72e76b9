// Package approvals makes signatures for tests: with keys, with certificates of a test authority, and with the real cosign. It
// also has the cases of the matrix of approvals, which every way to a version must decide in the same way.
package approvals

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"math/big"
	"net/url"
	"strings"
	"time"

	"github.com/digitorus/timestamp"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	prototrustroot "github.com/sigstore/protobuf-specs/gen/pb-go/trustroot/v1"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// Authority is an instance of Sigstore: an authority for certificates, a transparency log, and an authority for timestamps. All
// of them exist since a day before they were made, so that they can sign in the past.
type Authority struct {
	tb        testkit.TB
	log       *ca.VirtualSigstore // only its transparency log is used
	logID     []byte
	authority *issuer
	tsa       *issuer
	tsaLeaf   *issuer
	since     time.Time
}

// issuer is a certificate with its key.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority with new keys.
func NewAuthority(tb testkit.TB) *Authority {
	tb.Helper()
	a := &Authority{tb: tb, since: time.Now().Add(-24 * time.Hour)}
	var err error
	a.log, err = ca.NewVirtualSigstore()
	a.check(err)
	id, err := a.log.RekorLogID()
	a.check(err)
	a.logID, err = hex.DecodeString(id)
	a.check(err)
	a.authority = a.issue("authority", nil, func(c *x509.Certificate) {})
	a.tsa = a.issue("timestamp authority", nil, func(c *x509.Certificate) {})
	usage, err := asn1.Marshal([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 8}})
	a.check(err)
	a.tsaLeaf = a.issue("timestamps", a.tsa, func(c *x509.Certificate) {
		c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature
		c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: true, Value: usage}}
	})
	return a
}

func (a *Authority) check(err error) {
	a.tb.Helper()
	if err != nil {
		a.tb.Fatalf("test authority: %v", err)
	}
}

// issue makes a certificate, which is its own issuer if parent is nil.
func (a *Authority) issue(name string, parent *issuer, change func(*x509.Certificate)) *issuer {
	a.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: a.since, NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	change(template)
	out := &issuer{key: key}
	if parent == nil {
		parent = &issuer{template, key}
	}
	out.cert = a.certificate(template, parent, key.Public())
	return out
}

func (a *Authority) certificate(template *x509.Certificate, parent *issuer, key crypto.PublicKey) *x509.Certificate {
	a.tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, key, parent.key)
	a.check(err)
	cert, err := x509.ParseCertificate(der)
	a.check(err)
	return cert
}

// Root says which authorities a trusted root names beside the authority for certificates.
type Root struct {
	NoLog, NoTimestamps bool
	// CertificateLog demands that certificates are in a log. The authority's certificates are in none.
	CertificateLog bool
}

// TrustedRoot returns a trusted_root.json file.
func (a *Authority) TrustedRoot(r Root) []byte {
	a.tb.Helper()
	chain := func(certs ...*x509.Certificate) *prototrustroot.CertificateAuthority {
		out := &prototrustroot.CertificateAuthority{
			Uri: "https://authority.example", CertChain: &protocommon.X509CertificateChain{}, ValidFor: &protocommon.TimeRange{Start: timestamppb.New(a.since)},
		}
		for _, c := range certs {
			out.CertChain.Certificates = append(out.CertChain.Certificates, &protocommon.X509Certificate{RawBytes: c.Raw})
		}
		return out
	}
	root := &prototrustroot.TrustedRoot{
		MediaType:              "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
		CertificateAuthorities: []*prototrustroot.CertificateAuthority{chain(a.authority.cert)},
	}
	if !r.NoLog {
		for _, l := range a.log.RekorLogs() {
			root.Tlogs = append(root.Tlogs, a.logInstance(l.PublicKey, a.logID))
		}
	}
	if !r.NoTimestamps {
		root.TimestampAuthorities = append(root.TimestampAuthorities, chain(a.tsaLeaf.cert, a.tsa.cert))
	}
	if r.CertificateLog {
		for id, l := range a.log.CTLogs() {
			raw, err := hex.DecodeString(id)
			a.check(err)
			root.Ctlogs = append(root.Ctlogs, a.logInstance(l.PublicKey, raw))
		}
	}
	data, err := protojson.Marshal(root)
	a.check(err)
	return data
}

func (a *Authority) logInstance(key crypto.PublicKey, id []byte) *prototrustroot.TransparencyLogInstance {
	a.tb.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	a.check(err)
	return &prototrustroot.TransparencyLogInstance{
		BaseUrl: "https://rekor.localhost", HashAlgorithm: protocommon.HashAlgorithm_SHA2_256, LogId: &protocommon.LogId{KeyId: id},
		PublicKey: &protocommon.PublicKey{
			RawBytes: der, KeyDetails: protocommon.PublicKeyDetails_PKIX_ECDSA_P256_SHA_256, ValidFor: &protocommon.TimeRange{Start: timestamppb.New(a.since)},
		},
	}
}

// Identity is a signer with a certificate.
type Identity struct {
	Issuer, Name string
	// Expired means that the certificate was valid for ten minutes, an hour ago. The signature is from that time.
	Expired bool
	// Log and Timestamp add an entry in the transparency log and a timestamp.
	Log, Timestamp bool
}

// leaf returns the certificate and the time of the signature.
func (a *Authority) leaf(i Identity, key crypto.PublicKey) (*x509.Certificate, time.Time) {
	a.tb.Helper()
	at := time.Now().Add(-time.Minute)
	if i.Expired {
		at = at.Add(-time.Hour)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: at.Add(-time.Minute), NotAfter: at.Add(9 * time.Minute),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}, Value: []byte(i.Issuer)}},
	}
	if strings.Contains(i.Name, "://") {
		name, err := url.Parse(i.Name)
		a.check(err)
		template.URIs = []*url.URL{name}
	} else {
		template.EmailAddresses = []string{i.Name}
	}
	return a.certificate(template, a.authority, key), at
}

// Attest returns a bundle with a statement that the identity signed.
func (a *Authority) Attest(i Identity, statement []byte) []byte {
	a.tb.Helper()
	k := NewKey(a.tb, P256)
	out := k.attest(statement)
	cert, at := a.leaf(i, k.public())
	out.VerificationMaterial = &protobundle.VerificationMaterial{
		Content: &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: cert.Raw}},
	}
	sig := out.GetDsseEnvelope().GetSignatures()[0].GetSig()
	if i.Log {
		envelope := &dsse.Envelope{
			PayloadType: payloadType, Payload: base64.StdEncoding.EncodeToString(statement), Signatures: []dsse.Signature{{Sig: base64.StdEncoding.EncodeToString(sig)}},
		}
		entry, err := a.log.GenerateTlogEntry(cert, envelope, sig, at.Unix(), true)
		a.check(err)
		out.VerificationMaterial.TlogEntries = []*protorekor.TransparencyLogEntry{a.complete(entry.TransparencyLogEntry(), "dsse")}
	}
	if i.Timestamp {
		out.VerificationMaterial.TimestampVerificationData = &protobundle.TimestampVerificationData{
			Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: a.timestamp(sig, at)}},
		}
	}
	return encode(a.tb, out)
}

// complete adds the kind of a log entry, and the promise of the log.
func (a *Authority) complete(entry *protorekor.TransparencyLogEntry, kind string) *protorekor.TransparencyLogEntry {
	a.tb.Helper()
	promise, err := a.log.RekorSignPayload(tlog.RekorPayload{
		Body: base64.StdEncoding.EncodeToString(entry.CanonicalizedBody), IntegratedTime: entry.IntegratedTime, LogIndex: entry.LogIndex, LogID: hex.EncodeToString(a.logID),
	})
	a.check(err)
	entry.KindVersion = &protorekor.KindVersion{Kind: kind, Version: "0.0.1"}
	entry.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: promise}
	return entry
}

// timestamp returns a timestamp of a signature.
func (a *Authority) timestamp(sig []byte, at time.Time) []byte {
	a.tb.Helper()
	sum := sha256.Sum256(sig)
	out, err := (&timestamp.Timestamp{
		HashAlgorithm: crypto.SHA256, HashedMessage: sum[:], Time: at, Policy: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 2}, AddTSACertificate: true,
	}).CreateResponseWithOpts(a.tsaLeaf.cert, a.tsaLeaf.key, crypto.SHA256)
	a.check(err)
	return out
}

// SimpleRoot returns a trusted root whose certificates sign with [Authority.Simple].
func (a *Authority) SimpleRoot() []byte {
	a.tb.Helper()
	root := &prototrustroot.TrustedRoot{}
	a.check(protojson.Unmarshal(a.TrustedRoot(Root{NoTimestamps: true}), root))
	chain := &protocommon.X509CertificateChain{}
	fulcio := a.log.FulcioCertificateAuthorities()
	for _, c := range chainOf(fulcio[0]) {
		chain.Certificates = append(chain.Certificates, &protocommon.X509Certificate{RawBytes: c.Raw})
	}
	root.CertificateAuthorities[0].CertChain = chain
	data, err := protojson.Marshal(root)
	a.check(err)
	return data
}

// Simple returns a simple signing by an email address: the payload and the annotations of its layer.
func (a *Authority) Simple(issuer, email string, payload []byte) map[string]string {
	a.tb.Helper()
	entity, err := a.log.SignAtTime(email, issuer, payload, time.Now().Add(time.Second))
	a.check(err)
	content, err := entity.SignatureContent()
	a.check(err)
	material, err := entity.VerificationContent()
	a.check(err)
	entries, err := entity.TlogEntries()
	a.check(err)
	entry := a.complete(entries[0].TransparencyLogEntry(), "hashedrekord")
	return map[string]string{
		"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(content.Signature()),
		"dev.sigstore.cosign/certificate":    pemOf("CERTIFICATE", material.Certificate().Raw),
		"dev.sigstore.cosign/bundle": string(encodeJSON(a.tb, map[string]any{
			"SignedEntryTimestamp": entry.InclusionPromise.SignedEntryTimestamp,
			"Payload": map[string]any{
				"body": entry.CanonicalizedBody, "integratedTime": entry.IntegratedTime, "logIndex": entry.LogIndex, "logID": hex.EncodeToString(a.logID),
			},
		})),
	}
}

// Swapped returns the bundle with the log entries and timestamps of another bundle.
func Swapped(tb testkit.TB, bundle, other []byte) []byte {
	tb.Helper()
	var a, b protobundle.Bundle
	for data, to := range map[*protobundle.Bundle][]byte{&a: bundle, &b: other} {
		if err := protojson.Unmarshal(to, data); err != nil {
			tb.Fatalf("%v", err)
		}
	}
	a.VerificationMaterial.TlogEntries = b.VerificationMaterial.TlogEntries
	a.VerificationMaterial.TimestampVerificationData = b.VerificationMaterial.TimestampVerificationData
	return encode(tb, &a)
}

// Spoilt returns the bundle with one changed byte in its signature.
func Spoilt(tb testkit.TB, bundle []byte) []byte {
	tb.Helper()
	var b protobundle.Bundle
	if err := protojson.Unmarshal(bundle, &b); err != nil {
		tb.Fatalf("%v", err)
	}
	sig := b.GetDsseEnvelope().GetSignatures()[0]
	sig.Sig = bytes.Clone(sig.Sig)
	sig.Sig[len(sig.Sig)-1] ^= 1
	return encode(tb, &b)
}

// Late returns a bundle with a timestamp that is later than the expired certificate.
func (a *Authority) Late(i Identity, statement []byte) []byte {
	a.tb.Helper()
	var b protobundle.Bundle
	a.check(protojson.Unmarshal(a.Attest(i, statement), &b))
	b.VerificationMaterial.TimestampVerificationData = &protobundle.TimestampVerificationData{Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{
		{SignedTimestamp: a.timestamp(b.GetDsseEnvelope().GetSignatures()[0].GetSig(), time.Now().Add(-time.Minute))},
	}}
	return encode(a.tb, &b)
}

// MixedRoot returns a trusted root with the certificates of one authority and the log of another.
func MixedRoot(tb testkit.TB, certificates, log *Authority) []byte {
	tb.Helper()
	var a, b prototrustroot.TrustedRoot
	for data, to := range map[*prototrustroot.TrustedRoot][]byte{&a: certificates.TrustedRoot(Root{NoTimestamps: true}), &b: log.TrustedRoot(Root{})} {
		if err := protojson.Unmarshal(to, data); err != nil {
			tb.Fatalf("%v", err)
		}
	}
	a.Tlogs = b.Tlogs
	return encode(tb, &a)
}
