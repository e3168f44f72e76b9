package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/trust"
)

const pushExamples = `  # into the embedded registry, which ocibridge serve serves
  ocibridge push registry.opentofu.org/hashicorp/null@3.2.4

  # into Harbor, two platforms of the newest 3.x
  ocibridge push 'registry.opentofu.org/hashicorp/null@~> 3.0' \
    --template 'harbor.example.com/providers/${hostname}/${namespace}/${type}' \
    --platform linux_amd64 --platform darwin_arm64

  # every version that matches
  ocibridge push --all 'registry.opentofu.org/hashicorp/random@>= 3.5, < 4.0'

  # what that would push
  ocibridge push --dry-run --all 'registry.opentofu.org/hashicorp/random@~> 3.6'

  # the versions that a configuration has locked, checked against its lock file
  ocibridge push --lock-file infra/.terraform.lock.hcl --platform linux_amd64

  # the providers and modules that init needs in a folder
  ocibridge push --needed-by infra --platform linux_amd64

  # what "tofu providers mirror" wrote on a machine with a network
  ocibridge push --mirror-dir ./mirror --allow-unsigned

  # a provider of your own, as GoReleaser left it
  ocibridge push --release-dir dist \
    --as registry.acme.example/acme/widget@1.4.0 --public-key release-key.asc

  # the same, with the documentation that "tfplugindocs generate" wrote
  ocibridge push --release-dir dist --docs docs \
    --as registry.acme.example/acme/widget@1.4.0 --public-key release-key.asc`

type pushFlags struct {
	commonFlags
	dryRunFlags
	platforms     []string
	all           bool
	lockFiles     []string
	neededBy      string
	mirrorDir     string
	releaseDir    string
	as            string
	publicKey     string
	docs          string
	allowUnsigned bool
	force         bool
	refresh       bool
	strict        bool
}

func newPushCommand() *cobra.Command {
	f := &pushFlags{}
	cmd := &cobra.Command{
		Use:   "push PROVIDER@VERSION... | --lock-file FILE... | --needed-by DIR | --mirror-dir DIR | --release-dir DIR --as PROVIDER@VERSION",
		Short: "Verify providers and store them in an OCI registry",
		Long: `push takes providers from their origin registry, a mirror folder or a release
folder, verifies checksums and OpenPGP signatures, and stores the packages byte
for byte in the repository that the template names. It does not send packages
again that the registry has.

PROVIDER is HOSTNAME/NAMESPACE/TYPE. VERSION is a version or a version constraint.
push takes the newest version that matches the constraint, or every one with --all.

With --lock-file, push takes exactly the versions that the dependency lock files
name. Each package must match one of the file's hashes, as when clients install it:
push refuses other packages, because the file's users have not reviewed them.

With --needed-by, push takes what tofu init or terraform init in a folder needs. These
are the providers in its lock file, as with --lock-file, the newest versions that the
constraints allow of other providers, and the modules from registries, with all modules
that these call. Without a lock file, a source without a hostname is taken from both
registry.terraform.io and registry.opentofu.org. A warning names, with file and line,
each source that no registry serves, such as a Git repository, and all that does not
exist; --strict makes this an error. push knows nothing of providers that only a state
needs.

With --docs, push stores the documentation of a provider of your own beside its packages,
as tfplugindocs generate writes it, and the page of the gateway shows it. A later push with
other documentation replaces it, and one without --docs keeps it.

--dry-run prints the plan, without the versions in place:

  +  a version to push           !  a version with packages or
  ~  platforms, evidence or          evidence or
     documentation to add            documentation to replace

It verifies signatures and compares with the registry, but reads packages only in
folders, and where a lock file knows them by their content alone.`,
		Example: pushExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			return perform(&f.commonFlags, cmd, func(s settings) (*pushPlan, error) {
				return f.plan(args, s.file.Trust)
			}, func(ctx context.Context, s settings, p *pushPlan) (pushRun, error) {
				return f.push(ctx, s, p, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}, f.document)
		},
		ValidArgsFunction: f.complete,
	}
	f.commonFlags.register(cmd, "number of packages to transfer at once, of all versions together")
	f.dryRunFlags.register(cmd, "print the plan and store nothing")
	flags := cmd.Flags()
	flags.StringArrayVar(&f.platforms, "platform", nil, "`platform` to push, such as linux_amd64 (repeatable; default: all)")
	flags.BoolVar(&f.all, "all", false, "push every version that matches the constraint, not only the newest")
	flags.StringArrayVar(&f.lockFiles, "lock-file", nil, "push the versions that a dependency lock `file` names, if their packages match its hashes (repeatable)")
	flags.StringVar(&f.neededBy, "needed-by", "", "push the providers and modules that init needs in the `folder` of a configuration")
	flags.StringVar(&f.mirrorDir, "mirror-dir", "", "push everything in a `folder` that tofu or terraform providers mirror wrote")
	flags.StringVar(&f.releaseDir, "release-dir", "", "push a release `folder` as GoReleaser writes it")
	flags.StringVar(&f.as, "as", "", "the `PROVIDER@VERSION` in --release-dir")
	flags.StringVar(&f.publicKey, "public-key", "", "`file` with the ASCII-armoured public key that signed --release-dir")
	flags.StringVar(&f.docs, "docs", "", "`folder` with the documentation of the provider in --release-dir")
	flags.BoolVar(&f.allowUnsigned, "allow-unsigned", false, "accept unsigned packages by their checksum")
	flags.BoolVar(&f.force, "force", false, "replace stored packages and tags that differ, and send deleted packages again")
	flags.BoolVar(&f.refresh, "refresh-evidence", false, "replace the evidence (checksums and signature) of stored versions, but never by weaker evidence")
	flags.BoolVar(&f.strict, "strict", false, "fail, and store nothing, if --needed-by cannot bring everything")
	cmd.MarkFlagFilename("lock-file", "hcl")
	cmd.MarkFlagDirname("needed-by")
	cmd.MarkFlagDirname("mirror-dir")
	cmd.MarkFlagDirname("release-dir")
	cmd.MarkFlagDirname("docs")
	cmd.MarkFlagFilename("public-key", "asc", "gpg", "pem", "txt")
	completePlatforms(cmd)
	return cmd
}

// pushPlan is the parsed command line of push.
type pushPlan struct {
	requests  []transfer.Request
	platforms []provider.Platform
	policy    func(provider.Address) trust.Policy
}

// plan parses and checks the command line.
func (f *pushFlags) plan(args []string, rules trust.Rules) (*pushPlan, error) {
	if err := f.checkSources(args); err != nil {
		return nil, err
	}
	p := &pushPlan{policy: policyBy(rules, f.allowUnsigned)}
	names := args
	if f.releaseDir != "" {
		names = []string{f.as}
	}
	for _, s := range names {
		q, err := query.Providers.ParseRelease(s)
		if f.releaseDir != "" && errors.Is(err, query.ErrNoVersion) {
			err = hint.Replace(fmt.Errorf("--as %s: %w", f.as, query.ErrNoVersion), "write the version of the release, such as %s@1.4.0", strings.TrimSuffix(f.as, "@"))
		}
		if err != nil {
			return nil, err
		}
		if f.releaseDir != "" && q.Version.IsZero() {
			return nil, hint.New(fmt.Sprintf("--as %s: %q is no single version", f.as, q.Versions), "write the version of the release, such as %s@1.4.0", q.Address)
		}
		if f.releaseDir != "" && f.publicKey == "" && !p.policy(q.Address).AllowUnsigned {
			err := errors.New("no key to check the release's signature with")
			if p.policy(q.Address).Pins() {
				return nil, hint.Wrap(err, "add --public-key FILE with the key that the trust block pins, as gpg --armor --export KEYID writes it")
			}
			return nil, hint.Wrap(err, "add --public-key FILE, as gpg --armor --export KEYID writes it, or accept its checksums alone with --allow-unsigned, or with allow_unsigned = true in a trust block")
		}
		p.requests = append(p.requests, transfer.Request{Query: q})
	}
	var err error
	if p.platforms, err = parseAll(provider.ParsePlatform, f.platforms); err != nil {
		return nil, err
	}
	return p, f.dryRunFlags.check()
}

// checkSources returns an error unless the command line names exactly one source and the other
// flags fit this source.
func (f *pushFlags) checkSources(args []string) error {
	sources := 0
	for _, given := range []bool{len(args) > 0, len(f.lockFiles) > 0, f.neededBy != "", f.mirrorDir != "", f.releaseDir != ""} {
		if given {
			sources++
		}
	}
	switch {
	case sources == 0 && (f.as != "" || f.publicKey != "" || f.docs != ""):
		return hint.New("no release folder is given", "--as, --public-key and --docs go with --release-dir: add --release-dir dist, or the folder that your build writes")
	case len(args) > 0 && f.releaseDir != "" && f.as == "":
		return hint.New("--release-dir takes the provider from --as, not from an argument", "write --as %s", args[0])
	case sources == 0:
		return hint.New("nothing to push", "name a provider, such as registry.opentofu.org/hashicorp/null@3.2.4; ocibridge push --help shows more")
	case sources > 1:
		return hint.New("PROVIDER@VERSION, --lock-file, --needed-by, --mirror-dir and --release-dir exclude each other", "run push once for each")
	case f.neededBy != "" && f.force:
		return hint.New("--force and --needed-by exclude each other: --force would replace every version whose origin has changed",
			"replace one version by push --force or module push --force, and then run push --needed-by")
	case f.releaseDir != "" && f.as == "":
		return hint.New("--release-dir does not say whose release it is", "add --as HOSTNAME/NAMESPACE/TYPE@VERSION")
	case f.releaseDir == "" && f.docs != "":
		return hint.New("--docs goes with --release-dir", "leave it out: push stores the documentation of your own providers only")
	case f.releaseDir == "" && (f.as != "" || f.publicKey != ""):
		return hint.New("--as and --public-key go with --release-dir", "leave them out: an origin registry says both itself, and a mirror folder whose providers it holds")
	case f.strict && f.neededBy == "":
		return hint.New("--strict goes with --needed-by", "leave it out: every other push fails anyway if a version is not there")
	case f.all && len(args) == 0:
		return hint.New("--all goes with PROVIDER@CONSTRAINT", "lock files and folders are pushed whole anyway")
	}
	return nil
}

// pushRun is the outcome of a push, or the plan of a dry run.
type pushRun struct {
	results []*pusher.Result
	plan    reconcile.Plan
	// modules and missing are those of --needed-by.
	modules []modulePushed
	missing []missingSource
}

// push opens the source and the registry, and pushes the requested versions from the source to
// the registry. In a dry run, it shows what it would push.
func (f *pushFlags) push(ctx context.Context, s settings, p *pushPlan, stdout, stderr io.Writer) (run pushRun, err error) {
	if f.neededBy != "" {
		return f.pushNeeded(ctx, s, p, stdout, stderr)
	}
	src, err := f.source(ctx, s, p, stderr)
	if err != nil {
		return run, err
	}
	defer src.Close()
	providers := src.Providers
	back, err := f.open(s, subject.List(providers), f.log.open(stderr))
	if err != nil {
		return run, err
	}
	defer back.Close()
	for _, a := range providers {
		if _, err := back.Templates.Repository(a); err != nil {
			return run, err
		}
	}
	progress := f.progress(stdout, stderr)
	defer progress.Close()
	run, err = f.pushProviders(ctx, s, p, src, back, progress)
	if err != nil || !f.dryRun {
		return run, err
	}
	return run, f.pending(changes(&run.plan) > 0)
}

// pushProviders pushes the releases of a source. In a dry run, it shows what it would push.
func (f *pushFlags) pushProviders(ctx context.Context, s settings, p *pushPlan, src *transfer.Source, back *registry.Repositories, progress *progress) (run pushRun, err error) {
	warned := map[provider.Address]bool{}
	for _, a := range src.Providers {
		if text := a.ClientWarning(); text != "" && !warned[a] {
			warned[a] = true
			progress.Warn(fmt.Sprintf("%s: %s", a, text))
		}
	}
	warnDenied := func(a subject.Address, v provider.Version, manifest string) {
		if _, denied := s.file.Gateway.Denies(a, v, digest.Digest(manifest)); denied {
			progress.Warn(fmt.Sprintf("%s %s: the gateway block denies this version, so clients do not get it", a, v))
		}
	}
	options, err := s.approving(ctx, pusher.Options{Policy: p.policy, Jobs: int(f.jobs), Force: f.force, RefreshEvidence: f.refresh}, progress.stderr)
	if err != nil {
		return run, err
	}
	if f.dryRun {
		run.plan, err = transfer.PlanPush(ctx, src, back, options, progress)
		for _, step := range run.plan.Steps {
			warnDenied(step.Subject, step.Version, "")
		}
		if err != nil {
			return run, err
		}
		progress.dryRun(&run.plan)
		return run, nil
	}
	run.results, err = transfer.Push(ctx, src, back, options, progress)
	for _, r := range run.results {
		warnDenied(r.Subject, r.Version, r.Digest)
	}
	return run, err
}

// pushNeeded pushes what a configuration needs.
func (f *pushFlags) pushNeeded(ctx context.Context, s settings, p *pushPlan, stdout, stderr io.Writer) (run pushRun, err error) {
	back, err := f.open(s, nil, f.log.open(stderr))
	if err != nil {
		return run, err
	}
	defer back.Close()
	progress := &moduleProgress{progress: f.progress(stdout, stderr), settings: s, planned: f.dryRun}
	defer progress.Close()
	options, err := s.approving(ctx, pusher.Options{Policy: p.policy, Jobs: int(f.jobs), Force: f.force, RefreshEvidence: f.refresh}, stderr)
	if err != nil {
		return run, err
	}
	needed, err := transfer.NeededBy(ctx, f.neededBy, &moduleorigin.Origin{Registry: s.origins().Registry()}, back, options, f.dryRun, f.strict, progress)
	run.missing = progress.missing
	if err != nil {
		return run, err
	}
	defer needed.Close()
	for _, text := range needed.Warnings {
		progress.Warn(text)
	}
	origins := &transfer.Origins{Registry: s.origins().Registry(), Requests: needed.Requests, Platforms: p.platforms}
	src := origins.Source()
	defer src.Close()
	if run, err = f.pushProviders(ctx, s, p, src, back, progress.progress); err == nil {
		var modules []*transfer.PushedModule
		modules, err = needed.PushModules(ctx, progress)
		run.modules = pushedModules(modules)
	}
	run.missing = progress.missing
	if err != nil || !f.dryRun {
		return run, err
	}
	return run, f.pending(changes(&run.plan) > 0 || changesModules(run.modules))
}

// document returns the JSON output. It contains the plan or the results.
func (f *pushFlags) document(run pushRun) any {
	modules := struct {
		Modules []modulePushed  `json:"modules,omitempty"`
		Missing []missingSource `json:"missing,omitempty"`
	}{run.modules, run.missing}
	if !f.dryRun {
		return document.Object{resultsDocument(run.results), modules}
	}
	return document.Object{struct {
		DryRun   bool             `json:"dry_run"`
		Plan     []reconcile.Step `json:"plan"`
		Results  []*pusher.Result `json:"results"`
		Warnings []string         `json:"warnings,omitempty"`
	}{f.dryRun, orEmpty(run.plan.Steps), []*pusher.Result{}, run.plan.Warnings}, modules}
}

// source opens the source that the flags name.
func (f *pushFlags) source(ctx context.Context, s settings, p *pushPlan, stderr io.Writer) (*transfer.Source, error) {
	switch {
	case f.mirrorDir != "":
		return transfer.MirrorDir(ctx, f.mirrorDir, p.platforms)
	case f.releaseDir != "":
		var key []byte
		if f.publicKey != "" {
			var err error
			if key, err = files.ReadGiven(ctx, f.publicKey); err != nil {
				return nil, hint.Wrap(fmt.Errorf("--public-key: %w", err), "name the file that gpg --armor --export KEYID was written to")
			}
		}
		return transfer.ReleaseDir(ctx, f.releaseDir, p.requests[0].Query, string(key), f.docs, p.platforms)
	case len(f.lockFiles) > 0:
		requests, warnings, err := transfer.Locked(f.lockFiles)
		warnAll(stderr, warnings)
		if err != nil {
			return nil, err
		}
		p.requests = requests
	}
	origins := &transfer.Origins{Registry: s.origins().Registry(), Requests: p.requests, All: f.all, Platforms: p.platforms}
	return origins.Source(), nil
}
