package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opentofu/svchost"
	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/closure"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/origins/modulezip"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

const modulePushExamples = `  # a public module, into the embedded registry
  ocibridge module push registry.opentofu.org/cloudposse/label/null@0.25.0

  # every version that matches, of two modules, into GHCR
  ocibridge module push --all \
    'registry.opentofu.org/terraform-aws-modules/vpc/aws@~> 5.0' \
    'registry.opentofu.org/terraform-aws-modules/iam/aws@>= 5.40, < 6.0' \
    --template 'ghcr.io/acme/modules/${hostname}/${namespace}/${name}/${system}'

  # a module, and all modules that it calls
  ocibridge module push --closure \
    registry.opentofu.org/terraform-aws-modules/eks/aws@20.24.0

  # a module of your own, into the embedded registry
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
	all      bool
	closure  bool
	lfs      bool
}

// modulePushPlan is the parsed command line of module push: a folder, or requests for public modules.
type modulePushPlan struct {
	dir      string
	module   module.Address
	version  provider.Version
	requests []query.Query[module.Address]
}

// modulePushed is the result of module push.
type modulePushed struct {
	*pusher.Result
	Entries int      // the number of files in the module; 0 if a public module was not fetched again
	Files   []string // the names of these files; only for a dry run
}

// MarshalJSON implements [json.Marshaler].
func (r modulePushed) MarshalJSON() ([]byte, error) {
	return document.Join(r.Result, struct {
		Entries int      `json:"entries,omitempty"`
		Files   []string `json:"files,omitempty"`
	}{r.Entries, r.Files})
}

// modulePushRun is the outcome of module push.
type modulePushRun struct {
	results []modulePushed
	missing []missingSource
}

// missingSource is a source that a closure cannot have, in JSON.
type missingSource struct {
	Module  string `json:"module,omitempty"` // "" for a configuration on this machine
	Version string `json:"version,omitempty"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	Source  string `json:"source,omitempty"`
	Reason  string `json:"reason"`
}

func newMissingSource(m closure.Missing) missingSource {
	return missingSource{m.At.Module.String(), m.At.Version.String(), m.At.File, m.At.Line, m.Source, m.Reason}
}

func newModulePushCommand() *cobra.Command {
	f := &modulePushFlags{}
	cmd := &cobra.Command{
		Use:   "push MODULE@VERSION... | DIR --as MODULE@VERSION",
		Short: "Store public modules, or a module's folder, in an OCI registry",
		Long: `module push fetches public modules from where their registry says that they are, and
stores their files unchanged. MODULE is HOSTNAME/NAMESPACE/NAME/SYSTEM. VERSION is a
version or a version constraint. module push takes the newest version that matches the
constraint, or every one with --all.

It fetches from Git repositories and from archives (tar.gz, zip), over https only. The
stored version names the location, the commit and the hashes. If the registry of the
module later leads to another commit or to other files, module push refuses them, and
names both: the stored version stays. --force replaces the version. A pointer of Git LFS
is an error, because some clients would get the file instead; --allow-lfs-pointers
stores pointers as they are. On Windows, which does not keep the executable bit of
files, a public module cannot be fetched: use Linux, macOS or WSL.

With --closure, module push follows the module blocks in the .tf, .tofu and .tf.json
files, and also stores, for each version constraint in them, the newest version that it
allows, with the modules that this version calls. A warning names each source that no
registry serves, such as a Git repository, with file and line: clients fetch it from there
themselves. --strict makes this an error.

With --as, module push packs a folder as a zip, and stores it as one version. The zip
depends only on the names and contents of the files. It omits .git, .terraform
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
			}, func(ctx context.Context, s settings, p *modulePushPlan) (modulePushRun, error) {
				return f.push(ctx, s, p, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}, f.document)
		},
		ValidArgsFunction: f.complete,
	}
	f.registerModule(cmd)
	f.jobs.register(cmd, "number of modules to fetch and store at once")
	f.dryRunFlags.register(cmd, "print what would be stored, and write nothing")
	flags := cmd.Flags()
	flags.StringVar(&f.as, "as", "", "store the folder DIR as `MODULE@VERSION`")
	flags.BoolVar(&f.all, "all", false, "push every version that matches the constraint, not only the newest")
	flags.BoolVar(&f.closure, "closure", false, "also push the modules that the modules call")
	flags.BoolVar(&f.lfs, "allow-lfs-pointers", false, "store pointers of Git LFS as they are, as clients without git-lfs get them")
	flags.StringVar(&f.revision, "revision", "", "the source `commit`, which is recorded with the module")
	flags.BoolVar(&f.strict, "strict", false, "fail, and store nothing, if there is a warning about the files of the folder, or if --closure cannot follow a source")
	flags.BoolVar(&f.force, "force", false, "replace the stored version if it differs, and send deleted parts again")
	return cmd
}

// complete makes shell completion offer the modules in the configuration file, or folders if there are none, with --as, and for
// what begins like the path of a folder.
func (f *modulePushFlags) complete(cmd *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	addresses, directive := f.completeKinds(cmd, subject.Module)
	if f.as != "" || len(addresses) == 0 || strings.HasPrefix(toComplete, ".") || strings.HasPrefix(toComplete, "/") {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return addresses, directive
}

// plan parses and checks the command line.
func (f *modulePushFlags) plan(s settings, args []string) (*modulePushPlan, error) {
	if err := f.checkArguments(args); err != nil {
		return nil, err
	}
	if f.as == "" {
		var out modulePushPlan
		for _, arg := range args {
			q, err := query.Modules.ParseRelease(arg)
			if err != nil {
				return nil, err
			}
			out.requests = append(out.requests, q)
		}
		return &out, f.dryRunFlags.check()
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
	return &modulePushPlan{dir: args[0], module: a, version: v}, f.dryRunFlags.check()
}

// checkArguments returns an error unless the arguments name a folder with --as, or public modules without it, and the other
// flags fit.
func (f *modulePushFlags) checkArguments(args []string) error {
	// An address without a version has three slashes, too.
	folder := func(arg string) bool {
		info, err := os.Stat(arg)
		return !strings.Contains(arg, "@") && (strings.Count(arg, "/") != 3 || err == nil && info.IsDir())
	}
	switch {
	case len(args) == 0:
		return hint.New("nothing to push", "name a public module, such as registry.opentofu.org/cloudposse/label/null@0.25.0, or a folder, such as . with --as")
	case f.as != "" && len(args) > 1:
		return hint.New(fmt.Sprintf("unexpected argument %q", args[1]), "push one folder at a time")
	case f.as == "" && folder(args[0]):
		return hint.New("--as does not say which module this is", "add --as HOSTNAME/NAMESPACE/NAME/SYSTEM@VERSION")
	case f.as != "" && (f.all || f.lfs || f.closure):
		return hint.New("--all, --allow-lfs-pointers and --closure go with MODULE@VERSION", "leave them out: a folder is one version, and is packed as it is")
	case f.as == "" && f.revision != "":
		return hint.New("--revision goes with a folder", "leave it out: the commit of a public module is recorded anyway")
	case f.force && f.closure:
		return hint.New("--force and --closure exclude each other: --force would replace every called module whose origin has changed",
			"replace one version by module push --force, and then push its closure")
	case f.as == "" && f.strict && !f.closure:
		return hint.New("--strict goes with a folder or with --closure", "leave it out, or add --closure")
	}
	return nil
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

// push stores the folder, or the public modules.
func (f *modulePushFlags) push(ctx context.Context, s settings, p *modulePushPlan, stdout, stderr io.Writer) (modulePushRun, error) {
	if f.as != "" {
		return f.pushFolder(ctx, s, p, stdout, stderr)
	}
	return f.pushPublic(ctx, s, p, stdout, stderr)
}

// pushPublic fetches public modules and stores them.
func (f *modulePushFlags) pushPublic(ctx context.Context, s settings, p *modulePushPlan, stdout, stderr io.Writer) (modulePushRun, error) {
	var named []module.Address
	for _, q := range p.requests {
		named = append(named, q.Address)
	}
	if f.closure {
		named = nil // --template is also for the modules that these call
	}
	repos, err := f.open(s, subject.List(named), f.log.open(stderr))
	if err != nil {
		return modulePushRun{}, err
	}
	defer repos.Close()
	progress := &moduleProgress{progress: f.progress(stdout, stderr), settings: s, planned: f.dryRun}
	defer progress.Close()
	modules := transfer.Modules{
		Origin:   &moduleorigin.Origin{Registry: s.origins().Registry(), AllowLFSPointers: f.lfs},
		Requests: p.requests, All: f.all, DryRun: f.dryRun, Closure: f.closure, Strict: f.strict,
	}
	options, err := s.approving(ctx, pusher.Options{Jobs: int(f.jobs), Force: f.force}, stderr)
	if err != nil {
		return modulePushRun{}, err
	}
	results, err := modules.Push(ctx, repos, options, progress)
	out := modulePushRun{pushedModules(results), progress.missing}
	if err != nil {
		return out, err
	}
	return out, f.pending(changesModules(out.results))
}

func pushedModules(results []*transfer.PushedModule) (out []modulePushed) {
	for _, r := range results {
		out = append(out, modulePushed{Result: r.Result, Entries: r.Entries})
	}
	return out
}

// changesModules reports whether a push has stored, or would store, anything.
func changesModules(pushed []modulePushed) bool {
	return slices.ContainsFunc(pushed, func(r modulePushed) bool { return r.Status != pusher.Unchanged })
}

// moduleProgress shows a push of public modules.
type moduleProgress struct {
	*progress
	settings settings
	planned  bool
	missing  []missingSource
}

// Missing implements [transfer.ModuleProgress].
func (p *moduleProgress) Missing(m closure.Missing) {
	p.missing = append(p.missing, newMissingSource(m))
	p.Warn("not stored: " + m.String())
}

// Done implements [transfer.ModuleProgress].
func (p *moduleProgress) Done(r *transfer.PushedModule) {
	p.module(modulePushed{Result: r.Result, Entries: r.Entries}, p.planned)
	if _, denied := p.settings.file.Gateway.Denies(r.Subject, r.Version, digest.Digest(r.Digest)); denied {
		p.Warn(fmt.Sprintf("%s %s: the gateway block denies this version, so clients do not get it", r.Subject, r.Version))
	}
}

// pushFolder packs the folder and stores it.
func (f *modulePushFlags) pushFolder(ctx context.Context, s settings, p *modulePushPlan, stdout, stderr io.Writer) (modulePushRun, error) {
	repos, err := f.open(s, []subject.Address{p.module}, f.log.open(stderr))
	if err != nil {
		return modulePushRun{}, err
	}
	defer repos.Close()
	dest, err := transfer.Destination(repos)(ctx, p.module)
	if err != nil {
		return modulePushRun{}, err
	}
	z, err := modulezip.Pack(ctx, p.dir)
	if err != nil {
		return modulePushRun{}, err
	}
	defer z.Close()
	progress := f.progress(stdout, stderr)
	defer progress.Close()
	for _, text := range z.Warnings {
		progress.Warn(fmt.Sprintf("%s %s: %s", p.module, p.version, text))
	}
	if f.strict && len(z.Warnings) > 0 {
		return modulePushRun{}, hint.New(fmt.Sprintf("%s %s is not stored: %s, and --strict is set", p.module, p.version, count(len(z.Warnings), "warning")),
			"mend what the warnings say, or leave out --strict")
	}
	if text := transfer.NewSpellings(repos).Warning(ctx, p.module); text != "" {
		progress.Warn(text)
	}
	options, err := s.approving(ctx, pusher.Options{Force: f.force, OnEvent: progress.Event}, stderr)
	if err != nil {
		return modulePushRun{}, err
	}
	to := pusher.New(options)
	put := to.PushZip
	if f.dryRun {
		put = to.PlanZip
	}
	r, err := put(ctx, dest, &artifact.Version{
		Owner: p.module, Version: p.version, Packages: []artifact.Package{{Digest: z.Digest, Size: z.Size, H1: z.H1}}, Revision: f.revision,
	}, z.Open)
	if err != nil {
		return modulePushRun{}, transfer.Explain(repos, err)
	}
	out := modulePushed{Result: r, Entries: len(z.Files)}
	if f.dryRun {
		out.Files = z.Files
	}
	progress.module(out, f.dryRun)
	return modulePushRun{results: []modulePushed{out}}, f.pending(r.Status != pusher.Unchanged)
}

// document returns the JSON output.
func (f *modulePushFlags) document(run modulePushRun) any {
	return struct {
		DryRun  bool            `json:"dry_run,omitempty"`
		Results []modulePushed  `json:"results"`
		Missing []missingSource `json:"missing,omitempty"`
	}{f.dryRun, orEmpty(run.results), run.missing}
}

// module shows the result of module push.
func (p *progress) module(r modulePushed, planned bool) {
	p.warnOf(r.Result)
	status := string(r.Status)
	if planned && r.Status != pusher.Unchanged {
		status = "would be " + status
	}
	files := ""
	if r.Entries > 0 {
		files = count(r.Entries, "file")
	}
	p.result("%s %s: %s, in %s:%s", r.Subject, r.Version, listed(status, files, size(r.Packages[0].Size), approvedText(r.Result)), r.Repository, r.Tag)
	if r.Revision != "" && !r.Source.IsZero() && r.Status != pusher.Unchanged {
		p.result("  commit %s", r.Revision)
	}
	for _, name := range r.Files {
		p.result("  %s", name)
	}
}
