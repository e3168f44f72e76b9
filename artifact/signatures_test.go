package artifact_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loopback"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
)

// TestRequestsOfAVerdict shows how many requests a verdict needs.
func TestRequestsOfAVerdict(t *testing.T) {
	shared := approvals.NewShared(t)
	simple := func(w *approvals.World) {
		payload := approvals.Payload(t, w.Stored.Digest)
		approvals.Tag(t, w.Repo(), w.Stored.Digest, approvals.Layer{Payload: payload, Annotations: w.Key.Simple(payload)})
	}
	refused := func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/referrers/") {
			return false
		}
		rw.WriteHeader(http.StatusForbidden)
		return true
	}
	for name, c := range map[string]struct {
		change func(w *approvals.World)
		answer recorder.Intercept
		want   int
	}{
		"nothing":                       {func(*approvals.World) {}, nil, 2},
		"a bundle":                      {func(w *approvals.World) { w.Sign(w.Key, w.Stored) }, nil, 3},
		"older format":                  {simple, nil, 3},
		"nothing, API refused":          {func(*approvals.World) {}, refused, 3},
		"a bundle, API refused":         {func(w *approvals.World) { w.Fallback("", w.Sign(w.Key, w.Stored)) }, refused, 4},
		"older format, API refused":     {simple, refused, 4},
		"another key":                   {func(w *approvals.World) { w.Sign(w.Other, w.Stored) }, nil, 4},
		"a bundle beside older format":  {func(w *approvals.World) { simple(w); w.Sign(w.Key, w.Stored) }, nil, 3},
		"two bundles, the first enough": {func(w *approvals.World) { w.Sign(w.Key, w.Stored); w.Sign(w.Key, w.Stored) }, nil, 5},
	} {
		t.Run(name, func(t *testing.T) {
			places := approvals.Serve(t, loopback.For(t).Truth, "")
			w := approvals.NewWorld(t, shared, places, approvals.Case{})
			c.change(w)
			v, err := read(t.Context(), w)
			if err != nil {
				t.Fatal(err)
			}
			places.Intercept(c.answer)
			places.Requests.Reset()
			policy := approvals.Policy(t, approvals.Case{}.Blocks(w))
			if _, err := artifact.CheckApprovals(t.Context(), w.Repo(), policy, v, w.Address, w.Version); err != nil {
				t.Fatal(err)
			}
			if n := places.Requests.Count(); n != c.want {
				t.Errorf("%d requests, want %d: %+v", n, c.want, places.Requests.Requests())
			}
			places.Requests.Reset()
			if v, err := artifact.CheckApprovals(t.Context(), w.Repo(), nil, v, w.Address, w.Version); err != nil || v.Err() != nil || places.Requests.Count() > 0 {
				t.Errorf("without requirements: %v, %v, %d requests", v, err, places.Requests.Count())
			}
		})
	}
}

// TestSignaturesWithinLimits shows that the signatures of one manifest are limited in number and in bytes, and that the verdict says
// that there are more.
func TestSignaturesWithinLimits(t *testing.T) {
	places := approvals.Serve(t, loopback.For(t).Truth, "")
	w := approvals.NewWorld(t, approvals.NewShared(t), places, approvals.Case{})
	payload := approvals.Payload(t, w.Stored.Digest)
	var layers []approvals.Layer
	for range approval.MaxSignatures + 20 {
		layers = append(layers, approvals.Layer{Payload: payload, Annotations: w.Other.Simple(payload)})
	}
	approvals.Tag(t, w.Repo(), w.Stored.Digest, layers...)
	sigs, err := artifact.Signatures(t.Context(), w.Repo(), w.Stored, nil)
	if err != nil || len(sigs) != approval.MaxSignatures+1 {
		t.Fatalf("%d, %v", len(sigs), err)
	}
	verdict, err := approvals.Policy(t, approvals.Case{}.Blocks(w)).Check(t.Context(), w.Stored.Digest, sigs)
	if err != nil || verdict.Ignored != 1 || !strings.Contains(fmt.Sprint(verdict.Err()), "only 64 signatures were checked") {
		t.Errorf("%+v, %v", verdict, err)
	}
	for i := range 8 {
		approvals.Attach(t, w.Repo(), w.Stored, bytes.Repeat([]byte{byte('0' + i)}, 1<<20-i))
	}
	sigs, err = artifact.Signatures(t.Context(), w.Repo(), w.Stored, func(all []approval.Signature) bool { return true })
	size := 0
	for _, s := range sigs {
		size += len(s.Bundle)
	}
	if err != nil || size == 0 || size > 4<<20 {
		t.Errorf("%d bytes, %v", size, err)
	}
}

// TestNamesItselfHints shows what to do about an index without names.
func TestNamesItselfHints(t *testing.T) {
	v := &artifact.Version{}
	err := artifact.NamesItself(v, approvals.Widget, approvals.Version)
	if err == nil || !strings.Contains(hint.Of(err), "push it again with ocibridge push --force") {
		t.Errorf("%v, %q", err, hint.Of(err))
	}
	key, err := approval.ParsePublicKey(approvals.NewKey(t, approvals.P256).PEM())
	if err != nil {
		t.Fatal(err)
	}
	p, err := approval.NewPolicy(approval.Requirement{Name: "platform team", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	verdict, err := artifact.CheckApprovals(t.Context(), nil, p, v, approvals.Widget, approvals.Version)
	if refused := verdict.Err(); err != nil || refused == nil || !strings.Contains(hint.Of(refused), "push it again") {
		t.Errorf("%v, %v", verdict.Err(), err)
	}
	v.Owner, v.Version, v.Index.Digest = approvals.Widget, approvals.Version, digest.FromString("x")
	if err := artifact.NamesItself(v, approvals.Widget, approvals.Version); err != nil {
		t.Error(err)
	}
}
