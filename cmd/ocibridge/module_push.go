package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/opentofu/svchost"
	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/modulezip"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

const modulePushExamples = `  # into the embedded registry
  ocibridge module push . --as registry.acme.example/platform/vpc/aws@1.4.0

  # into GHCR, with the commit that the module was made from
  ocibridge module push modules/vpc \
    --as registry.acme.example/platform/vpc/aws@1.4.0 \
    --template 'ghcr.io/acme/modules/${namespace}/${name}/${system}' \
    --revision "$(git rev-parse HEAD)"

  # what that would store
  ocibridge module push modules/vpc \
    --as registry.acme.example/platform/vpc/aws@1.4.0 --dry-run`

type modulePushFlags struct {
	commonFlags
	dryRunFlags
	as       string
	revision string
	force    bool
	strict   bool
}

// modulePushPlan is the parsed command line of module push.
type modulePushPlan struct {
	dir     string
	module  module.Address
	version provider.Version
}

// modulePushed is the result of module push.
type modulePushed struct {
	*pusher.Result
	Entries int      // the number of files in the module
	Files   []string // the names of these files; only for a dry run
}

// MarshalJSON implements [json.Marshaler].
func (r modulePushed) MarshalJSON() ([]byte, error) {
	return document.Join(r.Result, struct {
		Entries int      `json:"entries"`
		Files   []string `json:"files,omitempty"`
	}{r.Entries, r.Files})
}

func newModulePushCommand() *cobra.Command {
	f := &modulePushFlags{}
	cmd := &cobra.Command{
		Use:   "push DIR --as HOSTNAME/NAMESPACE/NAME/SYSTEM@VERSION",
		Short: "Store a module's folder as a version in an OCI registry",
		Long: `module push packs a folder as a zip, and stores it as one version of a module. The
zip depends only on the names and contents of the files. It omits .git, .terraform
and the files that .terraformignore excludes. A link inside the folder becomes a
copy. A link that leaves the folder, or leads into .git or .terraform, is an error.

The address of a module with the gateway's own host name has no port, even if clients
write the port into the source.

A version that is stored with the same files stays unchanged. Other files under
the same version are a conflict.

--revision "$(git rev-parse HEAD)" records the commit of a checkout with the module.
Without this flag, no commit is recorded.

A warning names files that can contain secrets, such as states, plans and keys.
--strict makes warnings about files an error, and --dry-run lists the files.`,
		Example: modulePushExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			return perform(&f.commonFlags, cmd, func(s settings) (*modulePushPlan, error) {
				return f.plan(s, args)
			}, func(ctx context.Context, s settings, p *modulePushPlan) ([]modulePushed, error) {
				return f.push(ctx, s, p, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}, f.document)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	f.registerModule(cmd)
	f.dryRunFlags.register(cmd, "print what would be stored, and write nothing")
	flags := cmd.Flags()
	flags.StringVar(&f.as, "as", "", "the `MODULE@VERSION` in the folder")
	flags.StringVar(&f.revision, "revision", "", "the source `commit`, which is recorded with the module")
	flags.BoolVar(&f.strict, "strict", false, "fail, and store nothing, if there is a warning about the files of the folder")
	flags.BoolVar(&f.force, "force", false, "replace the stored version if it differs, and send deleted parts again")
	return cmd
}

// plan parses and checks the command line.
func (f *modulePushFlags) plan(s settings, args []string) (*modulePushPlan, error) {
	switch {
	case len(args) == 0:
		return nil, hint.New("no folder to push", "name the folder of the module, such as . for this folder")
	case len(args) > 1:
		return nil, hint.New(fmt.Sprintf("unexpected argument %q", args[1]), "push one folder at a time")
	case f.as == "":
		return nil, hint.New("--as does not say which module this is", "add --as HOSTNAME/NAMESPACE/NAME/SYSTEM@VERSION")
	}
	a, v, err := parseModuleVersion(f.as)
	if err != nil {
		return nil, fmt.Errorf("--as: %w", err)
	}
	if err := artifact.CheckRevision(f.revision); err != nil {
		return nil, fmt.Errorf("--revision: %w", err)
	}
	if err := checkOwnPort(s.file.Gateway.PublicURL, a); err != nil {
		return nil, fmt.Errorf("--as: %w", err)
	}
	return &modulePushPlan{args[0], a, v}, f.dryRunFlags.check()
}

// checkOwnPort returns an error if a module's address names the host and the port of the gateway at publicURL. The
// gateway looks up its own modules under its host name without the port, and refuses a stored version that names the
// port. A gateway below a path has no modules of its own, so the host may be another registry.
func checkOwnPort(publicURL string, a module.Address) error {
	u, err := url.Parse(publicURL)
	if err != nil || u.Path != "/" || u.Port() == "" {
		return nil
	}
	own, err := svchost.ForComparison(svchost.ForDisplay(u.Host))
	if err != nil || own != a.ServiceHost() || !strings.Contains(string(own), ":") {
		return nil
	}
	return hint.New(fmt.Sprintf("%s has the port of the gateway at public_url", a),
		"store it as %s: the gateway leaves out its own port; sources in configurations keep the port", strings.Replace(a.String(), ":"+u.Port(), "", 1))
}

// push packs the folder and stores it.
func (f *modulePushFlags) push(ctx context.Context, s settings, p *modulePushPlan, stdout, stderr io.Writer) ([]modulePushed, error) {
	repos, err := f.open(s, []subject.Address{p.module}, f.log.open(stderr))
	if err != nil {
		return nil, err
	}
	defer repos.Close()
	dest, err := transfer.Destination(repos)(ctx, p.module)
	if err != nil {
		return nil, err
	}
	z, err := modulezip.Pack(ctx, p.dir)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	progress := f.progress(stdout, stderr)
	defer progress.Close()
	for _, text := range z.Warnings {
		progress.Warn(fmt.Sprintf("%s %s: %s", p.module, p.version, text))
	}
	if f.strict && len(z.Warnings) > 0 {
		return nil, hint.New(fmt.Sprintf("%s %s is not stored: %s, and --strict is set", p.module, p.version, count(len(z.Warnings), "warning")),
			"mend what the warnings say, or leave out --strict")
	}
	if other, ok := transfer.OtherSpelling(ctx, repos, p.module); ok {
		progress.Warn(fmt.Sprintf("%s is stored already: %s is another module, because addresses distinguish capitals", other, p.module))
	}
	to := pusher.New(pusher.Options{Force: f.force, OnEvent: progress.Event})
	put := to.PushZip
	if f.dryRun {
		put = to.PlanZip
	}
	r, err := put(ctx, dest, &artifact.Version{
		Owner: p.module, Version: p.version, Packages: []artifact.Package{{Digest: z.Digest, Size: z.Size, H1: z.H1}}, Revision: f.revision,
	}, z.Open)
	if err != nil {
		return nil, transfer.Explain(repos, err)
	}
	out := modulePushed{Result: r, Entries: len(z.Files)}
	if f.dryRun {
		out.Files = z.Files
	}
	progress.module(out, f.dryRun)
	return []modulePushed{out}, f.pending(r.Status != pusher.Unchanged)
}

// document returns the JSON output.
func (f *modulePushFlags) document(results []modulePushed) any {
	return struct {
		DryRun  bool           `json:"dry_run,omitempty"`
		Results []modulePushed `json:"results"`
	}{f.dryRun, orEmpty(results)}
}

// module shows the result of module push.
func (p *progress) module(r modulePushed, planned bool) {
	p.warnOf(r.Result)
	status := string(r.Status)
	if planned && r.Status != pusher.Unchanged {
		status = "would be " + status
	}
	p.result("%s %s: %s, %s, %s, in %s:%s", r.Subject, r.Version, status, count(r.Entries, "file"), size(r.Packages[0].Size), r.Repository, r.Tag)
	for _, name := range r.Files {
		p.result("  %s", name)
	}
}
