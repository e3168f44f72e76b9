package quirks

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/test/testkit/contents"
)

// Deletes describes which deletions a registry allows, and what else a deletion removes.
type Deletes struct {
	// NoDelete refuses to delete anything.
	NoDelete bool
	// The registry refuses certain deletions with these errors; nil allows the deletion. NoDeleteTag refuses the
	// deletion of a tag alone. NoDeleteTagged refuses the deletion of a manifest that has a tag, and the tag is
	// appended to the message. NoDeleteChild refuses the deletion of a manifest that an index names.
	NoDeleteTag, NoDeleteTagged, NoDeleteChild *Refusal
	// DeletesChildren deletes the children of an index with the index. A child stays if it has a tag or if
	// another index names it.
	DeletesChildren bool
}

// Refusal is an error with which a registry refuses a request.
type Refusal struct {
	Status        int
	Code, Message string
}

func (f Refusal) answer(w http.ResponseWriter) { refuse(w, f.Status, f.Code, f.Message) }

// unsupported is distribution's error for operations that are disabled.
var unsupported = Refusal{http.StatusMethodNotAllowed, "UNSUPPORTED", "The operation is unsupported."}

// delete handles requests to delete manifests, tags and blobs.
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
	// Deletions run one at a time, because each deletion depends on the manifests that the previous deletion
	// left.
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

// mayNotDelete returns the error that refuses the deletion of a manifest, or nil if the deletion is allowed.
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

// deleteChildren removes a deleted index from c. It deletes each child of the index that has no tag and that
// no other index names.
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
