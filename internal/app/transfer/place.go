package transfer

import (
	"errors"
	"fmt"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/templates"
)

// checkRepositories checks that the target has a repository for everything that is selected, and
// that it is not the source's.
func (c Copy) checkRepositories(r *registry.Repositories, all selection) error {
	for _, kind := range subject.Kinds {
		if c.To.Kind != Template || len(r.Templates.Of(kind)) > 0 {
			continue
		}
		reason := fmt.Sprintf("--to %s is a template for %ss, and has no place for %ss", c.To.Name, templates.KindOf(c.To.Name), kind)
		if err := c.leave(all, kind, hint.New(reason, "copy the %ss to a template with %s", kind, templates.NamesOf(kind))); err != nil {
			return err
		}
	}
	for _, of := range all.list() {
		to, err := r.Templates.Repository(of.Subject)
		if err := differs(of.Subject, of.Repository, to, err); err != nil {
			return err
		}
	}
	return nil
}

// differs returns an error if the repositories of a copy are the same. It returns err if err is
// not nil.
func differs(what fmt.Stringer, from, to ociaddr.Repository, err error) error {
	if err == nil && to == from {
		err = hint.Wrap(fmt.Errorf("%s is stored in %s, and %w", what, to, ErrSameRepository), "let --from and --to name different places")
	}
	return err
}

// ErrNoPlace means that the target of a copy holds providers only, or modules only.
var ErrNoPlace = errors.New("no place")

// leave removes everything of a kind from the selection. That is only a warning if the copy
// includes everything and something remains. Otherwise leave returns reason.
func (c Copy) leave(all selection, kind subject.Kind, reason error) error {
	n := len(all[kind])
	if n == 0 {
		return nil
	}
	if !c.everything() || len(all) == 1 {
		return noPlace{reason}
	}
	c.Progress.Warn(fmt.Sprintf("not copied: %s, because %v", hint.Count(n, string(kind)), reason))
	delete(all, kind)
	return nil
}

// noPlace is a reason that is also ErrNoPlace.
type noPlace struct{ error }

func (e noPlace) Unwrap() error        { return e.error }
func (e noPlace) Is(target error) bool { return target == ErrNoPlace }
