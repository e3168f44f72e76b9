package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/approval/signing"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/app/doctor"
	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

const (
	// maxSubjects is the maximum number of repositories, and of origins, that doctor examines.
	maxSubjects = 10
	// maxExaminations is the maximum number of concurrent examinations.
	maxExaminations = 4
)

// examineEach runs the examinations concurrently, and returns their reports in order.
func examineEach(examinations []func() *doctor.Report) []*doctor.Report {
	reports := make([]*doctor.Report, len(examinations))
	var g panics.Group
	g.SetLimit(maxExaminations)
	for i, examine := range examinations {
		g.Go(func() error {
			reports[i] = examine()
			return nil
		})
	}
	_ = g.Wait() // no examination returns an error
	return reports
}

// examineRegistry examines the repositories in one registry.
func (f *doctorFlags) examineRegistry(ctx context.Context, s settings, back *registry.Repositories, only ociaddr.Registry) ([]*doctor.Report, error) {
	reports := f.examineRepositories(ctx, s, back, only)
	if len(reports) == 0 {
		return nil, hint.New(fmt.Sprintf("no repository template names the registry %s", only),
			"give --template, or write an oci_mirror or module_mirror block; ocibridge doctor without arguments lists the repositories of the configured templates")
	}
	return reports, nil
}

// examineRepositories examines repositories of all kinds. If only is set, it examines only the repositories in this
// registry.
func (f *doctorFlags) examineRepositories(ctx context.Context, s settings, back *registry.Repositories, only ociaddr.Registry) (reports []*doctor.Report) {
	configured := subject.ByKind(transfer.AllBlocks(s.file).Addresses(), func(a subject.Address) subject.Address { return a })
	kinds := subject.Kinds
	if back.Embedded != nil {
		kinds = storedKinds(ctx, back, configured)
	}
	for _, kind := range kinds {
		reports = append(reports, f.examineTemplates(ctx, back, kind, configured[kind], only)...)
	}
	return reports
}

// storedKinds returns the kinds that are configured or stored in the embedded registry. If there are none, or if the
// providers cannot be listed, the result contains providers: in that case, the examination of a provider says why. For
// a kind of which nothing is configured, except for providers, storedKinds sets configured to at most one stored address.
func storedKinds(ctx context.Context, back *registry.Repositories, configured map[subject.Kind][]subject.Address) (out []subject.Kind) {
	for _, kind := range subject.Kinds {
		found, unlisted, err := back.All(ctx, kind)
		failed := kind.Traits().Origins && (len(unlisted) > 0 || err != nil)
		if len(found)+len(configured[kind]) > 0 || failed {
			out = append(out, kind)
		}
		if !kind.Traits().Origins && len(configured[kind]) == 0 {
			configured[kind] = found[:min(len(found), 1)]
		}
	}
	if len(out) == 0 {
		return []subject.Kind{subject.Provider}
	}
	return out
}

// examineTemplates examines repositories of one kind: first one for each template and each project, and then those of the
// other configured addresses. If only is set, it examines only the repositories in this registry.
func (f *doctorFlags) examineTemplates(ctx context.Context, back *registry.Repositories, kind subject.Kind, configured []subject.Address, only ociaddr.Registry) []*doctor.Report {
	selected, shadowed := repositoriesToExamine(back.Templates.Of(kind), configured, only)
	selected, rest := cut(selected)
	var all []func() *doctor.Report
	for _, a := range selected {
		all = append(all, func() *doctor.Report {
			r, err := f.examineRepository(ctx, back, a)
			if err != nil {
				return doctor.NoRepository(a, err)
			}
			return r
		})
	}
	reports := examineEach(all)
	if only == "" {
		for _, t := range shadowed {
			reports = append(reports, doctor.Shadowed(string(kind), t.Source()))
		}
	}
	return appendRest(reports, "repository", kind, rest)
}

// repositoriesToExamine returns addresses with different repositories. The first addresses cover every template, and
// every project, which is the first part of a repository's name. If no configured address uses a template, the result
// contains an example for it. The result shadowed has the templates that no address uses because other templates
// precede them.
func repositoriesToExamine(set templates.Set, configured []subject.Address, only ociaddr.Registry) (selected []subject.Address, shadowed []*templates.Template) {
	examples := slices.Clone(configured)
	for _, t := range set {
		uses := func(a subject.Address) bool {
			first, err := set.For(a)
			if err == nil {
				_, err = first.Repository(a)
			}
			return err == nil && first == t
		}
		if slices.ContainsFunc(configured, uses) {
			continue
		}
		if e := set.Example(t); e == nil {
			shadowed = append(shadowed, t)
		} else {
			examples = append(examples, e)
		}
	}
	type project struct {
		template *templates.Template
		registry ociaddr.Registry
		name     string
	}
	projects := map[project]bool{}
	seen := map[ociaddr.Repository]bool{}
	var others []subject.Address
	for _, a := range examples {
		repo, err := set.Repository(a)
		if err != nil {
			if only == "" {
				selected = append(selected, a) // the examination reports the error
			}
			continue
		}
		t, _ := set.For(a) // no error: there is a repository
		if seen[repo] || only != "" && repo.Registry != only {
			continue
		}
		seen[repo] = true
		name, _, _ := strings.Cut(repo.Name, "/")
		if p := (project{t, repo.Registry, name}); !projects[p] {
			projects[p] = true
			selected = append(selected, a)
		} else {
			others = append(others, a)
		}
	}
	return append(selected, others...), shadowed
}

// examineOrigins examines the origins of the provider blocks for which the function "of" returns true. The first
// examinations cover every origin.
func (f *doctorFlags) examineOrigins(ctx context.Context, s settings, of func(config.Provider) bool) []*doctor.Report {
	wants := transfer.OpenWants(s.file, transfer.Blocks{Providers: s.file.Providers}, s.origins().Registry(), "")
	defer wants.Close()
	var all []examination
	for i, p := range s.file.Providers {
		if of(p) {
			x := s.origin(p, wants.Wants[i].Source)
			all = append(all, examination{x.Provider, x.Name, x.Examine})
		}
	}
	return examineSome(ctx, all, subject.Provider)
}

// examination is the examination of the origin of one block.
type examination struct {
	subject subject.Address
	origin  string
	examine func(context.Context) *doctor.Report
}

// examineSome runs at most maxSubjects of the examinations: first one for each origin, and then others.
func examineSome(ctx context.Context, all []examination, kind subject.Kind) []*doctor.Report {
	seen := map[string]bool{}
	var firsts, others []examination
	for _, x := range all {
		if seen[x.origin] {
			others = append(others, x)
		} else {
			firsts = append(firsts, x)
		}
		seen[x.origin] = true
	}
	selected, rest := cut(append(firsts, others...))
	var run []func() *doctor.Report
	for _, x := range selected {
		run = append(run, func() *doctor.Report { return x.examine(ctx) })
	}
	var left []subject.Address
	for _, x := range rest {
		left = append(left, x.subject)
	}
	return appendRest(examineEach(run), "origin", kind, left)
}

// examineOriginOf examines the origin of the provider that the user has named. published is the origin of the provider's
// newest stored version, or "" if it is unknown.
func (f *doctorFlags) examineOriginOf(ctx context.Context, s settings, a provider.Address, published string) []*doctor.Report {
	mine := func(p config.Provider) bool { return p.Address == a }
	if slices.ContainsFunc(s.file.Providers, mine) {
		return f.examineOrigins(ctx, s, mine)
	}
	x := s.origin(config.Provider{Address: a}, s.origins().Registry())
	if published != "" && published != a.Hostname() {
		return []*doctor.Report{x.NotUsed(published)}
	}
	return []*doctor.Report{x.Examine(ctx)}
}

// origin returns the origin of a provider block.
func (s settings) origin(p config.Provider, source origin.Source) doctor.Origin {
	x := doctor.Origin{
		Provider: p.Address, Source: source, Name: cmp.Or(p.From.MirrorURL, p.From.Folder, p.Address.Hostname()), Versions: p.Versions,
		Platform: provider.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}, Policy: s.file.Trust.For(p.Address),
	}
	if len(p.Platforms) > 0 {
		x.Platform = p.Platforms[0]
	}
	switch {
	case p.From.Folder != "":
	case p.From.MirrorURL != "":
		x.URL, _ = url.Parse(p.From.MirrorURL) // no error: the configuration has been checked
	default:
		x.URL = s.serviceURL(p.Address.ServiceHost(), "providers.v1")
	}
	return x
}

// serviceURL returns the URL of a host's registry for a service. A host block's URL precedes the URL of the host.
func (s settings) serviceURL(host svchost.Hostname, service string) *url.URL {
	text, _ := s.cli.Services()[host][service].(string)
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		return u
	}
	return &url.URL{Scheme: "https", Host: string(host), Path: "/"}
}

// examineModuleOrigins examines the origins of the module blocks for which the function "of" returns true. The first
// examinations cover every host.
func (f *doctorFlags) examineModuleOrigins(ctx context.Context, s settings, of func(config.Module) bool) []*doctor.Report {
	var all []examination
	for _, m := range s.file.Modules {
		if of(m) {
			host := m.Address.ServiceHost()
			x := doctor.ModuleOrigin{
				Module: m.Address, Versions: m.Versions, URL: s.serviceURL(host, "modules.v1"),
				Origin: &moduleorigin.Origin{Registry: s.origins().Registry(), AllowLFSPointers: m.AllowLFSPointers},
			}
			all = append(all, examination{m.Address, string(host), x.Examine})
		}
	}
	return examineSome(ctx, all, subject.Module)
}

// examineHere examines the approvals that the configuration requires, and this machine.
func (f *doctorFlags) examineHere(ctx context.Context, s settings, isEmbedded bool) []*doctor.Report {
	x := doctor.Approvals{Rules: s.file.Approvals}
	if b := s.file.Sign; b != nil {
		x.SignKey = func() (*approval.PublicKey, error) {
			text, err := s.files.ReadGiven(ctx, b.Key)
			if err != nil {
				return nil, err
			}
			key, err := signing.ParseKey(text, signing.PasswordFrom(os.LookupEnv, nil))
			if err != nil {
				return nil, err
			}
			return key.Public(), nil
		}
	}
	machine := f.examineMachine(s, isEmbedded)
	if r := x.Examine(); r != nil {
		return []*doctor.Report{r, machine}
	}
	return []*doctor.Report{machine}
}

// examineMachine examines the folders to which push and serve write.
func (f *doctorFlags) examineMachine(s settings, isEmbedded bool) *doctor.Report {
	x := doctor.Machine{Temporary: os.TempDir()}
	if isEmbedded {
		x.Folders = append(x.Folders, doctor.Folder{Name: "data folder", Path: f.dataFolder(), Setting: "name another one with --data"})
	}
	if c := s.file.Gateway.EffectiveCache(isEmbedded, defaultCacheFolder()); c.Enabled && c.Directory != "" {
		x.Folders = append(x.Folders, doctor.Folder{Name: "cache", Path: c.Directory, Setting: "name another one as directory in the cache block"})
	}
	return x.Examine()
}

// examinePublic examines public_url. Without public_url, it returns no report.
func examinePublic(ctx context.Context, s settings) []*doctor.Report {
	public := s.file.Gateway.PublicURL
	if public == "" {
		return nil
	}
	x := doctor.Public{URL: public, Announced: gateway.RegistryURL(public, anyHost), Discovery: discoveryBelow(public)}
	return []*doctor.Report{x.Examine(ctx)}
}

// examinePatterns examines the patterns of require blocks, deny and deprecate. Without any, it returns no report.
func examinePatterns(ctx context.Context, s settings, back *registry.Repositories) []*doctor.Report {
	configured := subject.ByKind(transfer.AllBlocks(s.file).Addresses(), func(a subject.Address) subject.Address { return a })
	x := doctor.Patterns{Known: func(ctx context.Context, kind subject.Kind) ([]subject.Address, error) {
		stored, unlisted, err := back.All(ctx, kind)
		if err == nil && len(unlisted) > 0 {
			err = fmt.Errorf("%s: %w", unlisted[0].Where, unlisted[0].Err)
		}
		return append(stored, configured[kind]...), err
	}}
	if p := s.file.PullThrough; p != nil && p.Enabled {
		x.Pulls = p.Overlaps
	}
	for _, r := range s.file.Approvals {
		if !r.Policy.IsZero() {
			x.Rules = append(x.Rules, doctor.PatternRule{Name: "require", Pattern: r.Pattern})
		}
	}
	for _, d := range s.file.Gateway.Deny {
		x.Rules = append(x.Rules, doctor.PatternRule{Name: "deny", Pattern: d.Pattern})
	}
	for _, d := range s.file.Gateway.Deprecate {
		x.Rules = append(x.Rules, doctor.PatternRule{Name: "deprecate", Pattern: d.Pattern})
	}
	if r := x.Examine(ctx); r != nil {
		return []*doctor.Report{r}
	}
	return nil
}

// anyHost is the host whose services doctor requests. Every gateway announces its services for every host, so any host
// would do.
const anyHost = "registry.opentofu.org"

// discoveryBelow returns the URL of a discovery document of the gateway at a URL.
func discoveryBelow(at string) string {
	return strings.TrimSuffix(gateway.RegistryURL(at, anyHost), gateway.RegistryPath) + gateway.DiscoveryPath
}

// cut divides a list into the first maxSubjects elements and the rest.
func cut[T any](all []T) (selected, rest []T) {
	n := min(len(all), maxSubjects)
	return all[:n], all[n:]
}

// appendRest adds a report that names the addresses of one kind that doctor has not examined.
func appendRest(reports []*doctor.Report, check string, kind subject.Kind, rest []subject.Address) []*doctor.Report {
	if len(rest) == 0 {
		return reports
	}
	var names []string
	for _, a := range rest {
		names = append(names, a.String())
	}
	return append(reports, doctor.NotExamined(check, names, "ocibridge doctor "+strings.ToUpper(string(kind))+" examines one of them"))
}
