package quirks_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
)

// shelf is a repository of indexes in a registry without access control. Each index has a name for messages.
type shelf struct {
	t *testing.T
	q *quirks.Registry
	// names maps the digest of an index to its name.
	names map[digest.Digest]string
}

// newShelf returns an empty repository in a registry that deletes as the named profile does.
func newShelf(t *testing.T, name string) *shelf {
	p := profile(t, name)
	q := quirks.For(t, quirks.Settings{Deletes: p.Deletes, Content: quirks.Content{ImmutableHolds: p.ImmutableHolds}})
	return &shelf{t, q, map[digest.Digest]string{}}
}

// push pushes an index with the given children. The reference is tag, or the digest of the index if tag is "".
func (s *shelf) push(tag, name string, children ...digest.Digest) digest.Digest {
	s.t.Helper()
	list := make([]string, len(children))
	for i, d := range children {
		list[i] = fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.index.v1+json","digest":%q,"size":%d}`, d, 1)
	}
	text := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","annotations":{"name":%q},"manifests":[%s]}`, name, strings.Join(list, ","))
	d := digest.FromString(text)
	reference := d.String()
	if tag != "" {
		reference = tag
	}
	if w := ask(s.q, http.MethodPut, "/v2/acme/x/manifests/"+reference, text, "Content-Type", "application/vnd.oci.image.index.v1+json"); w.Code != 201 {
		s.t.Fatalf("push %s: %d %s", name, w.Code, w.Body)
	}
	s.names[d] = name
	return d
}

// delete deletes a manifest or tag. It fails the test unless the status and body of the response begin with
// want.
func (s *shelf) delete(reference, want string) {
	s.t.Helper()
	w := ask(s.q, http.MethodDelete, "/v2/acme/x/manifests/"+reference, "")
	if got := fmt.Sprintf("%d %s", w.Code, w.Body); !strings.HasPrefix(got, want) {
		s.t.Errorf("delete %s: %s, want %s", s.names[digest.Digest(reference)]+reference, got, want)
	}
}

// has fails the test unless the repository contains exactly the manifests in want. The name of each manifest
// is followed by its tags, as in "one:1:2".
func (s *shelf) has(want string) {
	s.t.Helper()
	c, err := s.q.Contents("acme/x")
	if err != nil {
		s.t.Fatal(err)
	}
	var got []string
	for d := range maps.Keys(c.Manifests) {
		got = append(got, strings.Join(append([]string{s.names[d]}, c.TagsOf(d)...), ":"))
	}
	slices.Sort(got)
	if got := strings.Join(got, " "); got != want {
		s.t.Errorf("there are %q, want %q", got, want)
	}
}

const (
	noTagDelete = `400 {"errors":[{"code":"UNSUPPORTED","message":"unsupported digest: invalid checksum digest format"}]}`
	isChild     = `412 {"errors":[{"code":"VIOLATE_FOREIGN_KEY_CONSTRAINT","message":"the deleting artifact is referenced by others"}]}`
)

// harborDeletesTag and the other harbor functions below are rows of [TestHarborMeasured].
func harborDeletesTag(t *testing.T) {
	s := newShelf(t, "harbor")
	s.push("1", "one")
	s.delete("1", noTagDelete)
	s.delete("9", noTagDelete)
	s.has("one:1")
}

func harborDeletes(t *testing.T) {
	s := newShelf(t, "harbor")
	linux, darwin, shared := s.push("", "linux"), s.push("", "darwin"), s.push("", "shared")
	tagged := s.push("tagged", "tagged")
	one := s.push("1", "one", linux, darwin, shared, tagged)
	s.push("2", "one", linux, darwin, shared, tagged)
	other := s.push("3", "other", shared)
	s.delete(linux.String(), isChild)
	s.delete(shared.String(), isChild)
	s.has("darwin linux one:1:2 other:3 shared tagged:tagged")

	// Deleting an index also deletes its tags. It also deletes the children that have no tag and that no other
	// index names.
	s.delete(one.String(), "202")
	s.has("other:3 shared tagged:tagged")
	s.delete(one.String(), "404")
	s.delete(other.String(), "202")
	s.has("tagged:tagged")
	s.delete(tagged.String(), "202")
	s.has("")
}

// harborTagMoves shows that when a tag moves to another index, the first index and its children stay.
func harborTagMoves(t *testing.T) {
	s := newShelf(t, "harbor")
	linux, darwin := s.push("", "linux"), s.push("", "darwin")
	first := s.push("1", "first", linux, darwin)
	second := s.push("1", "second", linux)
	s.has("darwin first linux second:1")
	s.delete(darwin.String(), isChild)
	s.delete(first.String(), "202")
	s.has("linux second:1")
	s.delete(second.String(), "202")
	s.has("")
}

// TestHarborNestedIndexes shows that deleting an index also deletes the children of its children, unless
// another index names them.
func TestHarborNestedIndexes(t *testing.T) {
	s := newShelf(t, "harbor")
	leaf, shared := s.push("", "leaf"), s.push("", "shared")
	inner := s.push("", "inner", leaf, shared)
	outer := s.push("1", "outer", inner)
	s.push("", "keeper", shared)
	s.delete(outer.String(), "202")
	s.has("keeper shared")
}

func harborImmutable(t *testing.T) {
	s := newShelf(t, "harbor")
	child := s.push("", "child")
	one := s.push("1", "one", child)
	free := s.push("free", "free")
	s.q.Set(func(set *quirks.Settings) {
		set.Immutable, set.ImmutableCode = http.StatusPreconditionFailed, "PRECONDITION"
		set.Mutable = func(tag string) bool { return tag == "free" }
	})
	// Harbor refuses every push to an immutable tag, even of the manifest that the tag already names.
	for _, text := range []string{emptyIndex, emptyIndex + "\n"} {
		want := `{"errors":[{"code":"PRECONDITION","message":"Failed to process request due to 'x:1' configured as immutable."}]}`
		w := ask(s.q, http.MethodPut, "/v2/acme/x/manifests/1", text, "Content-Type", "application/vnd.oci.image.index.v1+json")
		if w.Code != 412 || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("push to an immutable tag: %d %s", w.Code, w.Body)
		}
	}
	s.delete(one.String(), `412 {"errors":[{"code":"PRECONDITION","message":"the tag 1 configured as immutable, cannot be deleted"}]}`)
	s.has("child free:free one:1")
	moved := s.push("free", "moved")
	s.delete(moved.String(), "202")
	s.delete(free.String(), "202")
	s.push("2", "another")
	s.has("another:2 child one:1")
}

// TestDeletesByProfile shows how each profile responds to the deletion of a tag, of a tagged manifest, of a
// child of an index, and of any other manifest.
func TestDeletesByProfile(t *testing.T) {
	wants := map[string]struct{ tag, tagged, child, rest string }{
		"distribution":     {"202", "202", "202", "202"},
		"distribution-2.8": {`400 {"errors":[{"code":"DIGEST_INVALID"`, "202", "202", "202"},
		"harbor":           {noTagDelete, "202", isChild, "202"},
		"ghcr":             {"405", "405", "405", "405"},
		"ecr":              {"202", "202", "202", "202"},
		"acr":              {"405", "202", "202", "202"},
		"gar":              {"202", "400", "202", "202"},
		"quay":             {"202", "202", "202", "202"},
		"gitlab":           {"202", "202", "409", "202"},
		"dockerhub":        {"405", "403", "403", "202"},
		"artifactory":      {"202", "202", "202", "202"},
	}
	for _, p := range quirks.Profiles() {
		t.Run(p.Name, func(t *testing.T) {
			want, ok := wants[p.Name]
			if !ok {
				t.Fatal("no answers are listed for this profile")
			}
			s := newShelf(t, p.Name)
			s.push("2", "two")
			s.delete("2", want.tag)
			child := s.push("", "child")
			tagged := s.push("1", "tagged", child)
			s.delete(child.String(), want.child)
			s.delete(tagged.String(), want.tagged)
			s.delete(s.push("", "rest").String(), want.rest)
		})
	}
}
