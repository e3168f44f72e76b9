package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// storedFlags are the flags of the commands that look at what is stored.
type storedFlags struct {
	registryFlags
	output outputFlag
	log    logFlag
	jobs   jobsFlag
}

func (f *storedFlags) register(cmd *cobra.Command) {
	f.registryFlags.register(cmd)
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelWarn)
	f.jobs.register(cmd, "how many versions are looked at at once")
	cmd.ValidArgsFunction = f.complete
}

// wanted is what an argument stands for.
type wanted struct {
	request                   // the zero versions stand for all
	pattern *provider.Pattern // in place of a provider
}

// parseWanted reads PROVIDER or PATTERN, and PROVIDER@VERSION or
// PROVIDER@CONSTRAINT where versions may be given.
func parseWanted(s string, versions bool) (wanted, error) {
	name, _, versioned := strings.Cut(s, "@")
	switch {
	case versioned && !versions:
		return wanted{}, hint.New(fmt.Sprintf("%s: a version makes no sense here", s), "write %s; ocibridge inspect %s shows one version", name, s)
	case versioned && strings.Contains(name, "*"):
		return wanted{}, hint.New(fmt.Sprintf("%s: a pattern has no version", s), "name the provider, or leave the version out")
	case versioned:
		r, err := parseRequest(s)
		return wanted{request: r}, err
	case strings.Contains(name, "*"):
		p, err := provider.ParsePattern(name)
		return wanted{pattern: &p}, err
	}
	a, err := provider.ParseAddress(name)
	return wanted{request: request{provider: a}}, err
}

// all reports whether every version of the provider is wanted.
func (w wanted) all() bool { return w.version.IsZero() && w.versions.String() == "" }

// has reports whether a version of the provider is wanted.
func (w wanted) has(v provider.Version) bool {
	return w.all() || w.version == v || w.versions.Has(v)
}

// stored is a provider as its repository has it.
type stored struct {
	wanted
	repository ociaddr.Repository
	store      *remote.Repository
	tags       []ociaddr.Tag
	matches    []provider.Version // the versions wanted, the newest first
	err        error              // for which there are no tags
}

// find returns the providers that the arguments name, sorted, with their tags. With
// patterns, or without arguments, it looks for providers in provider blocks and in
// the catalogs of registries; skipped is where it could not.
func (f *storedFlags) find(ctx context.Context, s settings, back *backend, args []wanted) (found []*stored, skipped []unlisted, err error) {
	var all []wanted
	var patterns []provider.Pattern
	for _, w := range args {
		if w.pattern != nil {
			patterns = append(patterns, *w.pattern)
		} else {
			all = append(all, w)
		}
	}
	if len(patterns) > 0 || len(args) == 0 {
		var known []provider.Address
		for _, p := range s.file.Providers {
			known = append(known, p.Address)
		}
		listed, refused, err := back.providers(ctx)
		if err != nil {
			return nil, nil, err
		}
		skipped = refused
		sel := provider.Selector{Include: patterns}
		for _, a := range slices.Concat(known, listed) {
			named := func(w wanted) bool { return w.provider == a }
			if sel.Selects(a) && !slices.ContainsFunc(all, named) {
				all = append(all, wanted{request: request{provider: a}})
			}
		}
	}
	for _, w := range all {
		addr, store, err := back.repository(ctx, w.provider)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, &stored{wanted: w, repository: addr, store: store})
	}
	slices.SortStableFunc(found, func(a, b *stored) int { return cmp.Compare(a.provider.String(), b.provider.String()) })
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(int(f.jobs))
	for _, p := range found {
		g.Go(func() error {
			p.list(ctx, back)
			return context.Cause(ctx)
		})
	}
	return found, skipped, g.Wait()
}

// list reads the tags. A repository that is not there has none.
func (p *stored) list(ctx context.Context, back *backend) {
	var err error
	if p.tags, err = artifact.ListTags(ctx, p.store); err != nil && !absent(err) {
		p.err = back.explain(fmt.Errorf("list tags of %s: %w", p.repository, err), p.repository)
		return
	}
	for _, t := range p.tags {
		if v, ok := t.Version(); ok && p.has(v) {
			p.matches = append(p.matches, v)
		}
	}
	provider.SortVersions(p.matches)
	slices.Reverse(p.matches)
}

// absent reports whether a registry says that a repository or a tag is not there.
func absent(err error) bool {
	var answer *errcode.ErrorResponse
	return !errors.Is(err, artifact.ErrTagsBrokeOff) &&
		(errors.Is(err, errdef.ErrNotFound) || errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound)
}

// each calls look for every version of every provider found, as many at once as
// --jobs says, until ctx is done.
func (f *storedFlags) each(ctx context.Context, found []*stored, look func(ctx context.Context, provider, version int)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(int(f.jobs))
	for i, p := range found {
		for j := range p.matches {
			g.Go(func() error {
				if ctx.Err() == nil {
					look(ctx, i, j)
				}
				return context.Cause(ctx)
			})
		}
	}
	return g.Wait()
}

// problem is an error as programs read it.
type problem struct {
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// problemOf returns nil for nil.
func problemOf(err error) *problem {
	if err == nil {
		return nil
	}
	return &problem{hint.OneLine(err.Error()), hint.OneLine(hint.Of(err))}
}

// line is the problem on one line.
func (p *problem) line() string {
	if p.Hint == "" {
		return p.Message
	}
	return p.Message + " (" + p.Hint + ")"
}

// unlisted is a registry, template or repository of which it is not known whose
// providers it holds.
type unlisted struct {
	Where   string   `json:"where"`
	Problem *problem `json:"error"`
}

// warnUnlisted says where something may be missing.
func warnUnlisted(stderr io.Writer, list []unlisted) {
	for _, u := range list {
		fmt.Fprintf(stderr, "warning: %s cannot be listed, so only providers of provider blocks are looked for there: %s\n", u.Where, u.Problem.Message)
	}
}

// nothingFound is the error for a search that names nobody and finds nobody.
func nothingFound(found []*stored, list []unlisted) error {
	if len(found) > 0 || len(list) == 0 {
		return nil
	}
	return hint.New(fmt.Sprintf("%s cannot be listed: %s", list[0].Where, list[0].Problem.Message),
		"name the providers, such as registry.opentofu.org/hashicorp/null, or write provider blocks into ocibridge.hcl")
}

// signature is what is known of who signed a version.
type signature struct {
	Verdict     trust.Verdict `json:"verdict"` // artifact.NoEvidence and SignedOtherName are among them
	Fingerprint string        `json:"fingerprint,omitempty"`
}

// text says it, with the last digits of the fingerprint alone if it is to be short.
func (s signature) text(short bool) string {
	by := s.Fingerprint
	if short && len(by) > 16 {
		by = by[len(by)-16:]
	}
	if by == "" {
		return string(s.Verdict)
	}
	return fmt.Sprintf("%s by %s", s.Verdict, by)
}
