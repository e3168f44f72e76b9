package quirks

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/testkit/contents"
)

// Deletes decides what a registry deletes, and what it deletes along with that.
type Deletes struct {
	// NoDelete refuses to delete anything.
	NoDelete bool
	// NoDeleteTag refuses to delete only a tag, NoDeleteTagged a manifest with a tag (the message then ends
	// with the tag), and NoDeleteChild a manifest that an index names. Nil allows it.
	NoDeleteTag, NoDeleteTagged, NoDeleteChild *Refusal
	// DeletesChildren deletes the children of an index with the index. It keeps children
	// that have a tag, and children that another index names.
	DeletesChildren bool
}

// Refusal is a registry's error.
type Refusal struct {
	Status        int
	Code, Message string
}

func (f Refusal) answer(w http.ResponseWriter) { refuse(w, f.Status, f.Code, f.Message) }

// unsupported is the answer of distribution to operations that are switched off.
var unsupported = Refusal{http.StatusMethodNotAllowed, "UNSUPPORTED", "The operation is unsupported."}

// delete answers deletions of manifests, tags and blobs.
func (q *Registry) delete(w http.ResponseWriter, r request) bool {
	switch {
	case r.s.NoDelete:
		unsupported.answer(w)
		return true
	case r.kind != "manifests":
		return false
	case !strings.Contains(r.ref, ":"):
		if r.s.NoDeleteTag != nil {
			r.s.NoDeleteTag.answer(w)
		}
		return r.s.NoDeleteTag != nil
	case r.s.NoDeleteTagged == nil && r.s.NoDeleteChild == nil && !r.s.DeletesChildren && !r.s.ImmutableHolds:
		return false
	}
	// Deletions run one at a time, so that each sees the remaining manifests.
	q.deletes.Lock()
	defer q.deletes.Unlock()
	c, err := q.Contents(r.name)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "UNKNOWN", err.Error())
		return true
	}
	d := digest.Digest(r.ref)
	if f := r.mayNotDelete(c, d); f != nil {
		f.answer(w)
		return true
	}
	answer := q.ask(r, http.MethodDelete, r.URL.Path)
	if answer.Code == http.StatusAccepted && r.s.DeletesChildren {
		q.deleteChildren(r, c, d)
	}
	for key, values := range answer.Header() {
		w.Header()[key] = values
	}
	w.WriteHeader(answer.Code)
	w.Write(answer.Body.Bytes())
	return true
}

// mayNotDelete returns why the registry keeps a manifest, or nil if it deletes it.
func (r request) mayNotDelete(c *contents.Contents, d digest.Digest) *Refusal {
	tags := c.TagsOf(d)
	if r.s.NoDeleteChild != nil && len(c.Parents(d)) > 0 {
		return r.s.NoDeleteChild
	}
	if r.s.NoDeleteTagged != nil && len(tags) > 0 {
		f := *r.s.NoDeleteTagged
		f.Message += ": " + tags[0]
		return &f
	}
	for _, tag := range tags {
		if r.s.ImmutableHolds && r.immutable(tag) {
			return &Refusal{r.s.Immutable, r.s.ImmutableCode, fmt.Sprintf("the tag %s configured as immutable, cannot be deleted", tag)}
		}
	}
	return nil
}

// deleteChildren deletes the children of a deleted index, and removes the index from c.
func (q *Registry) deleteChildren(r request, c *contents.Contents, index digest.Digest) {
	children := c.Manifests[index]
	delete(c.Manifests, index)
	for _, child := range children {
		_, there := c.Manifests[child]
		if there && len(c.TagsOf(child)) == 0 && len(c.Parents(child)) == 0 {
			q.ask(r, http.MethodDelete, "/v2/"+r.name+"/manifests/"+child.String())
			q.deleteChildren(r, c, child)
		}
	}
}

// Contents returns the content of a repository. It fails for a registry that was not created by [For], because
// its folder is unknown.
func (q *Registry) Contents(repository string) (*contents.Contents, error) {
	if q.dir == "" {
		return nil, errors.New("the folder of the registry behind is not known")
	}
	return contents.Read(q.dir, repository)
}
