package gitfiles

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// Refs are the tags and branches of a remote repository.
type Refs struct {
	name   string // of the repository, for errors
	head   plumbing.Hash
	branch string                   // the branch that HEAD names; "" if HEAD names a commit
	refs   map[string]plumbing.Hash // all references that the server lists, except HEAD
	peeled map[string]plumbing.Hash // the commits of annotated tags
}

// List reads the references of a remote repository. An error can wrap [ErrNoRepository].
func List(ctx context.Context, o Options, url string) (*Refs, error) {
	remote, err := connect(ctx, o, standard.refs, url)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", display(url), err)
	}
	return remote.refs, nil
}

// Resolve returns the commit that a client of the given depth would get for a reference, without its tree. The error wraps
// [ErrNoRef] if the repository has no such reference. An abbreviated commit is an error, and a full commit is not checked.
func (r *Refs) Resolve(ref string, depth int) (Commit, error) {
	w, err := r.choose(ref, depth)
	switch {
	case err != nil:
		return Commit{}, fmt.Errorf("%s: %w", r.name, err)
	case w.abbreviated != "":
		return Commit{}, hint.New(fmt.Sprintf("%s: %s is an abbreviated commit, and only the whole history tells its full name", r.name, ref), "name a tag or the full commit")
	}
	return w.commit, nil
}

// newRefs returns the references that a server lists.
func newRefs(name string, adv *packp.AdvRefs) *Refs {
	r := &Refs{name: name, refs: adv.References, peeled: adv.Peeled}
	if adv.Head != nil {
		r.head = *adv.Head
	}
	for _, link := range adv.Capabilities.Get(capability.SymRef) {
		if to, ok := strings.CutPrefix(link, "HEAD:refs/heads/"); ok {
			r.branch = to
		}
	}
	return r
}

// wanted is what a client would check out.
type wanted struct {
	id          plumbing.Hash // of a tag or a commit; zero for an abbreviated commit
	listed      bool          // the server lists the ID
	commit      Commit        // without the tree
	abbreviated string        // the first digits of a commit
	otherwise   *wanted       // the branch with the name of an abbreviated commit that does not exist
}

var (
	fullCommit        = regexp.MustCompile(`^[0-9a-fA-F]{40}$`)
	abbreviatedCommit = regexp.MustCompile(`^[0-9a-fA-F]{4,39}$`)
)

const helpRef = "a reference is the name of a tag or branch, or a commit of 4 to 40 digits"

// choose returns what a client would check out.
//
// Clients clone the repository, and then give the reference to Git. So the rules of "git rev-parse" decide, among the
// references of a clone: all tags, the default branch, and the branches of the remote repository. With a depth, clients
// pass the name to "git clone --branch" instead.
func (r *Refs) choose(ref string, depth int) (*wanted, error) {
	if strings.HasPrefix(ref, "-") || len(ref) > 255 || strings.ContainsFunc(ref, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return nil, hint.Wrap(fmt.Errorf("%w: %.80q", ErrNoRef, ref), helpRef)
	}
	switch {
	case ref == "" && !r.head.IsZero():
		return r.named("HEAD", r.head), nil
	case ref == "":
		return nil, hint.Wrap(fmt.Errorf("%w: HEAD", ErrNoRef), "the repository has no default branch: name a tag or branch")
	case depth > 0:
		return r.chooseNamed(ref)
	case fullCommit.MatchString(ref):
		return r.full(plumbing.NewHash(ref)), nil
	}
	if name, id, ok := r.find(ref); ok {
		return r.unambiguous(ref, name, id)
	}
	var branch *wanted
	for _, candidate := range []string{"refs/remotes/origin/" + ref, "refs/tags/" + ref} {
		if name, id, ok := r.find(candidate); ok && branch == nil {
			branch = r.named(name, id)
		}
	}
	if abbreviatedCommit.MatchString(ref) {
		return &wanted{abbreviated: strings.ToLower(ref), otherwise: branch}, nil
	}
	if branch == nil {
		return nil, hint.Wrap(fmt.Errorf("%w: %s", ErrNoRef, ref), helpRef)
	}
	return branch, nil
}

// chooseNamed returns what "git clone --branch" checks out.
func (r *Refs) chooseNamed(ref string) (*wanted, error) {
	for _, name := range []string{"refs/heads/" + ref, "refs/tags/" + ref} {
		if id, ok := r.refs[name]; ok {
			return r.named(name, id), nil
		}
	}
	return nil, hint.Wrap(fmt.Errorf("%w: %s", ErrNoRef, ref), "with ?depth= clients find only tags and branches: remove depth for a commit")
}

// find looks up a name as "git rev-parse" does in a clone. It returns the name of the reference in the remote repository.
func (r *Refs) find(ref string) (string, plumbing.Hash, bool) {
	for _, prefix := range []string{"", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/"} {
		if name := r.inClone(prefix + ref); name != "" {
			return name, r.id(name), true
		}
	}
	if name := r.inClone("refs/remotes/" + ref + "/HEAD"); name != "" {
		return name, r.id(name), true
	}
	return "", plumbing.ZeroHash, false
}

// inClone returns the name in the remote repository of a reference in a clone, or "".
func (r *Refs) inClone(name string) string {
	switch branch, remote := strings.CutPrefix(name, "refs/remotes/origin/"); {
	case name == "HEAD", remote && branch == "HEAD":
		name = "HEAD"
	case remote:
		name = "refs/heads/" + branch
	case name == "refs/heads/"+r.branch, strings.HasPrefix(name, "refs/tags/"):
	default:
		return ""
	}
	if r.id(name).IsZero() {
		return ""
	}
	return name
}

func (r *Refs) id(name string) plumbing.Hash {
	if name == "HEAD" {
		return r.head
	}
	return r.refs[name]
}

// unambiguous refuses the name of a tag that is also the default branch: OpenTofu gets the tag, Terraform the branch.
func (r *Refs) unambiguous(ref, name string, id plumbing.Hash) (*wanted, error) {
	tag := r.named(name, id)
	branch := "refs/heads/" + r.branch
	if other := r.refs[branch]; ref == r.branch && name != branch && other.String() != tag.commit.Commit {
		return nil, hint.Wrap(refuse("%s is a tag (%s) and the default branch (%s), and clients differ in which one they prefer", ref, tag.commit.Commit, other),
			"name refs/tags/%s or refs/heads/%s", ref, ref)
	}
	return tag, nil
}

// named returns what a listed reference names.
func (r *Refs) named(name string, id plumbing.Hash) *wanted {
	w := &wanted{id: id, listed: true, commit: Commit{Commit: id.String()}}
	if commit, ok := r.peeled[name]; ok {
		w.commit = Commit{Commit: commit.String(), TagObject: id.String()}
	}
	return w
}

// full returns the commit, or the annotated tag, of an ID.
func (r *Refs) full(id plumbing.Hash) *wanted {
	for name, listed := range r.refs {
		if listed == id {
			return r.named(name, id)
		}
	}
	return &wanted{id: id, listed: id == r.head, commit: Commit{Commit: id.String()}}
}
