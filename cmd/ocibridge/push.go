package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/files"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/query"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

const pushExamples = `  # into the embedded registry, which ocibridge serve serves
  ocibridge push registry.opentofu.org/hashicorp/null@3.2.4

  # into Harbor, two platforms of the newest 3.x
  ocibridge push 'registry.terraform.io/hashicorp/null@~> 3.0' \
    --template 'harbor.example.com/providers/${hostname}/${namespace}/${type}' \
    --platform linux_amd64 --platform darwin_arm64

  # every version that matches
  ocibridge push --all 'registry.opentofu.org/hashicorp/random@>= 3.5, < 4.0'

  # what a configuration has locked, each package checked against its lock file
  ocibridge push --lock-file infra/.terraform.lock.hcl --platform linux_amd64

  # what "tofu providers mirror" wrote on a machine with a network
  ocibridge push --mirror-dir ./mirror --allow-unsigned

  # a provider of your own, as GoReleaser left it
  ocibridge push --release-dir dist --as registry.acme.example/acme/widget@1.4.0 \
    --public-key release-key.asc`

// pushFlags are the flags of push.
type pushFlags struct {
	registryFlags
	output        outputFlag
	log           logFlag
	platforms     []string
	all           bool
	lockFiles     []string
	mirrorDir     string
	releaseDir    string
	as            string
	publicKey     string
	allowUnsigned bool
	force         bool
	refresh       bool
	jobs          jobsFlag
}

func newPushCommand() *cobra.Command {
	f := &pushFlags{}
	cmd := &cobra.Command{
		Use:   "push PROVIDER@VERSION... | --lock-file FILE... | --mirror-dir DIR | --release-dir DIR --as PROVIDER@VERSION",
		Short: "Verify providers and store them in an OCI registry",
		Long: `push takes providers from their origin registry, a mirror folder or a release
folder, verifies checksums and OpenPGP signatures, and stores the packages byte
for byte in the repository that the template names. What is there already is not
sent again.

PROVIDER is HOSTNAME/NAMESPACE/TYPE. VERSION is a version or a version constraint,
of which the newest match is taken, or every match with --all.

With --lock-file, exactly the versions that the dependency lock files name are
pushed, and each package must have one of the hashes that stand there, as clients
want it when they install it. A package that a file does not know is refused:
nothing says that it is what its users have reviewed.`,
		Example: pushExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, args)
		},
		ValidArgsFunction: f.complete,
	}
	f.registryFlags.register(cmd)
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelWarn)
	flags := cmd.Flags()
	flags.StringArrayVar(&f.platforms, "platform", nil, "`platform` to push, such as linux_amd64 (repeatable; default: all that there are)")
	flags.BoolVar(&f.all, "all", false, "push every version that matches the constraint, not the newest alone")
	flags.StringArrayVar(&f.lockFiles, "lock-file", nil, "push what a dependency lock `file` names, if it knows the packages (repeatable)")
	flags.StringVar(&f.mirrorDir, "mirror-dir", "", "push everything in a `folder` that tofu or terraform providers mirror wrote")
	flags.StringVar(&f.releaseDir, "release-dir", "", "push a release `folder` as GoReleaser writes it")
	flags.StringVar(&f.as, "as", "", "what is in --release-dir: `PROVIDER@VERSION`")
	flags.StringVar(&f.publicKey, "public-key", "", "`file` with the ASCII-armoured public key that signed --release-dir")
	flags.BoolVar(&f.allowUnsigned, "allow-unsigned", false, "accept packages by their checksum alone where nothing is signed")
	flags.BoolVar(&f.force, "force", false, "replace packages and tags that are there with other content, and send again what was deleted of them")
	flags.BoolVar(&f.refresh, "refresh-evidence", false, "replace the evidence (checksums and signature) of versions that are there, but never by weaker")
	f.jobs.register(cmd, "how many packages are under way at once, of all versions together")
	cmd.MarkFlagFilename("lock-file", "hcl")
	cmd.MarkFlagDirname("mirror-dir")
	cmd.MarkFlagDirname("release-dir")
	cmd.MarkFlagFilename("public-key", "asc", "gpg", "pem", "txt")
	completePlatforms(cmd)
	return cmd
}

// request is a query, and the lock files that must know every package.
type request struct {
	query.Query
	known []trust.Known
}

// plan is what the command line asks for, checked before anything is contacted.
type plan struct {
	requests  []request
	platforms []provider.Platform
	publicKey string
	policy    func(provider.Address) trust.Policy
}

func (f *pushFlags) plan(args []string, rules trust.Rules) (*plan, error) {
	if err := f.checkSources(args); err != nil {
		return nil, err
	}
	p := &plan{policy: policyBy(rules, f.allowUnsigned)}
	names := args
	if f.releaseDir != "" {
		if !strings.Contains(f.as, "@") {
			return nil, hint.New(fmt.Sprintf("--as %s: no version given", f.as), "write the version of the release, such as %s@1.4.0", f.as)
		}
		names = []string{f.as}
	}
	for _, s := range names {
		q, err := query.ParseRelease(s)
		if err != nil {
			return nil, err
		}
		r := request{Query: q}
		if f.releaseDir != "" && r.Version.IsZero() {
			return nil, hint.New(fmt.Sprintf("--as %s: %q is no single version", f.as, r.Versions), "write the version of the release, such as %s@1.4.0", r.Provider)
		}
		if f.releaseDir != "" && f.publicKey == "" && !p.policy(r.Provider).AllowUnsigned {
			err := errors.New("no key to check the release's signature with")
			if p.policy(r.Provider).Pins() {
				return nil, hint.Wrap(err, "add --public-key FILE with the key that the trust block pins, as gpg --armor --export KEYID writes it")
			}
			return nil, hint.Wrap(err, "add --public-key FILE, as gpg --armor --export KEYID writes it, or accept its checksums alone with --allow-unsigned, or with allow_unsigned = true in a trust block")
		}
		p.requests = append(p.requests, r)
	}
	var err error
	if p.platforms, err = parsePlatforms(f.platforms); err != nil {
		return nil, err
	}
	return p, nil
}

// checkSources refuses combinations of flags that mean nothing.
func (f *pushFlags) checkSources(args []string) error {
	sources := 0
	for _, given := range []bool{len(args) > 0, len(f.lockFiles) > 0, f.mirrorDir != "", f.releaseDir != ""} {
		if given {
			sources++
		}
	}
	switch {
	case sources == 0:
		return hint.New("nothing to push", "name a provider, such as registry.opentofu.org/hashicorp/null@3.2.4; ocibridge push --help shows more")
	case sources > 1:
		return hint.New("PROVIDER@VERSION, --lock-file, --mirror-dir and --release-dir exclude each other", "run push once for each")
	case f.releaseDir != "" && f.as == "":
		return hint.New("--release-dir does not say whose release it is", "add --as HOSTNAME/NAMESPACE/TYPE@VERSION")
	case f.releaseDir == "" && (f.as != "" || f.publicKey != ""):
		return hint.New("--as and --public-key go with --release-dir", "leave them out: an origin registry says both itself, and a mirror folder whose providers it holds")
	case f.all && len(args) == 0:
		return hint.New("--all goes with PROVIDER@CONSTRAINT", "lock files and folders are pushed whole anyway")
	}
	return nil
}

// run does the push. For a program it prints one JSON document however the push
// ends, unless push was called wrongly.
func (f *pushFlags) run(cmd *cobra.Command, args []string) error {
	stdout := cmd.OutOrStdout()
	s, settingsErr := f.settings(cmd) // before the plan: they have values for flags
	p, err := f.plan(args, s.trustRules())
	if err != nil {
		return usage(err)
	}
	var results []*pusher.Result
	if err = settingsErr; err == nil {
		results, err = f.pushPlan(cmd.Context(), s, p, stdout, cmd.ErrOrStderr())
	}
	return f.output.finish(func() error { return writeResults(stdout, results, err) }, err)
}

// pushPlan opens both sides and pushes from one to the other.
func (f *pushFlags) pushPlan(ctx context.Context, s settings, p *plan, stdout, stderr io.Writer) ([]*pusher.Result, error) {
	if f.publicKey != "" {
		key, err := files.Read(f.publicKey)
		if err != nil {
			return nil, hint.Wrap(fmt.Errorf("--public-key: %w", err), "name the file that gpg --armor --export KEYID was written to")
		}
		p.publicKey = string(key)
	}
	var err error
	if len(f.lockFiles) > 0 {
		if p.requests, err = lockedRequests(f.lockFiles, stderr); err != nil {
			return nil, err
		}
	}
	src, err := f.source(ctx, p, s)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	back, err := f.open(s, src.providers(), f.log.open(stderr))
	if err != nil {
		return nil, err
	}
	defer back.Close()
	for _, a := range src.providers() {
		if _, err := back.Templates.Repository(a); err != nil {
			return nil, err
		}
	}
	progress := newProgress(stdout, stderr, f.output.json())
	defer progress.Close()
	warned := map[provider.Address]bool{}
	for _, a := range src.providers() {
		if text := a.ClientWarning(); text != "" && !warned[a] {
			warned[a] = true
			progress.warn(fmt.Sprintf("%s: %s", a, text))
		}
	}
	return f.push(ctx, src, p.policy, back, progress)
}

// writeResults prints what was done, and what went wrong, for a program.
func writeResults[T any](w io.Writer, results []T, err error) error {
	out := struct {
		Results []T               `json:"results"`
		Error   map[string]string `json:"error,omitempty"`
	}{Results: results}
	if results == nil {
		out.Results = []T{}
	}
	if err != nil {
		out.Error = map[string]string{"message": err.Error(), "hint": hint.Of(err)}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

// source is where releases come from.
type source interface {
	// providers are those that it may yield.
	providers() []provider.Address
	// each calls fn with every release, until one fails.
	each(ctx context.Context, warn func(string), fn func(*origin.Release) error) error
	io.Closer
}

// source opens what the flags name.
func (f *pushFlags) source(ctx context.Context, p *plan, s settings) (source, error) {
	switch {
	case f.mirrorDir != "":
		dir, err := origin.OpenMirrorDir(f.mirrorDir)
		if err != nil {
			return nil, err
		}
		releases, err := dir.Releases(p.platforms)
		if err != nil {
			dir.Close()
			return nil, err
		}
		return &folder{releases, dir}, nil
	case f.releaseDir != "":
		dir, err := origin.OpenReleaseDir(f.releaseDir)
		if err != nil {
			return nil, err
		}
		r, err := dir.Release(ctx, p.requests[0].Provider, p.requests[0].Version, p.publicKey, p.platforms)
		if err != nil {
			dir.Close()
			return nil, err
		}
		return &folder{[]*origin.Release{r}, dir}, nil
	}
	return &registries{s.origins().Registry(), p, f.all}, nil
}

// folder yields the releases found in a folder.
type folder struct {
	releases []*origin.Release
	io.Closer
}

func (f *folder) providers() []provider.Address {
	var out []provider.Address
	for _, r := range f.releases {
		out = append(out, r.Provider())
	}
	return out
}

func (f *folder) each(_ context.Context, _ func(string), fn func(*origin.Release) error) error {
	for _, r := range f.releases {
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

// registries yields releases from the origins of the providers asked for.
type registries struct {
	origin *origin.Registry
	plan   *plan
	all    bool
}

func (s *registries) Close() error { return nil }

func (s *registries) providers() []provider.Address {
	var out []provider.Address
	for _, r := range s.plan.requests {
		out = append(out, r.Provider)
	}
	return out
}

func (s *registries) each(ctx context.Context, warn func(string), fn func(*origin.Release) error) error {
	for _, r := range s.plan.requests {
		listing, err := s.origin.Versions(ctx, r.Provider)
		if err != nil {
			return r.where(err)
		}
		for _, w := range listing.Warnings {
			warn(fmt.Sprintf("%s: %s", r.Provider, w))
		}
		versions, err := s.choose(r, listing)
		if err != nil {
			return err
		}
		for _, v := range versions {
			release, err := s.origin.Release(ctx, r.Provider, listing, v, s.plan.platforms)
			if err != nil {
				return r.where(err)
			}
			release.Claims.Known = r.known
			if err := fn(release); err != nil {
				return err
			}
		}
	}
	return nil
}

// choose returns the versions that a request means, oldest first.
func (s *registries) choose(r request, l *origin.Listing) ([]provider.Version, error) {
	if !r.Version.IsZero() {
		return []provider.Version{r.Version}, nil
	}
	matches := r.Versions.Matches(l.Versions)
	switch {
	case len(matches) == 0:
		return nil, l.NoMatch(r.Provider, r.Versions)
	case s.all:
		return matches, nil
	}
	return matches[len(matches)-1:], nil
}
