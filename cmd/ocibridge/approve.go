package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/approval/signing"
	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/inventory"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

const approveExamples = `  # a key pair: cosign.key stays with you, cosign.pub goes into a require block
  cosign generate-key-pair

  # a version of a provider, and one of a module
  ocibridge approve --key cosign.key registry.opentofu.org/hashicorp/null@3.2.4
  ocibridge approve --key cosign.key \
    registry.acme.example/platform/vpc/aws@1.4.0

  # every stored version that matches
  ocibridge approve --key cosign.key --all \
    'registry.opentofu.org/hashicorp/null@~> 3.0'

  # what the configuration in this folder needs
  ocibridge approve --key cosign.key --needed-by .

  # take an approval back; no key is needed
  ocibridge approve --revoke registry.opentofu.org/hashicorp/null@3.2.4`

type approveFlags struct {
	commonFlags
	dryRunFlags
	key      string
	neededBy string
	all      bool
	revoke   bool
	packages bool
}

func newApproveCommand() *cobra.Command {
	f := &approveFlags{}
	cmd := &cobra.Command{
		Use:   "approve {PROVIDER@VERSION | MODULE@VERSION}... --key FILE | --needed-by DIR --key FILE | --revoke {PROVIDER@VERSION | MODULE@VERSION}...",
		Short: "Approve stored versions by signing them",
		Long: `approve checks stored versions as verify does, and signs those without an error. A
gateway whose trust block has a require block with the public key then serves them.

VERSION is a version or a version constraint. approve takes the newest stored version
that matches the constraint, or every one with --all. With --needed-by, it takes what
tofu init or terraform init in a folder gets of the stored versions: the providers in
its lock file, the newest versions that the constraints allow of other providers, and
the modules from registries, with all modules that these call.

The signature is over the digest of the version's index, or of a module's manifest. It
covers all platforms, and no other version. It is stored in the version's repository,
as "cosign sign --key" of cosign 3 stores it. Nothing is logged in a transparency log.
So cosign accepts it with

  cosign verify --key cosign.pub --insecure-ignore-tlog REPOSITORY:TAG

The key is a private key in PEM: ECDSA, Ed25519 or RSA. If cosign has encrypted the key,
its password is in the variable COSIGN_PASSWORD; otherwise approve prompts for it.

With --revoke, approve removes signatures: those that meet a requirement of the
version's trust block, or without requirements all. With --key, which can then also be a
public key, it removes only the signatures by this key. A registry could bring a removed
signature back. What must never be installed again is named in deny in the gateway block.

It exits with 1 if a version is not approved, for example because verify finds an error.`,
		Example:           approveExamples,
		RunE:              f.run,
		ValidArgsFunction: f.complete,
	}
	f.commonFlags.register(cmd, "number of versions to check and sign at once")
	flags := cmd.Flags()
	flags.StringVar(&f.key, "key", "", "`file` with the private key (default: the one in the sign block)")
	flags.StringVar(&f.neededBy, "needed-by", "", "approve the stored providers and modules that init gets in the `folder` of a configuration")
	flags.BoolVar(&f.all, "all", false, "approve every stored version that matches a constraint, not only the newest")
	flags.BoolVar(&f.packages, "packages", false, "also download and hash every package of providers before")
	flags.BoolVar(&f.revoke, "revoke", false, "remove approvals")
	f.dryRunFlags.register(cmd, "check the versions, print what would be done, and change nothing")
	cmd.MarkFlagFilename("key", "key", "pem", "pub")
	cmd.MarkFlagDirname("needed-by")
	return cmd
}

// approveRun is the outcome of approve.
type approveRun struct {
	results  []*transfer.ApprovedVersion
	failures []reconcile.Failure
}

func (f *approveFlags) run(cmd *cobra.Command, args []string) error {
	return perform(&f.commonFlags, cmd, func(settings) ([]query.Query[subject.Address], error) {
		return f.plan(args)
	}, func(ctx context.Context, s settings, queries []query.Query[subject.Address]) (*approveRun, error) {
		run := &approveRun{}
		err := f.approve(ctx, s, queries, run, cmd)
		return run, cmp.Or(err, failed(run.failures), f.pending(slices.ContainsFunc(run.results, changesApproval)))
	}, func(run *approveRun) any {
		if run == nil {
			run = &approveRun{}
		}
		return struct {
			DryRun   bool                        `json:"dry_run,omitempty"`
			Results  []*transfer.ApprovedVersion `json:"results"`
			Failures []failure                   `json:"failures,omitempty"`
		}{f.dryRun, orEmpty(run.results), failureDocuments(run.failures)}
	})
}

func changesApproval(r *transfer.ApprovedVersion) bool {
	return r.Status == transfer.Approved || r.Status == transfer.Revoked
}

// plan parses and checks the command line.
func (f *approveFlags) plan(args []string) (queries []query.Query[subject.Address], err error) {
	switch {
	case len(args) == 0 && f.neededBy == "":
		return nil, hint.New("nothing to approve", "name a version, such as registry.opentofu.org/hashicorp/null@3.2.4; ocibridge verify --waiting shows the versions that wait")
	case len(args) > 0 && f.neededBy != "":
		return nil, hint.New("versions and --needed-by exclude each other", "run approve once for each")
	case f.revoke && f.neededBy != "":
		return nil, hint.New("--revoke does not go with --needed-by", "name the versions whose approvals to remove")
	case f.all && f.neededBy != "":
		return nil, hint.New("--all goes with PROVIDER@CONSTRAINT or MODULE@CONSTRAINT", "leave it out: --needed-by takes the versions that init gets")
	}
	constraints := false
	for _, s := range args {
		q, err := query.ParseEither(s)
		if err != nil {
			return nil, err
		}
		if q.All() {
			return nil, hint.New(fmt.Sprintf("%s: no version given", q.Address), "name the versions: %s %s shows them", subject.TraitsOf(q.Address).List, q.Address)
		}
		constraints = constraints || !q.Versions.IsZero()
		queries = append(queries, q)
	}
	if f.all && !constraints {
		return nil, hint.New("--all goes with PROVIDER@CONSTRAINT or MODULE@CONSTRAINT", "leave it out for a single version")
	}
	return queries, f.dryRunFlags.check()
}

// approve approves or revokes the versions that the queries select.
func (f *approveFlags) approve(ctx context.Context, s settings, queries []query.Query[subject.Address], run *approveRun, cmd *cobra.Command) error {
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	// 1. Read the key.
	var key *signing.Key
	var public *approval.PublicKey
	var err error
	if f.revoke {
		public, err = f.publicKey(ctx, stderr)
	} else {
		key, err = f.signingKey(ctx, s, stderr)
	}
	if err != nil {
		return err
	}
	// 2. Select the versions.
	addresses := query.Addresses(queries)
	back, err := f.openFor(s, addresses, f.log.open(stderr))
	if err != nil {
		return err
	}
	defer back.Close()
	progress := f.progress(stdout, stderr)
	defer progress.Close()
	var versions []transfer.Release
	if f.neededBy != "" {
		versions, err = transfer.StoredFor(ctx, f.neededBy, back, int(f.jobs), progress.Warn)
	} else {
		versions, err = transfer.StoredReleases(ctx, back, queries, f.all)
	}
	if err != nil {
		return transfer.Explain(back, err)
	}
	// 3. Approve them, or revoke their approvals.
	approver := transfer.NewApprover(back, key, int(f.jobs), f.dryRun)
	verified := map[transfer.Release]digest.Digest{}
	if !f.revoke {
		verified, err = f.verify(ctx, s, back, versions, run, stdout)
		if err != nil {
			return err
		}
	}
	err = f.each(ctx, versions, run, progress, func(ctx context.Context, r transfer.Release) (*transfer.ApprovedVersion, error) {
		if f.revoke {
			return approver.Revoke(ctx, r.Subject, r.Version, public, s.file.Approvals.For(r.Subject))
		}
		d, ok := verified[r]
		if !ok {
			return nil, nil // verify has reported why
		}
		return approver.Approve(ctx, r.Subject, r.Version, d)
	})
	if serr := approver.Summarize(ctx); serr != nil && err == nil {
		progress.Warn(fmt.Sprintf("the summary of versions is outdated, so gateways look for the approvals of each version: %v", serr))
	}
	for _, r := range run.results {
		if _, denied := s.file.Gateway.Denies(r.Subject, r.Version, r.Digest); denied && r.Status == transfer.Approved {
			progress.Warn(fmt.Sprintf("%s %s: the gateway block denies this version, so clients do not get it", r.Subject, r.Version))
		}
	}
	explainAll(back, run.failures)
	progress.failures(run.failures)
	return err
}

// each calls fn for each version, several at once, and shows the results in the order of the versions.
func (f *approveFlags) each(ctx context.Context, versions []transfer.Release, run *approveRun, progress *progress, fn func(context.Context, transfer.Release) (*transfer.ApprovedVersion, error)) error {
	results, errs := make([]*transfer.ApprovedVersion, len(versions)), make([]error, len(versions))
	g := panics.Group{}
	g.SetLimit(int(f.jobs))
	for i, v := range versions {
		g.Go(func() error {
			if errs[i] = context.Cause(ctx); errs[i] == nil {
				results[i], errs[i] = fn(ctx, v)
			}
			return nil
		})
	}
	_ = g.Wait() // the functions return no error
	for i, v := range versions {
		switch {
		case ctx.Err() != nil && errs[i] != nil:
		case errs[i] != nil:
			run.failures = append(run.failures, reconcile.Failure{Subject: v.Subject, Version: v.Version, Err: errs[i]})
		case results[i] != nil:
			run.results = append(run.results, results[i])
			progress.approved(results[i], f.dryRun)
		}
	}
	return context.Cause(ctx)
}

// verify checks the versions as the commands verify and module verify do. It returns the digests of those without an error. The
// others are failures.
func (f *approveFlags) verify(ctx context.Context, s settings, back *registry.Repositories, versions []transfer.Release, run *approveRun, w io.Writer) (map[transfer.Release]digest.Digest, error) {
	out := map[transfer.Release]digest.Digest{}
	providers := inventory.Verifier{Policy: s.file.Trust.For, Packages: f.packages}
	if err := verifyKind(ctx, readsProviders, f, back, versions, providers, out, run); err != nil {
		return nil, err
	}
	return out, verifyKind(ctx, readsModules, f, back, versions, inventory.Zips{}, out, run)
}

func verifyKind[A inventory.Address](ctx context.Context, k *reads[A], f *approveFlags, back *registry.Repositories, versions []transfer.Release, checks inventory.Checks[A], out map[transfer.Release]digest.Digest, run *approveRun) error {
	of := map[A][]provider.Version{}
	for _, v := range versions {
		if a, ok := v.Subject.(A); ok {
			of[a] = append(of[a], v.Version)
		}
	}
	if len(of) == 0 {
		return nil
	}
	stored := &inventory.Inventory[A]{Kind: k.kind, Jobs: int(f.jobs), Registry: inventory.Remote{Repositories: back}}
	reports, err := stored.VerifyVersions(ctx, of, checks)
	if err != nil {
		return err
	}
	for _, r := range versions { // in the order of the command line
		a, ok := r.Subject.(A)
		if !ok {
			continue
		}
		i := slices.IndexFunc(reports[a], func(v *inventory.VersionReport) bool { return v.Version == r.Version })
		v := reports[a][i]
		if err := v.Err(); err != nil {
			run.failures = append(run.failures, reconcile.Failure{Subject: a, Version: v.Version, Err: fmt.Errorf("%s %s is not approved: %w", a, v.Version, err)})
			continue
		}
		out[r] = digest.Digest(v.Digest)
	}
	return nil
}

// signingKey reads the private key of --key, or else that of the sign block.
func (f *approveFlags) signingKey(ctx context.Context, s settings, stderr io.Writer) (*signing.Key, error) {
	if f.key != "" {
		return readSigningKey(ctx, nil, "--key", f.key, stderr)
	}
	key, err := s.signingKey(ctx, stderr)
	if key == nil && err == nil {
		err = usage(hint.New("no key to approve with", "give --key FILE; cosign generate-key-pair makes a key pair"))
	}
	return key, err
}

// publicKey reads the public key of --key, which can be a file with a public or a private key. It returns nil without --key.
func (f *approveFlags) publicKey(ctx context.Context, stderr io.Writer) (*approval.PublicKey, error) {
	if f.key == "" {
		return nil, nil
	}
	text, err := files.ReadGiven(ctx, f.key)
	if err != nil {
		return nil, fmt.Errorf("--key: %w", err)
	}
	if key, err := approval.ParsePublicKey(text); err == nil {
		return key, nil
	}
	key, err := parseSigningKey("--key "+f.key, text, stderr)
	if err != nil {
		return nil, err
	}
	return key.Public(), nil
}

// signingKey reads the key of the sign block. It returns nil without such a block.
func (s settings) signingKey(ctx context.Context, stderr io.Writer) (*signing.Key, error) {
	if s.file.Sign == nil {
		return nil, nil
	}
	return readSigningKey(ctx, s.files, "the sign block", s.file.Sign.Key, stderr)
}

// approving adds the requirements and the key of the configuration to the options of pushes.
func (s settings) approving(ctx context.Context, o pusher.Options, stderr io.Writer) (_ pusher.Options, err error) {
	o.Approvals = s.file.Approvals.For
	o.Sign, err = s.signingKey(ctx, stderr)
	return o, err
}

// readSigningKey reads the file of a private key, and records the file in seen, unless it is nil.
func readSigningKey(ctx context.Context, seen *files.Snapshot, where, name string, stderr io.Writer) (*signing.Key, error) {
	text, err := seen.ReadGiven(ctx, name)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("%s: %w", where, err), "name the file with the private key; cosign generate-key-pair writes one to cosign.key")
	}
	return parseSigningKey(where+" "+name, text, stderr)
}

func parseSigningKey(where string, text []byte, stderr io.Writer) (*signing.Key, error) {
	var ask func() ([]byte, error)
	if term.IsTerminal(int(os.Stdin.Fd())) {
		ask = func() ([]byte, error) {
			fmt.Fprintf(stderr, "Password of the private key: ")
			password, err := term.ReadPassword(int(os.Stdin.Fd()))
			fmt.Fprintln(stderr)
			return password, err
		}
	}
	key, err := signing.ParseKey(text, signing.PasswordFrom(os.LookupEnv, ask))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return key, nil
}

// approved prints the result of approve for one version.
func (p *progress) approved(r *transfer.ApprovedVersion, planned bool) {
	for _, w := range r.Warnings {
		p.Warn(fmt.Sprintf("%s %s: %s", r.Subject, r.Version, w))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	text := map[transfer.ApprovalStatus]string{
		transfer.Approved: "approved", transfer.AlreadyApproved: "already approved", transfer.NothingToRevoke: "it has no such approval",
		transfer.Revoked: fmt.Sprintf("%s removed", count(r.Removed, "signature")),
	}[r.Status]
	if planned && r.Status == transfer.Revoked {
		text = count(r.Removed, "signature") + " would be removed"
	} else if planned && changesApproval(r) {
		text = "would be " + text
	}
	if r.Key != "" {
		text += " by " + r.Key
	}
	if r.Left > 0 {
		text += fmt.Sprintf(", and %s left", count(r.Left, "signature"))
	}
	p.result("%s %s: %s, in %s:%s", r.Subject, r.Version, text, r.Repository, r.Tag)
}
