package pusher

import (
	"context"
	"errors"
	"slices"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// canRemove finds out whether the registry can remove announcements. It removes one that a
// push has left behind, or else a probe: a manifest without meaning.
func (w *push) canRemove(ctx context.Context) (bool, error) {
	if isDockerHub(w.dest.Repository.Registry) || w.dest.Store.Remote() == nil { // a bundle only grows
		return false, nil
	}
	end, err := w.takeTurn(ctx, w.dest.Repository) // one push finds out for all
	if err != nil {
		return false, err
	}
	defer end()
	if known, ok := w.removable.Load(w.dest.Repository); ok {
		return known.(bool), nil
	}
	tried, can, err := w.removeLeftover(ctx)
	if err == nil && !tried {
		can, err = w.removeProbe(ctx)
	}
	if err != nil {
		return false, ctx.Err() // without an answer, this push announces nothing; the next one tries again
	}
	w.removable.Store(w.dest.Repository, can)
	return can, nil
}

// isDockerHub reports whether a registry is Docker Hub. It deletes neither tags nor
// manifests that have a tag, so that it cannot remove announcements.
func isDockerHub(r ociaddr.Registry) bool {
	switch r {
	case "docker.io", "index.docker.io", "registry-1.docker.io":
		return true
	}
	return false
}

// removeLeftover removes an announcement of any version that no push needs. If a rule about
// tags forbids that, it forbids every removal, and each push would leave an announcement
// behind.
func (w *push) removeLeftover(ctx context.Context) (tried, can bool, err error) {
	c := &cleaner{w.release.Provider(), w.dest.Store, w.clock, w.o.Now, w.recent}
	tags, err := c.recent.list(ctx, w.dest.Store, w.o.Now)
	if err != nil {
		return false, false, w.registryError("list tags of", err)
	}
	for _, v := range announcedVersions(tags) {
		if !slices.ContainsFunc(tags, isTagOf(v)) {
			continue // the version is not tagged yet, so that a push may need its announcement
		}
		removed, err := c.clean(ctx, v)
		var refused *removeError
		switch {
		case errors.As(err, &refused) && cannotDelete(err):
			return true, false, nil
		case ctx.Err() != nil:
			return false, false, context.Cause(ctx)
		case err != nil:
			continue // the probe finds out
		case removed > 0:
			return true, true, nil
		}
	}
	return false, false, nil
}

// removeProbe finds out whether this login can delete a manifest without a tag.
func (w *push) removeProbe(ctx context.Context) (bool, error) {
	probe, err := artifact.Placeholder("")
	if err != nil {
		return false, err
	}
	err = w.sendBlob(ctx, "push config to", artifact.Config())
	if err == nil {
		err = w.put(ctx, probe, "")
		if refusesContent(err) {
			return true, nil // GitLab refuses such a manifest. The first announcement shows whether it can be removed
		}
	}
	if err == nil {
		err = w.dest.Store.Delete(ctx, probe.Descriptor)
	}
	switch {
	case err == nil, isNotFound(err): // another push has deleted it
		return true, nil
	case cannotDelete(err):
		return false, nil
	}
	return false, err
}
