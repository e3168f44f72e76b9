package repo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// replaced returns the first digits of the digests of the state's replaced manifests.
func (b *bench) replaced() string {
	b.T.Helper()
	var out []string
	for _, r := range b.State().Replaced {
		out = append(out, r.Manifest.Digest.Encoded()[:6])
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// digits returns the first digits of digests, in the format of replaced.
func digits(ds ...digest.Digest) string {
	var out []string
	for _, d := range ds {
		out = append(out, d.Encoded()[:6])
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestRemember(t *testing.T) {
	b := newBench(t)
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	b.MustRemember(repo.StateChange{})
	if n := b.Registry.Count(recorder.Writes()); n != 0 {
		t.Fatalf("a change of nothing makes %d writes", n)
	}
	b.MustRemember(pushbench.SawAt(noon, "1.0.0"))
	first := b.Current()
	if got := b.replaced(); got != "" {
		t.Errorf("the first state replaces %s", got)
	}

	// If the state already has a change, the call sends one request and writes nothing.
	b.Registry.Reset()
	b.MustRemember(pushbench.SawAt(noon.Add(time.Hour), "1.0.0"))
	if n := b.Registry.Count(); n != 1 || b.Current() != first {
		t.Errorf("%d requests for a later time", n)
	}
	b.MustRemember(pushbench.SawAt(noon.Add(-time.Hour), "1.0.0"))
	if at := b.State().Seen[provider.MustParseVersion("1.0.0")]; !at.Equal(noon.Add(-time.Hour)) || b.State().Cooldown {
		t.Errorf("seen at %s, cooldown %t", at, b.State().Cooldown)
	}

	// The state notes the older state and the replaced index.
	if got := b.replaced(); got != digits(first) {
		t.Errorf("replaced %s, want %s", got, digits(first))
	}
	second := b.Current()
	x, y := pushbench.Lost("x", "1.0.0"), pushbench.Lost("y", "1.1.0")
	b.Registry.Reset()
	b.MustRemember(repo.StateChange{Replaced: []artifact.Replaced{x, y}, Cooldown: true})
	if n := b.Registry.Count(); n != 3 {
		t.Errorf("%d requests: it reads, writes, and reads again", n)
	}
	if got, want := b.replaced(), digits(first, second, x.Manifest.Digest, y.Manifest.Digest); got != want || !b.State().Cooldown {
		t.Errorf("replaced %s, want %s", got, want)
	}
	for _, r := range b.State().Replaced {
		if want := map[digest.Digest]string{x.Manifest.Digest: "1.0.0", y.Manifest.Digest: "1.1.0"}[r.Manifest.Digest]; r.Version.String() != want {
			t.Errorf("%s was version %q, want %q", r.Manifest.Digest, r.Version, want)
		}
	}

	// A prune removes deleted manifests from the state.
	third := b.Current()
	b.MustRemember(repo.StateChange{Deleted: map[digest.Digest]bool{x.Manifest.Digest: true, first: true}})
	if got, want := b.replaced(), digits(second, third, y.Manifest.Digest); got != want || len(b.State().Seen) != 1 || !b.State().Cooldown {
		t.Errorf("replaced %s, want %s; state %+v", got, want, b.State())
	}
	b.Registry.Reset()
	b.MustRemember(repo.StateChange{Deleted: map[digest.Digest]bool{x.Manifest.Digest: true}})
	if n := b.Registry.Count(); n != 1 {
		t.Errorf("%d requests for absent manifests", n)
	}
}

// pausing is a store. Ahead of each request, it calls the function before with the number and the name of the
// request.
type pausing struct {
	repo.Store
	n      int
	before func(n int, op string)
}

func (p *pausing) pause(op string) {
	p.n++
	p.before(p.n, op)
}

func (p *pausing) FetchReference(ctx context.Context, reference string) (ocispec.Descriptor, io.ReadCloser, error) {
	p.pause("read " + reference)
	return p.Store.FetchReference(ctx, reference)
}

func (p *pausing) Exists(ctx context.Context, d ocispec.Descriptor) (bool, error) {
	p.pause("look")
	return p.Store.Exists(ctx, d)
}

func (p *pausing) Push(ctx context.Context, d ocispec.Descriptor, content io.Reader) error {
	p.pause("send")
	return p.Store.Push(ctx, d, content)
}

func (p *pausing) PushReference(ctx context.Context, d ocispec.Descriptor, content io.Reader, reference string) error {
	p.pause("write " + reference)
	return p.Store.PushReference(ctx, d, content, reference)
}

func (p *pausing) Tags(ctx context.Context, last string, fn func([]string) error) error {
	p.pause("list")
	return p.Store.Tags(ctx, last, fn)
}

// TestRememberOfTwoWriters runs two writers in all orders of their requests. The first writer is paused before one of
// its requests while the second writer begins. The second writer is then paused before one of its requests until the
// first writer has ended. The test shows that the change of the writer that ends last is in the state. Only a writer
// that pauses between reading and writing can overwrite a change, and the next call restores that change.
func TestRememberOfTwoWriters(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	const write = "write " + string(ociaddr.StateTag)
	mine, other := pushbench.SawAt(noon, "1.0.0"), pushbench.SawAt(noon, "1.1.0")
	mine.Replaced = []artifact.Replaced{pushbench.Lost("mine", "1.0.0")}
	other.Replaced = []artifact.Replaced{pushbench.Lost("other", "1.1.0")}
	has := func(s *artifact.State, c repo.StateChange) bool {
		for v, at := range c.Seen {
			if got, ok := s.Seen[v]; !ok || !got.Equal(at) {
				return false
			}
		}
		return slices.ContainsFunc(s.Replaced, func(r artifact.Replaced) bool { return r.Manifest.Digest == c.Replaced[0].Manifest.Digest })
	}
	for name, begin := range map[string]func(b *bench){
		"no state": func(*bench) {},
		"a state":  func(b *bench) { b.MustRemember(pushbench.SawAt(noon, "0.9.0")) },
	} {
		t.Run(name, func(t *testing.T) {
			runs, kept := 0, 0
			for n, reached := 1, true; reached; n++ {
				for m, began := 1, true; began; m++ {
					b := newBench(t)
					begin(b)
					reached, began = false, false
					covers := "" // the writer that was paused after it read the state and before it wrote
					ended, started, held, done := make(chan struct{}), false, make(chan struct{}), make(chan error, 1)
					second := &pausing{Store: registry.Repository{Repository: b.Repo}, before: func(i int, op string) {
						if i == m {
							began = true
							if op == write {
								covers = "second"
							}
							close(held)
							<-ended
						}
					}}
					first := &pausing{Store: registry.Repository{Repository: b.Repo}, before: func(i int, op string) {
						if i != n {
							return
						}
						reached, started = true, true
						go func() {
							done <- pusher.New(b.Options).Session().Writer(pushbench.Destination(second)).UpdateState(t.Context(), pushbench.Widget, other, ignore)
						}()
						select {
						case <-held:
						case err := <-done:
							done <- err
						}
						if op == write && !began {
							covers = "first"
						}
					}}
					if err := pusher.New(b.Options).Session().Writer(pushbench.Destination(first)).UpdateState(t.Context(), pushbench.Widget, mine, ignore); err != nil {
						t.Fatalf("paused before request %d and %d: %v", n, m, err)
					}
					close(ended)
					if !started {
						break
					}
					if err := <-done; err != nil {
						t.Fatalf("paused before request %d and %d: %v", n, m, err)
					}
					runs++
					s := b.State()
					switch {
					case has(s, mine) && has(s, other):
						kept++
					case has(s, other) && covers == "second", has(s, mine) && covers == "first":
					default:
						t.Errorf("paused before request %d and %d: %q covers, the state is %+v", n, m, covers, s)
					}
					b.MustRemember(mine)
					b.MustRemember(other)
					if s := b.State(); !has(s, mine) || !has(s, other) || name == "a state" && len(s.Seen) != 3 {
						t.Errorf("paused before request %d and %d: in the end the state is %+v", n, m, s)
					}
				}
			}
			if runs < 12 || kept < runs/2 {
				t.Errorf("%d runs, both changes survived %d runs", runs, kept)
			}
			t.Logf("%d runs, %d of them kept both changes at once", runs, kept)
		})
	}
}

// TestRememberNotesItsOwnLostState lets a second writer replace the state that the first writer has just written. The second
// state has the whole change of the first writer, but does not note the state of the first writer. The test shows that the
// first writer notes it.
func TestRememberNotesItsOwnLostState(t *testing.T) {
	const read, write = "read " + string(ociaddr.StateTag), "write " + string(ociaddr.StateTag)
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	b := newBench(t)
	b.MustRemember(pushbench.SawAt(noon, "0.9.0"))
	begin := b.Current()
	more := pushbench.SawAt(noon, "1.0.0")
	more.Cooldown = true
	held, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	second := &pausing{Store: registry.Repository{Repository: b.Repo}, before: func(_ int, op string) {
		if op == write {
			close(held)
			<-release
		}
	}}
	var mine digest.Digest
	first := &pausing{Store: registry.Repository{Repository: b.Repo}, before: func(n int, op string) {
		switch {
		case op == write && mine == "":
			go func() {
				done <- pusher.New(b.Options).Session().Writer(pushbench.Destination(second)).UpdateState(t.Context(), pushbench.Widget, more, ignore)
			}()
			<-held
		case op == read && n > 1 && mine == "":
			mine = b.Current()
			close(release)
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}}
	if err := pusher.New(b.Options).Session().Writer(pushbench.Destination(first)).UpdateState(t.Context(), pushbench.Widget, pushbench.SawAt(noon, "1.0.0"), ignore); err != nil {
		t.Fatal(err)
	}
	if got := b.replaced(); mine == begin || !strings.Contains(got, digits(begin)) || !strings.Contains(got, digits(mine)) {
		t.Errorf("the state notes %s, want %s and %s", got, digits(begin), digits(mine))
	}
	if s := b.State(); !s.Cooldown || len(s.Seen) != 2 {
		t.Errorf("the state is %+v", s)
	}
}

// memoryStore is a store in memory, because tests with package synctest cannot use the network.
type memoryStore struct {
	repo.Store
	mu   sync.Mutex
	tags map[string][]byte
}

func (m *memoryStore) FetchReference(_ context.Context, reference string) (ocispec.Descriptor, io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.tags[reference]
	if !ok {
		return ocispec.Descriptor{}, nil, errdef.ErrNotFound
	}
	return ocispec.Descriptor{Size: int64(len(data))}, io.NopCloser(bytes.NewReader(data)), nil
}

func (m *memoryStore) Exists(context.Context, ocispec.Descriptor) (bool, error) { return true, nil }

func (m *memoryStore) Tags(context.Context, string, func([]string) error) error { return nil }

func (m *memoryStore) PushReference(_ context.Context, _ ocispec.Descriptor, content io.Reader, reference string) error {
	data, err := io.ReadAll(content)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tags[reference] = data
	return err
}

// TestRememberTakesTurns shows that, while a call is about to replace the state, another call of the same Pusher does
// not read the state. If its context ends, a call that waits for its turn returns.
func TestRememberTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{tags: map[string][]byte{}}
		p := pusher.New(pusher.Options{})
		noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
		goOn, done := make(chan struct{}), make(chan error, 2)
		paused := &pausing{Store: store, before: func(_ int, op string) {
			if strings.HasPrefix(op, "write") {
				<-goOn
			}
		}}
		go func() {
			done <- p.Session().Writer(pushbench.Destination(paused)).UpdateState(t.Context(), pushbench.Widget, pushbench.SawAt(noon, "1.0.0"), ignore)
		}()
		synctest.Wait()
		asked := 0
		second := &pausing{Store: store, before: func(int, string) { asked++ }}
		go func() {
			done <- p.Session().Writer(pushbench.Destination(second)).UpdateState(t.Context(), pushbench.Widget, pushbench.SawAt(noon, "1.1.0"), ignore)
		}()
		ctx, cancel := context.WithCancelCause(t.Context())
		third := make(chan error, 1)
		go func() {
			third <- p.Session().Writer(pushbench.Destination(second)).UpdateState(ctx, pushbench.Widget, pushbench.SawAt(noon, "1.2.0"), ignore)
		}()
		synctest.Wait()
		if asked > 0 {
			t.Errorf("%d requests while another call was about to write", asked)
		}
		enough := errors.New("enough")
		cancel(enough)
		if err := <-third; !errors.Is(err, enough) {
			t.Errorf("a call that waited: %v", err)
		}
		close(goOn)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		s, _, err := artifact.ReadState(t.Context(), store, pushbench.Widget)
		if err != nil || len(s.Seen) != 2 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// TestRememberImmutable shows that, if the registry does not move the state's tag, the hint explains how to exempt
// that tag from the registry's rule.
func TestRememberImmutable(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, refusal := range pushbench.Refusals {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.Immutable(refusal.Status, refusal.Answer)
			b.MustRemember(pushbench.SawAt(noon, "1.0.0"))
			err := b.Remember(pushbench.SawAt(noon, "1.1.0"))
			var refused *repo.RegistryError
			if !errors.Is(err, repo.ErrImmutable) || !errors.As(err, &refused) || !strings.Contains(err.Error(), refusal.Words) {
				t.Errorf("error %v", err)
			}
			for _, want := range []string{"the tag ocibridge-state", "exclude ocibridge-* from the project's tag immutability rules", "IMMUTABLE_WITH_EXCLUSION --image-tag-mutability-exclusion-filters filterType=WILDCARD,filter=ocibridge-*"} {
				if !strings.Contains(hint.Of(err), want) {
					t.Errorf("the hint lacks %q: %s", want, hint.Of(err))
				}
			}
			b.MustRemember(pushbench.SawAt(noon, "1.0.0")) // this succeeds, because the state already has the age
		})
	}
}

// TestRememberInAnotherProvidersRepository shows that updateState writes nothing if the state or a version names
// another provider. It does not replace an invalid state either.
func TestRememberInAnotherProvidersRepository(t *testing.T) {
	gadget := provider.MustParseAddress(pushbench.Host + "/acme/gadget")
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	b := newBench(t)
	b.MustPush()
	refused := func(a provider.Address, want error) {
		t.Helper()
		b.Registry.Reset()
		err := pusher.New(b.Options).Session().Writer(pushbench.Destination(registry.Repository{Repository: b.Repo})).UpdateState(t.Context(), a, pushbench.SawAt(noon, "1.0.0"), ignore)
		if !errors.Is(err, want) || hint.Of(err) == "" {
			t.Errorf("%v (%s)", err, hint.Of(err))
		}
		if n := b.Registry.Count(recorder.Writes()); n > 0 {
			t.Errorf("%d writes", n)
		}
	}
	refused(gadget, repo.ErrOccupied)
	b.MustRemember(pushbench.SawAt(noon, "1.0.0"))
	refused(gadget, repo.ErrOccupied)
	b.PushManifest(ocispec.MediaTypeImageManifest, []byte(fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":%q,"size":2},"layers":[]}`,
		ocispec.MediaTypeImageManifest, ocispec.DescriptorEmptyJSON.Digest)), string(ociaddr.StateTag))
	refused(pushbench.Widget, artifact.ErrNotProvider)
}

// TestRememberWithoutEnd shows that updateState gives up if another writer replaces the state after each write.
func TestRememberWithoutEnd(t *testing.T) {
	b := newBench(t)
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	empty, err := artifact.EncodeState(artifact.State{Owner: pushbench.Widget})
	if err != nil {
		t.Fatal(err)
	}
	b.MustRemember(pushbench.SawAt(noon, "0.9.0"))
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, string(ociaddr.StateTag)) {
			return false
		}
		w.Header().Set("Content-Type", empty.Descriptor.MediaType)
		w.Header().Set("Docker-Content-Digest", empty.Descriptor.Digest.String())
		w.Write(empty.Data)
		return true
	})
	b.Registry.Reset()
	if err := b.Remember(pushbench.SawAt(noon, "1.0.0")); err == nil || hint.Of(err) == "" || b.Registry.Count() > 50 {
		t.Errorf("%v after %d requests", err, b.Registry.Count())
	}
}

// bench is the bench of this package's tests.
type bench struct{ *pushbench.Bench }

func newBench(t *testing.T) *bench { return &bench{pushbench.New(t)} }

// ignore ignores a warning.
func ignore(string, ...any) {}
