package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/query"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

const copyExamples = `  # everything that provider blocks name, or else that there is, into one file
  ocibridge copy --to oci-archive:providers.tar

  # and from that file into the registry behind the air gap, in repositories as its
  # own template has them
  ocibridge copy --from oci-archive:providers.tar \
    --to 'harbor.internal/tf/${hostname}/${namespace}/${type}'

  # one version, two platforms, from one registry to another
  ocibridge copy registry.opentofu.org/hashicorp/null@3.2.4 \
    --from 'ghcr.io/acme/providers/${hostname}/${namespace}/${type}' \
    --to 'harbor.internal/tf/${hostname}/${namespace}/${type}' \
    --platform linux_amd64 --platform darwin_arm64

  # a folder for filesystem_mirror, or for a plain web server
  ocibridge copy registry.opentofu.org/hashicorp/null --to mirror:/srv/providers`

// copyFlags are the flags of copy.
type copyFlags struct {
	registryFlags
	output        outputFlag
	log           logFlag
	from, to      string
	platforms     []string
	all           bool
	allowUnsigned bool
	noReferrers   bool
	jobs          jobsFlag
}

func newCopyCommand() *cobra.Command {
	f := &copyFlags{}
	cmd := &cobra.Command{
		Use:   "copy [PROVIDER[@VERSION]]... --from PLACE --to PLACE",
		Short: "Copy stored providers to another registry, a bundle or a mirror folder",
		Long: `copy takes versions from where they are stored, verifies them by the evidence
beside them as push does, and stores them elsewhere, evidence included. What is
there already is not sent again. A PLACE is one of

  REGISTRY/...      a repository template, such as ghcr.io/acme/${namespace}/${type}
  embedded          the embedded registry, in the folder that --data names
  oci:DIR           a bundle: an OCI image layout with all versions, in a folder
  oci-archive:FILE  the same as one tar file
  mirror:DIR        a folder as "tofu providers mirror" writes it (with --to only)

One of --from and --to may be left out for the registry that is configured.

Manifests keep their digests, and what is attached to them (signatures and SBOMs, as
referrers or by cosign's tags) is copied, too. Nobody verifies attached artifacts.

PROVIDER is HOSTNAME/NAMESPACE/TYPE, and stands for all of its versions. VERSION is
a version or a version constraint, of which the newest match is taken, or every
match with --all. Without arguments a bundle is copied whole, and from a registry
the providers that have a provider block in ocibridge.hcl, or else those in the
registry's catalog, where it has one: ocibridge list shows them.

A bundle lists what it should hold. One that lacks any of it is refused before
anything is copied. A folder that holds a bundle is added to.`,
		Example: copyExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, args)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.registryFlags.register(cmd)
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelWarn)
	flags := cmd.Flags()
	flags.Var(&givenText{text: &f.from, help: "for the registry that is configured, leave out --from and unset OCIBRIDGE_FROM"}, "from", "`place` to copy from (default: the registry that is configured)")
	flags.Var(&givenText{text: &f.to, help: "for the registry that is configured, leave out --to and unset OCIBRIDGE_TO"}, "to", "`place` to copy to (default: the registry that is configured)")
	flags.StringArrayVar(&f.platforms, "platform", nil, "`platform` to copy, such as linux_amd64 (repeatable; default: all that there are)")
	flags.BoolVar(&f.all, "all", false, "copy every version that matches a constraint, not the newest alone")
	flags.BoolVar(&f.allowUnsigned, "allow-unsigned", false, "accept packages by their checksum alone where nothing is signed")
	flags.BoolVar(&f.noReferrers, "without-referrers", false, "leave out what is attached to versions, such as signatures and SBOMs")
	f.jobs.register(cmd, "how many packages are under way at once, of all versions together")
	for _, name := range []string{"from", "to"} {
		cmd.RegisterFlagCompletionFunc(name, completePlace)
	}
	completePlatforms(cmd)
	return cmd
}

// copyPlan is what the command line asks for, checked before anything is opened.
type copyPlan struct {
	from, to  place
	requests  []query.Query // without version or versions: all
	platforms []provider.Platform
	policy    func(provider.Address) trust.Policy
}

func (f *copyFlags) plan(args []string, rules trust.Rules) (*copyPlan, error) {
	p := &copyPlan{policy: policyBy(rules, f.allowUnsigned)}
	var err error
	if p.from, err = parsePlace("--from", f.from); err != nil {
		return nil, err
	}
	if p.to, err = parsePlace("--to", f.to); err != nil {
		return nil, err
	}
	switch {
	case f.from == "" && f.to == "":
		return nil, hint.New("copy does not say where to", "give --to, such as --to oci-archive:providers.tar, or --from; ocibridge copy --help shows more")
	case p.from == p.to:
		return nil, hint.New("--from and --to name the same place", "leave one of them out for the registry that is configured")
	case p.from.kind == placeMirror:
		return nil, hint.New("--from "+f.from+": a mirror folder has no evidence to copy", "ocibridge push --mirror-dir %s stores what is in it", p.from.name)
	}
	constraints := false
	for _, s := range args {
		r, err := query.ParseProvider(s)
		if err != nil {
			return nil, err
		}
		constraints = constraints || !r.Versions.IsZero()
		p.requests = append(p.requests, r)
	}
	if f.all && !constraints {
		return nil, hint.New("--all goes with PROVIDER@CONSTRAINT", "without a constraint, every version is copied anyway")
	}
	p.platforms, err = parsePlatforms(f.platforms)
	return p, err
}

// run copies. For a program it prints one JSON document however that ends, unless
// copy was called wrongly.
func (f *copyFlags) run(cmd *cobra.Command, args []string) error {
	stdout := cmd.OutOrStdout()
	s, settingsErr := f.settings(cmd) // before the plan: they have values for flags
	p, err := f.plan(args, s.trustRules())
	if err != nil {
		return usage(err)
	}
	var results []*pusher.Result
	if err = settingsErr; err == nil {
		results, err = f.copy(cmd.Context(), s, p, stdout, cmd.ErrOrStderr())
	}
	return f.output.finish(func() error { return writeResults(stdout, results, err) }, err)
}

// copy opens one side, finds what is to be copied, and only then opens the other.
func (f *copyFlags) copy(ctx context.Context, s settings, p *copyPlan, stdout, stderr io.Writer) ([]*pusher.Result, error) {
	progress := newProgress(stdout, stderr, f.output.json())
	defer progress.Close()
	var named []provider.Address
	for _, r := range p.requests {
		named = append(named, r.Provider)
	}
	if len(p.requests) == 0 && p.from.isRegistry() {
		for _, block := range s.file.Providers {
			named = append(named, block.Address)
		}
	}
	src, err := f.openSource(ctx, s, p.from, named, stderr)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	chosen, err := f.choose(ctx, src, p, named, progress.warn)
	if err != nil {
		return nil, err
	}
	dst, err := f.openTarget(ctx, s, p, chosen, f.log.open(stderr), progress)
	if err != nil {
		return nil, err
	}
	defer dst.Close()
	results, err := f.copyAll(ctx, src, dst, chosen, p.platforms, progress)
	if err == nil {
		err = dst.save(ctx)
	}
	return results, err
}

// chosen is a provider and the versions of it to copy.
type chosen struct {
	stored   pusher.Stored
	versions []provider.Version
}

// choose lists what the source has, and picks what was asked for: all of it if
// nothing was.
func (f *copyFlags) choose(ctx context.Context, src copySource, p *copyPlan, named []provider.Address, warn func(string)) ([]chosen, error) {
	requests := p.requests
	implied := len(requests) == 0
	if implied {
		if len(named) == 0 {
			var err error
			if named, err = src.providers(ctx); err != nil {
				return nil, err
			}
		}
		for _, a := range named {
			requests = append(requests, query.Query{Provider: a})
		}
	}
	var out []chosen
	for _, r := range requests {
		stored, err := src.stored(ctx, r.Provider)
		if err != nil {
			return nil, err
		}
		if !r.Version.IsZero() {
			out = append(out, chosen{stored, []provider.Version{r.Version}})
			continue
		}
		have, err := stored.Versions(ctx)
		if err != nil {
			return nil, src.Explain(err, stored.Repository)
		}
		versions := have
		if !r.Versions.IsZero() {
			versions = r.Versions.Matches(have)
			if !f.all && len(versions) > 0 {
				versions = versions[len(versions)-1:]
			}
		}
		switch {
		case len(versions) > 0:
			out = append(out, chosen{stored, versions})
		case implied:
			warn(fmt.Sprintf("%s has no version of %s", stored.Repository, r.Provider))
		case len(have) == 0:
			return nil, hint.Wrap(fmt.Errorf("%s: %w in %s", r.Provider, origin.ErrProviderNotFound, stored.Repository), "is it spelled as its publisher has it, and --from the place that it is in?")
		default:
			return nil, (&origin.Listing{Versions: have}).NoMatch(r.Provider, r.Versions)
		}
	}
	if len(out) == 0 {
		return nil, hint.New("there is nothing to copy", "ocibridge push or sync stores providers; --from says where to look")
	}
	return out, nil
}

// copyAll copies several versions at once, as push does: after a failure no later
// one is begun.
func (f *copyFlags) copyAll(ctx context.Context, src copySource, dst copyTarget, all []chosen, platforms []provider.Platform, progress *progress) ([]*pusher.Result, error) {
	for _, c := range all {
		if err := dst.check(c.stored); err != nil {
			return nil, err
		}
	}
	done := &outcomes{progress: progress}
	var g errgroup.Group
	g.SetLimit(int(f.jobs))
	for _, c := range all {
		for _, v := range c.versions {
			turn := done.next()
			g.Go(func() error { // waits for a place
				if !done.failedBefore(turn) {
					result, err := copyOne(ctx, src, dst, c.stored, v, platforms)
					done.set(turn, result, err)
				}
				return nil
			})
		}
	}
	_ = g.Wait() // failures are among the outcomes
	return done.inOrder(nil)
}

func copyOne(ctx context.Context, src copySource, dst copyTarget, from pusher.Stored, v provider.Version, platforms []provider.Platform) (*pusher.Result, error) {
	result, err := dst.put(ctx, from, v, platforms)
	var refused *pusher.RegistryError
	switch {
	case !errors.As(err, &refused):
		return result, err
	case refused.Repository == from.Repository:
		return nil, src.Explain(err, refused.Repository)
	}
	return nil, dst.Explain(err, refused.Repository)
}
