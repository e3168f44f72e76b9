package approval

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"

	"github.com/opencontainers/go-digest"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
)

// The annotations of a layer with a simple signing payload.
const (
	annotationSignature   = "dev.cosignproject.cosign/signature"                   // base64
	annotationCertificate = "dev.sigstore.cosign/certificate"                      // PEM
	annotationEntry       = "dev.sigstore.cosign/bundle"                           // JSON: simpleEntry
	annotationTimestamp   = "dev.sigstore.cosign/rfc3161timestamp"                 // JSON: simpleTimestamp
	simpleType            = "cosign container image signature"                     // the type in the payload
	simpleBundleType      = "application/vnd.dev.sigstore.bundle+json;version=0.1" // the bundle to which a simple signing is converted
)

// simplePayload is the payload of simple signing.
type simplePayload struct {
	Critical struct {
		Image struct {
			Digest digest.Digest `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
}

// simpleEntry is the entry of a transparency log in an annotation.
type simpleEntry struct {
	SignedEntryTimestamp []byte
	Payload              struct {
		Body           []byte `json:"body"`
		IntegratedTime int64  `json:"integratedTime"`
		LogIndex       int64  `json:"logIndex"`
		LogID          string `json:"logID"`
	}
}

// simpleTimestamp is the timestamp in an annotation.
type simpleTimestamp struct {
	SignedRFC3161Timestamp []byte
}

// parsePayload converts a simple signing to a bundle with a message signature over the payload.
func parsePayload(s Signature) (*candidate, error) {
	var payload simplePayload
	if err := payloadLimits.Unmarshal(s.Payload, &payload); err != nil {
		return nil, unreadable("its payload: %w", err)
	}
	if payload.Critical.Type != simpleType {
		return nil, unreadable("a payload of type %.80q", payload.Critical.Type)
	}
	signature, err := base64.StdEncoding.DecodeString(s.Annotations[annotationSignature])
	if err != nil || len(signature) == 0 {
		return nil, unreadable("its layer has no annotation %s", annotationSignature)
	}
	sum := sha256.Sum256(s.Payload)
	material, err := simpleMaterial(s.Annotations)
	if err != nil {
		return nil, err
	}
	return &candidate{
		payload: s.Payload,
		digests: []digest.Digest{payload.Critical.Image.Digest},
		bundle: &protobundle.Bundle{
			MediaType:            simpleBundleType,
			VerificationMaterial: material,
			Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
				MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: sum[:]},
				Signature:     signature,
			}},
		},
	}, nil
}

// simpleMaterial converts the annotations about the signer and the time of the signature.
func simpleMaterial(annotations map[string]string) (*protobundle.VerificationMaterial, error) {
	out := &protobundle.VerificationMaterial{}
	if text := annotations[annotationCertificate]; text == "" {
		out.Content = &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{}}
	} else {
		block, _ := pem.Decode([]byte(text))
		if block == nil {
			return nil, unreadable("its certificate is not in PEM")
		}
		out.Content = &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: block.Bytes}}
	}
	if text := annotations[annotationEntry]; text != "" {
		entry, err := parseEntry([]byte(text))
		if err != nil {
			return nil, unreadable("its log entry: %w", err)
		}
		out.TlogEntries = []*protorekor.TransparencyLogEntry{entry}
	}
	if text := annotations[annotationTimestamp]; text != "" {
		var timestamp simpleTimestamp
		if err := payloadLimits.Unmarshal([]byte(text), &timestamp); err != nil {
			return nil, unreadable("its timestamp: %w", err)
		}
		out.TimestampVerificationData = &protobundle.TimestampVerificationData{
			Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: timestamp.SignedRFC3161Timestamp}},
		}
	}
	return out, nil
}

// parseEntry converts the entry of a transparency log.
func parseEntry(data []byte) (*protorekor.TransparencyLogEntry, error) {
	var entry simpleEntry
	if err := payloadLimits.Unmarshal(data, &entry); err != nil {
		return nil, err
	}
	var kind struct {
		Kind    string `json:"kind"`
		Version string `json:"apiVersion"`
	}
	if err := entryLimits.Unmarshal(entry.Payload.Body, &kind); err != nil {
		return nil, err
	}
	log, err := hex.DecodeString(entry.Payload.LogID)
	if err != nil || len(bytes.TrimSpace(entry.SignedEntryTimestamp)) == 0 {
		return nil, errors.New("it names no log, or has no timestamp of the log")
	}
	return &protorekor.TransparencyLogEntry{
		LogIndex:          entry.Payload.LogIndex,
		LogId:             &protocommon.LogId{KeyId: log},
		KindVersion:       &protorekor.KindVersion{Kind: kind.Kind, Version: kind.Version},
		IntegratedTime:    entry.Payload.IntegratedTime,
		InclusionPromise:  &protorekor.InclusionPromise{SignedEntryTimestamp: entry.SignedEntryTimestamp},
		CanonicalizedBody: entry.Payload.Body,
	}, nil
}
