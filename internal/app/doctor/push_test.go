package doctor

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// contents returns the repository's tags and the number of its manifests.
func (b *bench) contents() string {
	b.t.Helper()
	c, err := b.registry.Contents("acme/null")
	if err != nil {
		b.t.Fatal(err)
	}
	return fmt.Sprint(c.TagNames(), len(c.Manifests))
}

const (
	empty    = "[] 0"
	stays    = "[ocibridge-doctor.may-be-deleted] 3" // the index, a package and evidence
	untagged = "[] 3"
)

// harbor returns a bench whose registry behaves like Harbor. The client logs in as a robot that lacks the given
// rights.
func harbor(t *testing.T, lacks ...string) *bench {
	t.Helper()
	for _, p := range quirks.Profiles() {
		if p.Name != "harbor" {
			continue
		}
		p.Settings.User = "robot$acme+ci"
		p.Settings.Lacks = lacks
		b := newBench(t, p.Settings)
		b.registry.Create("acme")
		b.login(p.Settings.User, p.Settings.Password)
		return b
	}
	t.Fatal("no profile harbor")
	return nil
}

// TestWriteOnHarbor shows that nothing remains in Harbor if the robot is allowed to delete. Otherwise, the same
// tag and manifests remain after each run. Harbor cannot delete a tag without its manifest.
func TestWriteOnHarbor(t *testing.T) {
	b := harbor(t, "delete")
	for range 3 {
		got := b.examine(true)
		want(t, got, "versions", OK, "")
		want(t, got, "removal", Warn, "the test version stays, as the tag ocibridge-doctor.may-be-deleted and 3 manifests: ")
		if !strings.Contains(got["removal"].Hint, "delete the tag ocibridge-doctor.may-be-deleted") {
			t.Errorf("%+v", got["removal"])
		}
		if c := b.contents(); c != stays {
			t.Errorf("the repository has %s, want %s", c, stays)
		}
	}
	b.registry.Set(func(s *quirks.Settings) { s.Lacks = nil })
	for range 2 { // the first run also deletes the manifests of earlier runs
		want(t, b.examine(true), "removal", OK, "no tag and no manifest of it is left")
		if c := b.contents(); c != empty {
			t.Errorf("the repository has %s, want %s", c, empty)
		}
	}
}

// TestWriteWhereTagsAreImmutable shows that a run succeeds even if a rule protects the tag that an earlier run
// has left.
func TestWriteWhereTagsAreImmutable(t *testing.T) {
	b := harbor(t, "delete")
	b.registry.Set(func(s *quirks.Settings) { s.Immutable = http.StatusPreconditionFailed })
	for range 2 {
		got := b.examine(true)
		want(t, got, "versions", OK, "")
		want(t, got, "removal", Warn, "the test version stays, as the tag")
		if c := b.contents(); c != stays {
			t.Errorf("the repository has %s, want %s", c, stays)
		}
	}
}

// TestWriteWhereTheTagIsAnothers shows that if the tag names another manifest and cannot be moved, a run tries
// only once.
func TestWriteWhereTheTagIsAnothers(t *testing.T) {
	b := newBench(t, quirks.Settings{})
	x := b.repository()
	config := artifact.Config()
	if err := x.Store.Push(t.Context(), config.Descriptor, bytes.NewReader(config.Data)); err != nil {
		t.Fatal(err)
	}
	placeholder, err := artifact.Placeholder("")
	if err == nil {
		err = x.Store.PushReference(t.Context(), placeholder.Descriptor, bytes.NewReader(placeholder.Data), writeTag)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.registry.Set(func(s *quirks.Settings) { s.Immutable = http.StatusPreconditionFailed })
	before := b.rec.Count(recorder.Method(http.MethodPut), recorder.PathSuffix(writeTag))
	want(t, b.examine(true), "versions", Fail, "immutable")
	if n := b.rec.Count(recorder.Method(http.MethodPut), recorder.PathSuffix(writeTag)); n != before+1 {
		t.Errorf("the tag was tried %d times", n-before)
	}
	if c := b.contents(); c != "[ocibridge-doctor.may-be-deleted] 1" {
		t.Errorf("the repository has %s", c)
	}
}

// TestWriteWhereManifestsStay shows what the report says about manifests that remain, because the registry
// deletes nothing or deletes only tags.
func TestWriteWhereManifestsStay(t *testing.T) {
	b := newBench(t, quirks.Settings{Deletes: quirks.Deletes{NoDelete: true}})
	for range 2 {
		want(t, b.examine(true), "removal", Warn, "as the tag ocibridge-doctor.may-be-deleted and 3 manifests: ")
		if c := b.contents(); c != stays {
			t.Errorf("the repository has %s, want %s", c, stays)
		}
	}
	b = newBench(t, quirks.Settings{})
	b.rec.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete || !strings.Contains(r.URL.Path, "sha256:") {
			return false
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
		return true
	})
	for range 2 {
		got := b.examine(true)
		want(t, got, "removal", Warn, "the test version stays, as 3 manifests without a tag: ")
		if strings.Contains(got["removal"].Hint, writeTag) || !strings.Contains(got["removal"].Hint, "garbage collection") {
			t.Errorf("%+v", got["removal"])
		}
		if c := b.contents(); c != untagged {
			t.Errorf("the repository has %s, want %s", c, untagged)
		}
	}
}

// TestWritesAtOnce shows that a run succeeds even if a concurrent run deletes its manifests before it stores the
// index. Concurrent runs write the same manifests.
func TestWritesAtOnce(t *testing.T) {
	b := newBench(t, quirks.Settings{})
	other := false
	b.rec.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if other || r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, writeTag) {
			return false
		}
		other = true
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN","message":"blob unknown to registry"}]}`)
		return true
	})
	x := b.repository()
	x.Write = true
	r := x.Examine(t.Context())
	got := checks(t, r)
	want(t, got, "versions", OK, "")
	want(t, got, "removal", OK, "gone")
	if len(got) != len(r.Checks) {
		t.Errorf("a check occurs twice: %+v", r.Checks)
	}
	if c := b.contents(); !other || c != empty {
		t.Errorf("the repository has %s, want %s", c, empty)
	}
	// A manifest that was stored twice is counted once.
	other = false
	b.registry.Set(func(s *quirks.Settings) { s.NoDelete = true })
	want(t, b.examine(true), "removal", Warn, "and 3 manifests: ")
	if c := b.contents(); !other || c != stays {
		t.Errorf("the repository has %s, want %s", c, stays)
	}
}

// TestWriteOnDistribution shows that nothing remains in both versions of the distribution registry. The older
// one cannot delete a tag without its manifest.
func TestWriteOnDistribution(t *testing.T) {
	for _, program := range registry.Programs {
		t.Run(string(program), func(t *testing.T) {
			r := registry.For(t, registry.Options{Program: program})
			addr := ociaddr.Repository{Registry: ociaddr.Registry(r.Addr), Name: "acme/null"}
			c := auth.New(auth.Options{Wire: wire.Options{PlainHTTP: true}})
			repo, err := c.Repository(t.Context(), addr)
			if err != nil {
				t.Fatal(err)
			}
			x := Repository{Subject: null, Address: addr, Store: repo, Write: true, Explain: func(err error) error { return c.Explain(err, addr) }}
			for range 2 {
				got := checks(t, x.Examine(t.Context()))
				want(t, got, "versions", OK, "")
				want(t, got, "removal", OK, "gone")
				found, err := r.Contents(addr.Name)
				if err != nil {
					t.Fatal(err)
				}
				if len(found.Tags)+len(found.Manifests) != 0 {
					t.Errorf("the repository has %+v", found)
				}
			}
		})
	}
}
