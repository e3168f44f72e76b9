package artifact_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

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
			places := approvals.Serve(t, loopback.For(t).Truth, "acme")
			w := approvals.NewWorld(t, shared, places, approvals.Case{})
			c.change(w)
			v, err := w.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			places.Intercept(c.answer)
			places.Requests().Reset()
			policy := approvals.Policy(t, approvals.Case{}.Blocks(w))
			if _, err := artifact.CheckApprovals(t.Context(), w.Repo(), policy, v, w.Address, w.Version); err != nil {
				t.Fatal(err)
			}
			if n := places.Requests().Count(); n != c.want {
				t.Errorf("%d requests, want %d: %+v", n, c.want, places.Requests().Requests())
			}
			places.Requests().Reset()
			if v, err := artifact.CheckApprovals(t.Context(), w.Repo(), nil, v, w.Address, w.Version); err != nil || v.Err() != nil || places.Requests().Count() > 0 {
				t.Errorf("without requirements: %v, %v, %d requests", v, err, places.Requests().Count())
			}
		})
	}
}

// apiOnly returns a client that uses only the referrers API, and writes no fallback tags.
func apiOnly(t *testing.T, w *approvals.World) *remote.Repository {
	t.Helper()
	repo := w.Repo()
	if err := repo.SetReferrersCapability(true); err != nil {
		t.Fatal(err)
	}
	return repo
}

// TestRequestsAfterRefusal shows that a registry that has refused the referrers API gets no request for it any more if the signatures under
// tags are enough. A status that can be about the login or about a failure changes nothing.
func TestRequestsAfterRefusal(t *testing.T) {
	shared := approvals.NewShared(t)
	simple := func(w *approvals.World) {
		payload := approvals.Payload(t, w.Stored.Digest)
		approvals.Tag(t, w.Repo(), w.Stored.Digest, approvals.Layer{Payload: payload, Annotations: w.Key.Simple(payload)})
	}
	fallback := func(artifactType string) func(w *approvals.World) {
		return func(w *approvals.World) { w.Fallback(artifactType, w.Sign(w.Key, w.Stored)) }
	}
	for name, c := range map[string]struct {
		change      func(w *approvals.World)
		status      int
		first, next int
		fails       bool
	}{
		"a bundle":                 {fallback(artifact.TypeBundle), 404, 4, 3, false},
		"a bundle, 405":            {fallback(artifact.TypeBundle), 405, 4, 3, false},
		"a bundle, listed wrongly": {fallback(""), 404, 4, 3, false},
		"older format":             {simple, 404, 4, 3, false},
		"nothing":                  {func(*approvals.World) {}, 404, 3, 3, false},
		"another key":              {func(w *approvals.World) { w.Fallback("", w.Sign(w.Other, w.Stored)) }, 404, 5, 5, false},
		"a bundle, 401":            {fallback(artifact.TypeBundle), 401, 4, 4, false},
		"a bundle, 429":            {fallback(artifact.TypeBundle), 429, 1, 1, true},
		"a bundle, 503":            {fallback(artifact.TypeBundle), 503, 1, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			places := approvals.Serve(t, loopback.For(t).Truth, "acme")
			w := approvals.NewWorld(t, shared, places, approvals.Case{})
			c.change(w)
			places.Intercept(func(rw http.ResponseWriter, r *http.Request) bool {
				refused := strings.Contains(r.URL.Path, "/referrers/")
				if refused {
					http.Error(rw, "refused", c.status)
				}
				return refused
			})
			policy, api := approvals.Policy(t, approvals.Case{}.Blocks(w)), &artifact.ReferrersAPI{}
			for i, want := range []int{c.first, c.next, c.next} {
				places.Requests().Reset()
				_, err := api.Signatures(t.Context(), apiOnly(t, w), w.Stored, func(all []approval.Signature) bool {
					verdict, err := policy.Check(t.Context(), w.Stored.Digest, all)
					return err == nil && verdict.Err() == nil
				})
				if (err != nil) != c.fails {
					t.Fatal(err)
				}
				if n := places.Requests().Count(); n != want {
					t.Errorf("look-up %d: %d requests, want %d: %+v", i, n, want, places.Requests().Requests())
				}
			}
		})
	}
}

// TestRefusedAPIOfAnotherRepository shows that a refusal in one repository hides no signature in another one that has the API, whether or
// not an old list is under the fallback tag. The API is used first again then. While the API fails, nothing is decided.
func TestRefusedAPIOfAnotherRepository(t *testing.T) {
	shared := approvals.NewShared(t)
	for name, old := range map[string]func(w *approvals.World){
		"no fallback tag":            func(*approvals.World) {},
		"a signature by another key": func(w *approvals.World) { w.Fallback(artifact.TypeBundle, w.Sign(w.Other, w.Stored)) },
	} {
		t.Run(name, func(t *testing.T) {
			places := approvals.Serve(t, loopback.For(t).Truth, "acme")
			w := approvals.NewWorld(t, shared, places, approvals.Case{})
			approvals.Attach(t, apiOnly(t, w), w.Stored, w.Key.Attest(approvals.Statement(t, w.Stored.Digest, approvals.CosignSign)))
			old(w)
			status := http.StatusNotFound
			places.Intercept(func(rw http.ResponseWriter, r *http.Request) bool {
				refused := status != 0 && strings.Contains(r.URL.Path, "/referrers/")
				if refused {
					http.Error(rw, "refused", status)
				}
				return refused
			})
			policy, api := approvals.Policy(t, approvals.Case{}.Blocks(w)), &artifact.ReferrersAPI{}
			approved := func() (approved bool, err error) {
				places.Requests().Reset()
				_, err = api.Signatures(t.Context(), apiOnly(t, w), w.Stored, func(all []approval.Signature) bool {
					verdict, err := policy.Check(t.Context(), w.Stored.Digest, all)
					approved = err == nil && verdict.Err() == nil
					return approved
				})
				return approved, err
			}
			if ok, err := approved(); ok || err != nil {
				t.Fatalf("the API is refused: %v, %v", ok, err)
			}
			status = http.StatusServiceUnavailable
			if ok, err := approved(); ok || err == nil {
				t.Fatalf("the API fails: %v, %v", ok, err)
			}
			status = 0
			for range 2 {
				if ok, err := approved(); !ok || err != nil {
					t.Fatalf("the API is there: %v, %v", ok, err)
				}
			}
			if first := places.Requests().Requests()[0]; !strings.Contains(first.Path, "/referrers/") {
				t.Errorf("the first request is for %s", first.Path)
			}
		})
	}
}

// TestSignaturesListedTwice shows that signatures are read once if a registry, such as Harbor, lists the manifest under the tag
// sha256-HEX.sig as a referrer, too.
func TestSignaturesListedTwice(t *testing.T) {
	places := approvals.Serve(t, loopback.For(t).Truth, "acme")
	w := approvals.NewWorld(t, approvals.NewShared(t), places, approvals.Case{})
	payload := approvals.Payload(t, w.Stored.Digest)
	tagged := approvals.Tag(t, w.Repo(), w.Stored.Digest, approvals.Layer{Payload: payload, Annotations: w.Key.Simple(payload)})
	list := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"digest":%q,"size":%d}]}`, ocispec.MediaTypeImageIndex, tagged.MediaType, tagged.Digest, tagged.Size)
	places.Intercept(func(rw http.ResponseWriter, r *http.Request) bool {
		lists := strings.Contains(r.URL.Path, "/referrers/")
		if lists {
			rw.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
			fmt.Fprint(rw, list)
		}
		return lists
	})
	if sigs, err := artifact.Signatures(t.Context(), w.Repo(), w.Stored, nil); err != nil || len(sigs) != 1 {
		t.Errorf("%d signatures, %v", len(sigs), err)
	}
}

// TestSignaturesWithinLimits shows that the signatures of one manifest are limited in number and in bytes, and that the verdict says
// that there are more.
func TestSignaturesWithinLimits(t *testing.T) {
	places := approvals.Serve(t, loopback.For(t).Truth, "acme")
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
	err := artifact.NamesItself(v, widget, approvals.Version)
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
	verdict, err := artifact.CheckApprovals(t.Context(), nil, p, v, widget, approvals.Version)
	if refused := verdict.Err(); err != nil || refused == nil || !strings.Contains(hint.Of(refused), "push it again") {
		t.Errorf("%v, %v", verdict.Err(), err)
	}
	v.Owner, v.Version, v.Index.Digest = widget, approvals.Version, digest.FromString("x")
	if err := artifact.NamesItself(v, widget, approvals.Version); err != nil {
		t.Error(err)
	}
}
