package pusher_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// ages are the tags that keep ages, sorted.
func (b *syncBench) ages() string {
	b.t.Helper()
	var out []string
	if err := b.repo.Tags(b.t.Context(), "", func(page []string) error {
		for _, t := range page {
			if rest, ok := strings.CutPrefix(t, "ocibridge-seen"); ok {
				out = append(out, rest)
			}
		}
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// A provider whose template leads to another one's repository leaves nothing in it.
func TestCooldownInAnotherProvidersRepository(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.mustSync("+1.0.0")
	spec := release.Spec{Host: host, Namespace: "acme", Type: "gadget", Version: "2.0.0", Signer: b.signer}
	spec.Contents = []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"terraform-provider-gadget_v2.0.0": []byte("x")}}}
	b.origin.Add(release.For(t, spec))
	gadget := *b
	gadget.want.Provider, gadget.want.Cooldown = provider.MustParseAddress(host+"/acme/gadget"), time.Hour
	_, out, err := gadget.sync()
	if err != nil || !errors.Is(out.Err(), pusher.ErrOccupied) || b.ages() != "" {
		t.Errorf("%v, %+v, ages of %q", err, out, b.ages())
	}
	b.offer("1.1.0")
	b.want.Cooldown = time.Hour
	b.mustSync("+1.1.0 =1.0.0")
}

// A registry that for a moment says that there are no tags makes no first sync:
// what waits goes on waiting.
func TestCooldownWithoutAList(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.want.Cooldown = 2 * time.Hour
	b.mustSync("+1.0.0")
	b.offer("1.1.0")
	b.mustSync(".1.1.0 =1.0.0")
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/tags/list") {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	})
	if _, out, err := b.sync(); err != nil || len(out.Failures) != 1 || len(out.Results) > 0 {
		t.Errorf("%v, %+v", err, out)
	}
	b.registry.Intercept(nil)
	b.now = b.now.Add(time.Hour)
	b.mustSync(".1.1.0 =1.0.0")
	b.now = b.now.Add(time.Hour)
	b.mustSync("+1.1.0 =1.0.0")
}

// Of two syncs at once the one that saw a version first has said so, and a
// registry whose tags cannot be moved is no reason for the other to fail.
func TestCooldownOfTwoSyncs(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.want.Cooldown = 2 * time.Hour
	var mu sync.Mutex
	set := map[string]bool{}
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		_, ref, ok := strings.Cut(r.URL.Path, "/manifests/")
		if r.Method != http.MethodPut || !ok || strings.HasPrefix(ref, "sha256:") {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		if set[ref] {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"errors":[{"code":"TAG_INVALID","message":"The image tag already exists and cannot be overwritten because the tag is immutable."}]}`)
			return true
		}
		set[ref] = true
		return false
	})
	twice := func() {
		t.Helper()
		first, plan := b.plan()
		second, slow := b.plan()
		if out, err := first.Apply(t.Context(), plan, func(*pusher.Result) {}); err != nil || len(out.Failures) > 0 {
			t.Errorf("%v, %+v", err, out)
		}
		b.now = b.now.Add(time.Hour)
		if out, err := second.Apply(t.Context(), slow, func(*pusher.Result) {}); err != nil || len(out.Failures) > 0 {
			t.Errorf("%v, %+v", err, out)
		}
	}
	twice()
	b.offer("1.2.0")
	twice()
	b.registry.Intercept(nil) // nor does a registry that moves any tag make it younger
	b.offer("1.3.0")
	twice()
	b.now = b.now.Add(time.Hour)
	if got, _, _ := b.sync(); got != "+1.3.0 +1.2.0 =1.1.0 =1.0.0" {
		t.Errorf("plan %q", got)
	}
}
