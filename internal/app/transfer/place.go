package transfer

import (
	"errors"
	"fmt"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// checkRepositories checks that the target has a repository for everything that is selected, and
// that it is not the source's.
func (c Copy) checkRepositories(r *registry.Repositories, all selection) error {
	if len(r.Templates.Of(subject.Module)) == 0 && c.To.Kind == Template {
		if err := c.leave(all, subject.Module, hint.New("--to "+c.To.Name+" is a template for providers, and has no place for modules", "copy the modules to a template with ${name} and ${system}")); err != nil {
			return err
		}
	}
	if len(r.Templates.Of(subject.Provider)) == 0 && c.To.Kind == Template {
		if err := c.leave(all, subject.Provider, hint.New("--to "+c.To.Name+" is a template for modules, and has no place for providers", "copy the providers to a template with ${type}")); err != nil {
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
