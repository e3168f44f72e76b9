package approvals

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Decision is what every way to a version must decide.
type Decision string

const (
	// Approved means that clients get the version.
	Approved Decision = "approved"
	// NotApproved means that they do not, because it lacks an approval.
	NotApproved Decision = "not approved"
	// Foreign means that they do not, because the content belongs to another version or address.
	Foreign Decision = "foreign"
	// Unavailable means that nothing can be decided now. Nobody may conclude that an approval is missing.
	Unavailable Decision = "unavailable"
)

// Case is a row of the matrix.
type Case struct {
	Name string
	// Module means that the case is about a module, and otherwise it is about a provider.
	Module bool
	// Cosign means that the case needs the real cosign.
	Cosign bool
	// Requires returns the require blocks. If it is nil, the block "platform team" requires the key that all cases share.
	Requires func(w *World) []Require
	// Change changes the registry, in which the version is stored and has no signatures.
	Change func(w *World)
	// Answer is what the registry answers in place of itself, after Change.
	Answer recorder.Intercept
	// Hangs means that the look-up needs a short deadline, because the registry does not answer.
	Hangs bool

	Want Decision
	// Reason is a part of the reason of the first requirement that is missing, or of the error.
	Reason string
	// Reported is the number of missing requirements that are not enforced.
	Reported int
}

// Blocks returns the require blocks of the case.
func (c Case) Blocks(w *World) []Require {
	if c.Requires == nil {
		return []Require{team(w.Key)}
	}
	return c.Requires(w)
}

// The identity of the cases.
const (
	Issuer   = "https://token.actions.githubusercontent.com"
	Workflow = "https://github.com/acme/terraform-provider-widget/.github/workflows/release.yml@refs/tags/v1.0.0"
	Pattern  = "https://github.com/acme/*/.github/workflows/release.yml@refs/tags/*"
)

func team(k *Key) Require { return Require{Name: "platform team", PublicKey: k.PEM()} }

// job requires the identity of the cases.
func job(a *Authority, r Root) Require {
	return Require{Name: "our release job", Issuer: Issuer, Identity: Pattern, TrustedRoot: a.TrustedRoot(r)}
}

// keyOf returns the requirement of a new key, and a change that signs with this key.
func withKey(kind func(w *World) *Key, sign func(w *World, k *Key)) (func(*World) []Require, func(*World)) {
	keys := map[*World]*Key{}
	key := func(w *World) *Key {
		if keys[w] == nil {
			keys[w] = kind(w)
		}
		return keys[w]
	}
	return func(w *World) []Require { return []Require{team(key(w))} }, func(w *World) { sign(w, key(w)) }
}

// attest attaches the statement of an identity of the shared authority.
func attest(i Identity, predicate string) func(*World) {
	return func(w *World) {
		Attach(w.TB, w.Repo(), w.Stored, w.Authority.Attest(i, Statement(w.TB, w.Stored.Digest, predicate)))
	}
}

// named returns the identity of the cases with another name.
func named(name string) Identity { return Identity{Issuer: Issuer, Name: name, Log: true} }

// attach attaches any bundle.
func attach(bundle func(w *World) []byte) func(*World) {
	return func(w *World) { Attach(w.TB, w.Repo(), w.Stored, bundle(w)) }
}

// signed attaches the right signature.
func signed(w *World) { w.Sign(w.Key, w.Stored) }

// Fallback stores a list of referrers under the fallback tag of the version. It gives each entry the artifact type.
func (w *World) Fallback(artifactType string, referrers ...ocispec.Descriptor) {
	w.TB.Helper()
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{}}
	for _, d := range referrers {
		index.Manifests = append(index.Manifests, ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, ArtifactType: artifactType})
	}
	data := encodeJSON(w.TB, index)
	w.put(w.Repo(), artifact.Blob{Descriptor: content.NewDescriptorFromBytes(index.MediaType, data), Data: data}, string(ociaddr.ReferrersTag(w.Stored.Digest)))
}

// listed attaches the right signature, and lists it under the fallback tag with the given artifact type.
func listed(artifactType string) func(*World) {
	return func(w *World) { w.Fallback(artifactType, w.Sign(w.Key, w.Stored)) }
}

// answers makes the registry answer requests whose path contains part.
func answers(part string, status int, body string) recorder.Intercept {
	return func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, part) {
			return false
		}
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(status)
		fmt.Fprint(rw, body)
		return true
	}
}

// typed answers with the type of a list of referrers.
type typed struct{ http.ResponseWriter }

func (w typed) WriteHeader(status int) {
	w.Header()["Content-Type"] = []string{ocispec.MediaTypeImageIndex}
	w.ResponseWriter.WriteHeader(status)
}

// refuses makes the registry refuse requests whose path contains part.
func refuses(part string, status int) recorder.Intercept {
	return answers(part, status, `{"errors":[{"code":"DENIED","message":"no"}]}`)
}

// Cases are the rows of the matrix.
func Cases() []Case {
	return slicesConcat(keyCases(), forgedCases(), identityCases(), placeCases(), listCases(), brokenCases(), moduleCases())
}

func slicesConcat(all ...[]Case) (out []Case) {
	for _, c := range all {
		out = append(out, c...)
	}
	return out
}

// keyCases are signatures with keys.
func keyCases() (out []Case) {
	for name, kind := range keyKinds {
		requires, change := withKey(func(w *World) *Key { return NewKey(w.TB, kind) }, func(w *World, k *Key) { w.Sign(k, w.Stored) })
		out = append(out, Case{Name: "key " + name, Requires: requires, Change: change, Want: Approved})
		requires, change = withKey(func(w *World) *Key { return NewKey(w.TB, kind) }, func(w *World, k *Key) {
			payload := Payload(w.TB, w.Stored.Digest)
			Tag(w.TB, w.Repo(), w.Stored.Digest, Layer{payload, k.Simple(payload)})
		})
		out = append(out, Case{Name: "simple signing with " + name, Requires: requires, Change: change, Want: Approved})
	}
	cosignKey := func(w *World) []Require { return []Require{{Name: "platform team", PublicKey: w.Cosign().PEM()}} }
	return append(out,
		Case{Name: "message signature", Change: attach(func(w *World) []byte { return w.Key.Message(w.content(w.Stored)) }), Want: Approved},
		Case{Name: "cosign sign", Cosign: true, Requires: cosignKey, Change: func(w *World) { w.Cosign().Sign(w.Image(w.Stored.Digest)) }, Want: Approved},
		Case{Name: "cosign sign, older format", Cosign: true, Requires: cosignKey, Change: func(w *World) { w.Cosign().SignSimple(w.Image(w.Stored.Digest)) }, Want: Approved},
		Case{
			Name: "cosign attest", Cosign: true, Want: Approved,
			Requires: func(w *World) []Require { r := cosignKey(w); r[0].Predicate = Provenance; return r },
			Change:   func(w *World) { w.Cosign().Attest(w.Image(w.Stored.Digest)) },
		},
		Case{Name: "cosign attest where a signature is required", Cosign: true, Requires: cosignKey, Change: func(w *World) { w.Cosign().Attest(w.Image(w.Stored.Digest)) }, Want: NotApproved, Reason: "its signature is " + Provenance},
		Case{Name: "cosign sign with another key", Cosign: true, Change: func(w *World) { w.Cosign().Sign(w.Image(w.Stored.Digest)) }, Want: NotApproved, Reason: "it is signed with another key, sha256:"},
		Case{Name: "cosign sign of a platform", Cosign: true, Requires: cosignKey, Change: func(w *World) { w.Cosign().Sign(w.Image(w.Child.Digest)) }, Want: NotApproved, Reason: "it has no signature"},
		Case{Name: "cosign sign with other annotations", Cosign: true, Requires: cosignKey, Change: func(w *World) { w.Cosign().Sign(w.Image(w.Stored.Digest), "-a", "reviewed=yes") }, Want: Approved},
		Case{
			Name: "two requirements", Want: Approved,
			Requires: func(w *World) []Require { return []Require{team(w.Key), {Name: "security", PublicKey: w.Other.PEM()}} },
			Change:   func(w *World) { w.Sign(w.Other, w.Stored); w.Sign(w.Key, w.Stored) },
		},
		Case{
			Name: "one of two requirements", Want: NotApproved, Reason: "it is signed with another key",
			Requires: func(w *World) []Require { return []Require{{Name: "security", PublicKey: w.Other.PEM()}, team(w.Key)} },
			Change:   signed,
		},
		Case{
			Name: "a requirement that is not enforced", Want: Approved, Reported: 1,
			Requires: func(w *World) []Require { r := team(w.Key); r.ReportOnly = true; return []Require{r} },
		},
		Case{
			Name: "one enforced and one reported", Want: NotApproved, Reason: "it has no signature", Reported: 1,
			Requires: func(w *World) []Require {
				r := team(w.Key)
				r.ReportOnly = true
				return []Require{r, {Name: "security", PublicKey: w.Other.PEM()}}
			},
		},
		Case{Name: "a bad signature beside a good one", Want: Approved, Change: func(w *World) {
			Attach(w.TB, w.Repo(), w.Stored, Spoilt(w.TB, w.Key.Attest(Statement(w.TB, w.Stored.Digest, CosignSign))))
			w.Sign(w.Other, w.Stored)
			w.Sign(w.Key, w.Stored)
		}},
		Case{Name: "a bad simple signing beside a good one", Want: Approved, Change: func(w *World) {
			payload := Payload(w.TB, w.Stored.Digest)
			Tag(w.TB, w.Repo(), w.Stored.Digest, Layer{payload, w.Other.Simple(payload)}, Layer{payload, w.Key.Simple(payload)})
		}},
	)
}

var keyKinds = map[string]keyKind{"P-256": P256, "P-384": P384, "P-521": P521, "Ed25519": Ed25519, "RSA": RSA2048}

// forgedCases are signatures that do not count.
func forgedCases() []Case {
	provenance := func(w *World) []Require { r := team(w.Key); r.Predicate = Provenance; return []Require{r} }
	return []Case{
		{Name: "no signature", Want: NotApproved, Reason: "it has no signature"},
		{Name: "another key", Change: func(w *World) { w.Sign(w.Other, w.Stored) }, Want: NotApproved, Reason: "it is signed with another key, sha256:"},
		{Name: "another key with the key's hint", Change: attach(func(w *World) []byte {
			return Hinted(w.TB, w.Other.Attest(Statement(w.TB, w.Stored.Digest, CosignSign)), w.Key)
		}), Want: NotApproved, Reason: "it is not signed with the key sha256:"},
		{Name: "a changed signature", Change: attach(func(w *World) []byte {
			return Spoilt(w.TB, w.Key.Attest(Statement(w.TB, w.Stored.Digest, CosignSign)))
		}), Want: NotApproved, Reason: "it is not signed with the key sha256:"},
		{Name: "a changed statement", Change: attach(func(w *World) []byte {
			other := Statement(w.TB, digest.FromString("another"), CosignSign)
			return bytes.Replace(w.Key.Attest(other), inBase64(other), inBase64(Statement(w.TB, w.Stored.Digest, CosignSign)), 1)
		}), Want: NotApproved, Reason: "it is not signed with the key sha256:"},
		{Name: "the signature of another version", Change: func(w *World) {
			next, _ := w.Store(w.Address, Next, "")
			Attach(w.TB, w.Repo(), w.Stored, w.Key.Attest(Statement(w.TB, next.Digest, CosignSign)))
		}, Want: NotApproved, Reason: "its signature is over another digest"},
		{Name: "the signature of a platform", Change: attach(func(w *World) []byte { return w.Key.Attest(Statement(w.TB, w.Child.Digest, CosignSign)) }), Want: NotApproved, Reason: "its signature is over another digest"},
		{Name: "the signature of another provider", Change: func(w *World) {
			other, _ := w.Store(w.Provider("gadget"), Version, "")
			Attach(w.TB, w.Repo(), w.Stored, w.Key.Attest(Statement(w.TB, other.Digest, CosignSign)))
		}, Want: NotApproved, Reason: "its signature is over another digest"},
		{Name: "the simple signing of another version", Change: func(w *World) {
			payload := Payload(w.TB, digest.FromString("another"))
			Tag(w.TB, w.Repo(), w.Stored.Digest, Layer{payload, w.Key.Simple(payload)})
		}, Want: NotApproved, Reason: "its signature is over another digest"},
		{Name: "a simple signing with another payload", Change: func(w *World) {
			payload := Payload(w.TB, w.Stored.Digest)
			Tag(w.TB, w.Repo(), w.Stored.Digest, Layer{payload, w.Key.Simple(Payload(w.TB, digest.FromString("another")))})
		}, Want: NotApproved, Reason: "it is not signed with the key sha256:"},
		{Name: "a simple signing of another type", Change: func(w *World) {
			payload := bytes.Replace(Payload(w.TB, w.Stored.Digest), []byte("cosign container image signature"), []byte("atomic container signature"), 1)
			Tag(w.TB, w.Repo(), w.Stored.Digest, Layer{payload, w.Key.Simple(payload)})
		}, Want: NotApproved, Reason: "a payload of type"},
		{Name: "the message signature of another document", Change: attach(func(w *World) []byte { return w.Key.Message([]byte("another")) }), Want: NotApproved, Reason: "its signature is over another digest"},
		{Name: "provenance where a signature is required", Change: attach(func(w *World) []byte { return w.Key.Attest(Statement(w.TB, w.Stored.Digest, Provenance)) }), Want: NotApproved, Reason: "its signature is " + Provenance},
		{Name: "a signature where provenance is required", Requires: provenance, Change: signed, Want: NotApproved, Reason: "its signature is a signature by cosign, not " + Provenance},
		{Name: "a simple signing where provenance is required", Requires: provenance, Change: func(w *World) {
			payload := Payload(w.TB, w.Stored.Digest)
			Tag(w.TB, w.Repo(), w.Stored.Digest, Layer{payload, w.Key.Simple(payload)})
		}, Want: NotApproved, Reason: "not " + Provenance},
		{Name: "another predicate type", Requires: provenance, Change: attach(func(w *World) []byte {
			return w.Key.Attest(Statement(w.TB, w.Stored.Digest, "https://slsa.dev/provenance/v0.2"))
		}), Want: NotApproved, Reason: "provenance/v0.2, not " + Provenance},
		{Name: "provenance", Requires: provenance, Change: attach(func(w *World) []byte { return w.Key.Attest(Statement(w.TB, w.Stored.Digest, Provenance)) }), Want: Approved},
		{Name: "a statement of another type", Change: attach(func(w *World) []byte {
			return w.Key.Attest(bytes.Replace(Statement(w.TB, w.Stored.Digest, CosignSign), []byte("Statement/v1"), []byte("Link/v1"), 1))
		}), Want: NotApproved, Reason: "a statement of type"},
	}
}

// identityCases are signatures with certificates.
func identityCases() []Case {
	right := Identity{Issuer: Issuer, Name: Workflow, Log: true}
	stamped := Identity{Issuer: Issuer, Name: Workflow, Timestamp: true}
	with := func(r Root) func(*World) []Require {
		return func(w *World) []Require { return []Require{job(w.Authority, r)} }
	}
	all, noLog, neither := Root{}, Root{NoLog: true}, Root{NoLog: true, NoTimestamps: true}
	expired := func(i Identity) Identity { i.Expired = true; return i }
	provenance := func(w *World) []Require { r := job(w.Authority, all); r.Predicate = Provenance; return []Require{r} }
	return []Case{
		{Name: "an identity with a log entry", Requires: with(all), Change: attest(right, CosignSign), Want: Approved},
		{Name: "an identity with a log entry and a timestamp", Requires: with(all), Change: attest(Identity{Issuer: Issuer, Name: Workflow, Log: true, Timestamp: true}, CosignSign), Want: Approved},
		{Name: "an identity with a timestamp, and a root without a log", Requires: with(noLog), Change: attest(stamped, CosignSign), Want: Approved},
		{Name: "an identity, and a root with neither", Requires: with(neither), Change: attest(Identity{Issuer: Issuer, Name: Workflow}, CosignSign), Want: Approved},
		{Name: "provenance of an identity", Requires: provenance, Change: attest(right, Provenance), Want: Approved},
		{Name: "provenance of an identity where a signature is required", Requires: with(all), Change: attest(right, Provenance), Want: NotApproved, Reason: "its signature is " + Provenance},
		{Name: "a signature of an identity where provenance is required", Requires: provenance, Change: attest(right, CosignSign), Want: NotApproved, Reason: "not " + Provenance},
		{Name: "an expired certificate with a log entry", Requires: with(all), Change: attest(expired(right), CosignSign), Want: Approved},
		{Name: "an expired certificate with a timestamp", Requires: with(noLog), Change: attest(expired(stamped), CosignSign), Want: Approved},
		{Name: "an expired certificate without a timestamp", Requires: with(neither), Change: attest(expired(Identity{Issuer: Issuer, Name: Workflow}), CosignSign), Want: NotApproved, Reason: "its certificate is valid only from"},
		{Name: "an expired certificate with proofs that the root cannot check", Requires: with(neither), Change: attest(expired(Identity{Issuer: Issuer, Name: Workflow, Log: true, Timestamp: true}), CosignSign), Want: NotApproved, Reason: "its certificate is valid only from"},
		{Name: "no log entry", Requires: with(all), Change: attest(stamped, CosignSign), Want: NotApproved, Reason: "it lacks an entry in a transparency log"},
		{Name: "a log entry, and a root without the log", Requires: with(noLog), Change: attest(right, CosignSign), Want: NotApproved, Reason: "it lacks a timestamp"},
		{Name: "a log entry of another log", Requires: func(w *World) []Require {
			return []Require{{Name: "our release job", Issuer: Issuer, Identity: Pattern, TrustedRoot: MixedRoot(w.TB, w.Authority, w.Stranger)}}
		}, Change: attest(right, CosignSign), Want: NotApproved, Reason: "it lacks an entry in a transparency log"},
		{Name: "a certificate without its log", Requires: with(Root{CertificateLog: true}), Change: attest(right, CosignSign), Want: NotApproved, Reason: "its signature is not valid"},
		{Name: "the log entry of another signature", Requires: with(all), Change: attach(func(w *World) []byte {
			s := Statement(w.TB, w.Stored.Digest, CosignSign)
			return Swapped(w.TB, w.Authority.Attest(right, s), w.Authority.Attest(right, s))
		}), Want: NotApproved, Reason: "its signature is not valid"},
		{Name: "the timestamp of another signature", Requires: with(noLog), Change: attach(func(w *World) []byte {
			s := Statement(w.TB, w.Stored.Digest, CosignSign)
			return Swapped(w.TB, w.Authority.Attest(expired(stamped), s), w.Authority.Attest(expired(stamped), s))
		}), Want: NotApproved, Reason: "its signature is not valid"},
		{Name: "a signature after the certificate expired", Requires: with(noLog), Change: attach(func(w *World) []byte {
			return w.Authority.Late(Identity{Issuer: Issuer, Name: Workflow, Expired: true}, Statement(w.TB, w.Stored.Digest, CosignSign))
		}), Want: NotApproved, Reason: "its signature is not valid"},
		{Name: "a changed signature of an identity", Requires: with(all), Change: attach(func(w *World) []byte {
			return Spoilt(w.TB, w.Authority.Attest(right, Statement(w.TB, w.Stored.Digest, CosignSign)))
		}), Want: NotApproved, Reason: "its signature is not valid"},
		{Name: "an identity over another digest", Requires: with(all), Change: attach(func(w *World) []byte {
			return w.Authority.Attest(right, Statement(w.TB, w.Child.Digest, CosignSign))
		}), Want: NotApproved, Reason: "its signature is over another digest"},
		{Name: "another authority", Requires: with(all), Change: attach(func(w *World) []byte {
			return w.Stranger.Attest(right, Statement(w.TB, w.Stored.Digest, CosignSign))
		}), Want: NotApproved, Reason: "no authority of the trusted root issued its certificate"},
		{Name: "another issuer", Requires: with(all), Change: attest(Identity{Issuer: "https://gitlab.com", Name: Workflow, Log: true}, CosignSign), Want: NotApproved, Reason: `of the issuer "https://gitlab.com"`},
		{Name: "another organisation", Requires: with(all), Change: attest(named(strings.Replace(Workflow, "/acme/", "/evil/", 1)), CosignSign), Want: NotApproved, Reason: "its signer is"},
		{Name: "another workflow", Requires: with(all), Change: attest(named(strings.Replace(Workflow, "release.yml", "test.yml", 1)), CosignSign), Want: NotApproved, Reason: "its signer is"},
		{Name: "a branch in place of a tag", Requires: with(all), Change: attest(named(strings.Replace(Workflow, "refs/tags/v1.0.0", "refs/heads/main", 1)), CosignSign), Want: NotApproved, Reason: "its signer is"},
		{Name: "an identity that the pattern begins", Requires: with(all), Change: attest(named(Workflow+"/more"), CosignSign), Want: NotApproved, Reason: "its signer is"},
		{Name: "an identity with a further part", Requires: with(all), Change: attest(named(strings.Replace(Workflow, "/acme/", "/acme/evil/", 1)), CosignSign), Want: NotApproved, Reason: "its signer is"},
		{Name: "an email address", Requires: func(w *World) []Require {
			r := job(w.Authority, all)
			r.Identity = "release@acme.example"
			return []Require{r}
		}, Change: attest(named("release@acme.example"), CosignSign), Want: Approved},
		{Name: "an identity where a key is required", Change: attest(right, CosignSign), Want: NotApproved, Reason: "it is signed with a certificate of"},
		{Name: "a key where an identity is required", Requires: with(all), Change: signed, Want: NotApproved, Reason: "it is signed with a key, not with a certificate"},
		{Name: "a simple signing by an identity", Requires: simpleJob("release@acme.example"), Change: simple("release@acme.example"), Want: Approved},
		{Name: "a simple signing by another identity", Requires: simpleJob("release@acme.example"), Change: simple("other@acme.example"), Want: NotApproved, Reason: `its signer is "other@acme.example"`},
		{Name: "a key and an identity", Requires: func(w *World) []Require { return []Require{team(w.Key), job(w.Authority, all)} }, Change: func(w *World) {
			signed(w)
			attest(right, CosignSign)(w)
		}, Want: Approved},
	}
}

func simpleJob(identity string) func(w *World) []Require {
	return func(w *World) []Require {
		return []Require{{Name: "our release job", Issuer: Issuer, Identity: identity, TrustedRoot: w.Authority.SimpleRoot()}}
	}
}

func simple(identity string) func(w *World) {
	return func(w *World) {
		payload := Payload(w.TB, w.Stored.Digest)
		Tag(w.TB, w.Repo(), w.Stored.Digest, Layer{payload, w.Authority.Simple(Issuer, identity, payload)})
	}
}

// placeCases are about the names of the signed content.
func placeCases() []Case {
	anonymous := func(a map[string]string) { clear(a) }
	return []Case{
		{Name: "an approved digest under another tag", Change: func(w *World) {
			signed(w)
			w.Retag("9.0.0", func(map[string]string) {})
			w.Version = version("9.0.0")
		}, Want: Foreign, Reason: "says that it is version 1.0.0"},
		{Name: "an index without names", Change: func(w *World) { w.Sign(w.Key, w.Retag("1.0.0", anonymous)) }, Want: NotApproved, Reason: "its index does not name the provider and the version"},
		{Name: "an index without names under another tag", Change: func(w *World) {
			w.Sign(w.Key, w.Retag("9.0.0", anonymous))
			w.Version = version("9.0.0")
		}, Want: NotApproved, Reason: "its index does not name the provider and the version"},
		{Name: "an index without its version", Change: func(w *World) {
			w.Sign(w.Key, w.Retag("9.0.0", func(a map[string]string) { delete(a, "io.github.ocibridge.version") }))
			w.Version = version("9.0.0")
		}, Want: NotApproved, Reason: "its index does not name the provider and the version"},
		{Name: "an approved digest in the repository of another provider", Change: func(w *World) {
			signed(w)
			w.CopyTo(w.Provider("gadget"))
			w.Address = w.Provider("gadget")
		}, Want: Foreign, Reason: "says that it is registry.acme.example/"},
		{Name: "a tag that has moved", Change: func(w *World) {
			signed(w)
			w.Store(w.Address, Version, "another content")
		}, Want: NotApproved, Reason: "it has no signature"},
		{Name: "a tag that has moved, with the old signature", Change: func(w *World) {
			signed(w)
			moved, _ := w.Store(w.Address, Version, "another content")
			Attach(w.TB, w.Repo(), moved, w.Key.Attest(Statement(w.TB, w.Stored.Digest, CosignSign)))
		}, Want: NotApproved, Reason: "its signature is over another digest"},
		{Name: "a tag that has moved back", Change: func(w *World) {
			signed(w)
			w.Store(w.Address, Version, "another content")
			w.Retag("1.0.0", func(map[string]string) {})
		}, Want: Approved},
	}
}

// listCases are about the lists of referrers.
func listCases() (out []Case) {
	for _, status := range []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed} {
		out = append(out, Case{
			Name: fmt.Sprintf("the API is refused with %d", status), Change: listed(bundleType), Answer: refuses("/referrers/", status), Want: Approved,
		}, Case{
			Name: fmt.Sprintf("the API is refused with %d, and nothing is signed", status), Answer: refuses("/referrers/", status), Want: NotApproved, Reason: "it has no signature",
		})
	}
	return append(out,
		Case{Name: "a wrong type in the fallback index", Change: listed("application/vnd.example+json"), Answer: refuses("/referrers/", 404), Want: Approved},
		Case{Name: "no type in the fallback index", Change: listed(""), Answer: refuses("/referrers/", 403), Want: Approved},
		Case{Name: "something else with the type of a bundle", Change: func(w *World) { w.Fallback(bundleType, w.Child) }, Answer: refuses("/referrers/", 404), Want: NotApproved, Reason: "it has no signature"},
		Case{Name: "a fallback index with a wrong size", Change: func(w *World) {
			short, child := w.Sign(w.Key, w.Stored), w.Child
			short.Size--
			child.Size++
			w.Fallback(bundleType, short, child)
		}, Answer: refuses("/referrers/", 404), Want: Approved},
		Case{Name: "a fallback index with a wrong type", Change: func(w *World) {
			index, _ := w.Store(w.Address, version("2.0.0"), "")
			index.MediaType = ocispec.MediaTypeImageManifest
			w.Fallback("", index, w.Sign(w.Key, w.Stored))
		}, Answer: refuses("/referrers/", 404), Want: Approved},
		Case{Name: "a fallback index with a deleted manifest", Change: func(w *World) {
			gone := w.Sign(w.Other, w.Stored)
			w.Fallback(bundleType, gone, w.Sign(w.Key, w.Stored))
			w.check(w.Repo().Manifests().Delete(context.Background(), gone))
		}, Answer: refuses("/referrers/", 404), Want: Approved},
		Case{Name: "the API is refused, and the older format", Change: func(w *World) {
			payload := Payload(w.TB, w.Stored.Digest)
			Tag(w.TB, w.Repo(), w.Stored.Digest, Layer{payload, w.Key.Simple(payload)})
		}, Answer: refuses("/referrers/", 404), Want: Approved},
		Case{Name: "a manifest in place of the fallback index", Change: func(w *World) {
			w.put(w.Repo(), artifact.Blob{Descriptor: w.Child, Data: w.content(w.Child)}, string(ociaddr.ReferrersTag(w.Stored.Digest)))
		}, Answer: refuses("/referrers/", 403), Want: NotApproved, Reason: "it has no signature"},
		Case{Name: "the index is its own fallback index", Change: func(w *World) {
			w.Retag(string(ociaddr.ReferrersTag(w.Stored.Digest)), func(map[string]string) {})
		}, Answer: refuses("/referrers/", 404), Want: NotApproved, Reason: "it has no signature"},
	)
}

// brokenCases are signatures that cannot be decoded, and registries that fail.
func brokenCases() (out []Case) {
	good := func(w *World) []byte { return w.Key.Attest(Statement(w.TB, w.Stored.Digest, CosignSign)) }
	for name, bundle := range map[string]func(w *World) []byte{
		"truncated":           func(w *World) []byte { b := good(w); return b[:len(b)/2] },
		"empty object":        func(*World) []byte { return []byte("{}") },
		"text":                func(*World) []byte { return []byte("no JSON") },
		"nested":              func(*World) []byte { return []byte(strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)) },
		"many values":         func(*World) []byte { return []byte(`{"a":[` + strings.Repeat("1,", 6000) + `1]}`) },
		"of a future version": func(w *World) []byte { return bytes.Replace(good(w), []byte("v0.3"), []byte("v0.9"), 1) },
		"with a nested statement": func(w *World) []byte {
			return w.Key.Attest([]byte(strings.Repeat(`[`, 100) + strings.Repeat("]", 100)))
		},
		"with an unknown member": func(w *World) []byte { return bytes.Replace(good(w), []byte("{"), []byte(`{"unknown":1,`), 1) },
	} {
		out = append(out,
			Case{Name: "a bundle: " + name, Change: attach(bundle), Want: NotApproved},
			Case{Name: "beside a good bundle: " + name, Change: func(w *World) { attach(bundle)(w); signed(w) }, Want: Approved},
		)
	}
	// A gateway may look for tags first. Therefore these cases have no signatures there.
	fallback := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/manifests/sha256-") }
	for _, status := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, 0} {
		out = append(out,
			Case{Name: fmt.Sprintf("the API fails with %d", status), Change: signed, Answer: func(rw http.ResponseWriter, r *http.Request) bool {
				return refuses("/referrers/", status)(rw, r) || fallback(r) && refuses("/", http.StatusNotFound)(rw, r)
			}, Want: Unavailable},
			Case{Name: fmt.Sprintf("the older format fails with %d", status), Answer: refuses(".sig", status), Want: Unavailable},
		)
	}
	all := func(status int) recorder.Intercept {
		return func(rw http.ResponseWriter, r *http.Request) bool {
			return !strings.HasSuffix(r.URL.Path, "/manifests/1.0.0") && refuses("/v2/", status)(rw, r)
		}
	}
	return append(out,
		Case{Name: "a huge bundle", Change: attach(func(w *World) []byte { return append(good(w), bytes.Repeat([]byte(" "), 2<<20)...) }), Want: NotApproved, Reason: "it has no signature"},
		Case{Name: "a huge bundle beside a good one", Change: func(w *World) {
			attach(func(w *World) []byte { return append(good(w), bytes.Repeat([]byte(" "), 2<<20)...) })(w)
			signed(w)
		}, Want: Approved},
		Case{Name: "everything is 401", Change: signed, Answer: all(http.StatusUnauthorized), Want: Unavailable},
		Case{Name: "everything is 429", Change: signed, Answer: all(http.StatusTooManyRequests), Want: Unavailable},
		Case{Name: "everything is 503", Change: signed, Answer: all(http.StatusServiceUnavailable), Want: Unavailable},
		Case{Name: "the blob of a signature is 503", Change: signed, Answer: refuses("/blobs/", http.StatusServiceUnavailable), Want: Unavailable},
		Case{Name: "the blob of a signature is another", Change: signed, Answer: answers("/blobs/", http.StatusOK, "another"), Want: Unavailable},
		Case{Name: "no answer", Change: signed, Hangs: true, Answer: func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/referrers/") || fallback(r) {
				<-r.Context().Done()
			}
			return false
		}, Want: Unavailable},
		Case{Name: "the API answers with something else", Change: listed(bundleType), Answer: answers("/referrers/", http.StatusOK, "something else"), Want: Approved},
		Case{Name: "the API lists nothing readable", Change: signed, Answer: func(rw http.ResponseWriter, r *http.Request) bool {
			return answers("/referrers/", http.StatusOK, "{")(typed{rw}, r) || fallback(r) && refuses("/", http.StatusNotFound)(rw, r)
		}, Want: Unavailable},
	)
}

// moduleCases are about modules.
func moduleCases() []Case {
	return []Case{
		{Name: "a module", Module: true, Change: signed, Want: Approved},
		{Name: "a module without a signature", Module: true, Want: NotApproved, Reason: "it has no signature"},
		{Name: "a module with cosign", Module: true, Cosign: true, Requires: func(w *World) []Require { return []Require{{Name: "platform team", PublicKey: w.Cosign().PEM()}} }, Change: func(w *World) { w.Cosign().Sign(w.Image(w.Stored.Digest)) }, Want: Approved},
		{Name: "a module with another spelling", Module: true, Change: func(w *World) {
			w.Sign(w.Key, w.Retag("1.0.0", func(a map[string]string) { a["io.github.ocibridge.module"] = w.Module("VPC").String() }))
		}, Want: Foreign, Reason: "/VPC/aws"},
		{Name: "a module without names", Module: true, Change: func(w *World) { w.Sign(w.Key, w.Retag("1.0.0", func(a map[string]string) { clear(a) })) }, Want: NotApproved, Reason: "its manifest does not name the module and the version"},
		{Name: "a module's signature over another version", Module: true, Change: func(w *World) {
			next, _ := w.Store(w.Address, Next, "")
			Attach(w.TB, w.Repo(), w.Stored, w.Key.Attest(Statement(w.TB, next.Digest, CosignSign)))
		}, Want: NotApproved, Reason: "its signature is over another digest"},
	}
}
