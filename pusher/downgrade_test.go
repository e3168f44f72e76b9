package pusher_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// tofuWidget is a provider of the registry from which OpenTofu installs providers without a key.
var tofuWidget = provider.MustParseAddress("registry.opentofu.org/acme/widget")

// keyless is a bench whose origin is registry.opentofu.org. Its pushes accept what OpenTofu accepts.
type keyless struct {
	*bench
	pusher *pusher.Pusher
	now    time.Time
}

func newKeyless(t *testing.T) *keyless {
	k := &keyless{bench: newBench(t), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	k.Client = origin.Client(tofuWidget.Hostname(), k.ServeOrigin())
	k.Options.Policy = func(provider.Address) trust.Policy { return trust.Policy{UnsignedAsClients: true} }
	k.Options.Now = func() time.Time { return k.now }
	k.pusher = pusher.New(k.Options)
	return k
}

// publish adds a version to the origin, signed by signer, or without a key if signer is nil.
func (k *keyless) publish(version string, signer *pgp.Signer) *realorigin.Release {
	k.T.Helper()
	k.Signer = signer
	k.Origin.Add(k.Build(version, "content"))
	return origin.Fetch(k.T, k.Client, tofuWidget, version)
}

// want pushes a release, and checks whether it is refused because a signed version is stored.
func (k *keyless) want(r *realorigin.Release, refused bool) {
	k.T.Helper()
	result, err := k.pusher.Push(k.T.Context(), r)
	switch {
	case refused && (!errors.Is(err, trust.ErrUnsigned) || !strings.Contains(err.Error(), "1.1.0 is signed") || hint.Of(err) == ""):
		k.T.Errorf("%s: %+v, %v (hint %q)", r.Version(), result, err, hint.Of(err))
	case !refused && err != nil:
		k.T.Errorf("%s: %v (hint %q)", r.Version(), err, hint.Of(err))
	}
}

// TestNoDowngrade shows that a release without a key is stored by its checksums until a signed version is stored.
func TestNoDowngrade(t *testing.T) {
	k := newKeyless(t)
	signer := k.Signer
	first := k.publish("1.0.0", nil)
	k.want(first, false)
	k.want(k.publish("1.1.0", signer), false)
	k.want(k.publish("1.2.0", nil), true)
	k.want(first, true)
	k.want(k.publish("1.3.0", signer), false)
	k.Options.Policy = pushbench.AllowUnsigned
	k.pusher = pusher.New(k.Options)
	k.want(k.publish("1.2.0", nil), false) // because the policy allows all unsigned releases
}

// TestDowngradeIsCheckedAgain shows that a push soon notices a signed version that another process has stored. For a
// minute, one search is enough for several pushes.
func TestDowngradeIsCheckedAgain(t *testing.T) {
	k := newKeyless(t)
	signer := k.Signer
	k.want(k.publish("1.0.0", nil), false)
	if _, err := pusher.New(k.Options).Push(t.Context(), k.publish("1.1.0", signer)); err != nil {
		t.Fatal(err)
	}
	k.want(k.publish("1.2.0", nil), false)
	k.now = k.now.Add(time.Hour)
	k.want(k.publish("1.3.0", nil), true)
}

// TestDowngradeUnknown shows that a release without a key is refused while the registry does not say whether a signed
// version is stored. The refusal is a failure of the registry.
func TestDowngradeUnknown(t *testing.T) {
	k := newKeyless(t)
	k.want(k.publish("1.0.0", nil), false)
	k.pusher = pusher.New(k.Options)
	k.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/manifests/1.0.0") {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	})
	_, err := k.pusher.Push(t.Context(), k.publish("1.1.0", nil))
	var failed *repo.RegistryError
	if !errors.As(err, &failed) || trust.Refused(err) || hint.Of(err) == "" {
		t.Errorf("%v (hint %q)", err, hint.Of(err))
	}
}

// TestDowngradeUnknownForever shows that a release without a key is refused while the registry has lost the evidence of
// a version whose index does not say whether it is signed. The hint names the version, and both of its remedies work.
func TestDowngradeUnknownForever(t *testing.T) {
	for name, remedy := range map[string]func(*keyless, *realorigin.Release){
		"pushed again": func(k *keyless, lost *realorigin.Release) {
			k.Options.Force = true
			if _, err := pusher.New(k.Options).Push(t.Context(), lost); err != nil {
				t.Fatal(err)
			}
		},
		"tag deleted": func(k *keyless, _ *realorigin.Release) {
			desc, err := k.Repo.Resolve(t.Context(), "1.0.0")
			if err == nil {
				err = k.Repo.Delete(t.Context(), desc)
			}
			if err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeyless(t)
			lost := k.publish("1.0.0", k.Signer)
			k.want(lost, false)
			k.loseEvidence("1.0.0")
			r := k.publish("1.1.0", nil)
			_, err := k.pusher.Push(t.Context(), r)
			if !errors.Is(err, artifact.ErrMissing) || !strings.Contains(hint.Of(err), "1.0.0") {
				t.Fatalf("%v (hint %q)", err, hint.Of(err))
			}
			remedy(k, lost)
			_, err = pusher.New(k.Options).Push(t.Context(), r)
			if errors.Is(err, artifact.ErrMissing) || (err == nil) != (name == "tag deleted") {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// loseEvidence removes the verdict from the index of a stored version, and deletes the version's evidence.
func (k *keyless) loseEvidence(version string) {
	k.T.Helper()
	found, err := artifact.Read(k.T.Context(), k.Repo, tofuWidget, provider.MustParseVersion(version))
	if err != nil {
		k.T.Fatal(err)
	}
	data, err := content.FetchAll(k.T.Context(), k.Repo, found.Index)
	if err != nil {
		k.T.Fatal(err)
	}
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		k.T.Fatal(err)
	}
	delete(index.Manifests[3].Annotations, "io.github.ocibridge.verdict")
	if data, err = json.Marshal(index); err != nil {
		k.T.Fatal(err)
	}
	k.PushManifest(ocispec.MediaTypeImageIndex, data, version)
	if err := k.Repo.Delete(k.T.Context(), *found.Evidence); err != nil {
		k.T.Fatal(err)
	}
}
