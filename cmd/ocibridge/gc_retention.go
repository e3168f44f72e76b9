package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// limitFlag is a flag with a duration or a size in the syntax of ocibridge.hcl, or 0.
type limitFlag[T ~int64] struct {
	value T
	text  string
	parse func(string) (T, error)
}

func (f *limitFlag[T]) String() string {
	if f.text == "" {
		return "0"
	}
	return f.text
}

// Type returns the name of the flag's value, which its usage text replaces.
func (f *limitFlag[T]) Type() string { return "limit" }

func (f *limitFlag[T]) Set(text string) error {
	if text == "0" {
		f.value, f.text = 0, text
		return nil
	}
	value, err := f.parse(text)
	if err == nil {
		f.value, f.text = value, text
	}
	return err
}

// collection is the result of gc.
type collection struct {
	// Removed are the versions that the retention has removed. In a dry run, they are the versions
	// that it would remove.
	Removed []removedVersion `json:"removed"`
	embedded.Garbage
}

func newCollection() *collection {
	return &collection{Garbage: embedded.Garbage{Repositories: []string{}}, Removed: []removedVersion{}}
}

// removedVersion is a version that the retention removes.
type removedVersion struct {
	Provider provider.Address `json:"provider"`
	Version  provider.Version `json:"version"`
	Reason   embedded.Reason  `json:"reason"`
	LastUsed time.Time        `json:"last_used"`
	Bytes    int64            `json:"bytes"` // what its removal frees
}

// add adds an expired version.
func (c *collection) add(back *registry.Repositories, e embedded.Expired) error {
	a, v, err := expiredVersion(back, e)
	if err == nil {
		c.Removed = append(c.Removed, removedVersion{a, v, e.Reason, e.LastUsed.UTC().Truncate(time.Second), e.Bytes})
	}
	return err
}

// found reports whether there is anything to remove or to free.
func (c *collection) found() bool {
	return len(c.Removed) > 0 || garbageText(c.Garbage, true) != nothingToFree
}

// print prints a line for each removed version, and a line about the garbage. If there is none of
// both, it prints a line only if always is set.
func (c *collection) print(w io.Writer, dryRun, always bool) {
	done := "removed"
	if dryRun {
		done = "would be removed"
	}
	for _, r := range c.Removed {
		why := "unused since " + r.LastUsed.Format(time.DateOnly)
		if r.Reason == embedded.ReasonMaxSize {
			why = "over --max-size, last used on " + r.LastUsed.Format(time.DateOnly)
		}
		fmt.Fprintf(w, "%s %s: %s, %s (%s)\n", r.Provider, r.Version, done, size(r.Bytes), why)
	}
	if always || c.found() {
		fmt.Fprintln(w, garbageText(c.Garbage, dryRun))
	}
}

// expiredVersion returns the provider and the version in a repository of the embedded registry.
func expiredVersion(back *registry.Repositories, e embedded.Expired) (provider.Address, provider.Version, error) {
	repo := ociaddr.Repository{Registry: embedded.Host, Name: e.Repository}
	v, ok := e.Tag.Version()
	for _, t := range back.Templates {
		if of := subject.Of[provider.Address](t.Addresses(repo)); ok && len(of) > 0 {
			return of[0], v, nil
		}
	}
	return provider.Address{}, v, fmt.Errorf("%s:%s is no version of a provider", e.Repository, e.Tag)
}

// newExpiredRemover returns a remover that takes no lock, because gc has locked out all writers.
func newExpiredRemover(back *registry.Repositories) *reconcile.Remover {
	unlocked := func(ctx context.Context, a subject.Address) (repo.Destination, error) {
		d, err := transfer.Destination(back)(ctx, a)
		d.Lock = nil
		return d, err
	}
	return reconcile.NewRemover(pusher.Options{Destination: unlocked}, true)
}

// removeExpired removes one version, with what other tools attached to it.
func removeExpired(ctx context.Context, back *registry.Repositories, remover *reconcile.Remover, e embedded.Expired) error {
	a, v, err := expiredVersion(back, e)
	if err != nil {
		return err
	}
	plan, err := remover.Plan(ctx, []reconcile.RemoveRequest{{Subject: a, Version: v}})
	if err != nil {
		return err
	}
	out, err := remover.Apply(ctx, plan)
	if err != nil {
		return err
	}
	explainAll(back, out.Failures)
	for _, f := range out.Failures {
		return fmt.Errorf("remove %s %s: %w", a, v, f.Err)
	}
	return nil
}
