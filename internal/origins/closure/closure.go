// Package closure finds the modules that modules call, and the modules and providers that a configuration needs.
//
// Clients select a version for each module block by itself: the newest one that the registry lists and that the block's
// constraint allows. So the closure has, for each constraint in a module of the closure, the newest version that clients can
// be offered, and this version is followed itself. A version that is in the closure for another reason does not count as a
// match: it may be older.
//
// A version that is not stored and that cannot be brought is never listed to clients: they select the next older one. The
// closure follows them there. If several of these versions in a row cannot be brought, or if the origin fails, it takes the
// newest stored version, because clients have that one in any case.
//
// A module is followed as clients read it: its folder, the folders that local sources name, and the folder that a caller
// names with //FOLDER. The submodules of the modules in [Options.Starts] are followed, too: nobody knows which of them will be
// called. Files of tests and examples are not followed.
//
// No client can be redirected for a source that is not in a module registry, such as a Git repository. These sources, and
// what is not there, are in [Result.Missing].
package closure

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/calls"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// The limits of a closure.
const (
	maxReleases = 1_000    // apart from the starts
	maxModules  = 500      // whose versions are listed
	maxDepth    = 32       // of modules that call each other
	maxTexts    = 64 << 20 // bytes of the declarations of all packages
	maxSelected = 10_000   // different constraints of all modules together
	maxMissing  = 1_000
	maxRefused  = 5 // versions for one constraint that are not stored and cannot be brought
)

// PublicHosts are the registries of sources without a host: that of Terraform and that of OpenTofu.
var PublicHosts = []svchost.Hostname{"registry.terraform.io", "registry.opentofu.org"}

var (
	// ErrAbsent means that a module or a version cannot be brought, because of what it is or because it does not exist.
	ErrAbsent = errors.New("not available")
	// ErrFailed is the [ErrAbsent] of a version whose origin failed. The origin's other versions may be in the same place.
	ErrFailed = fmt.Errorf("%w: its origin failed", ErrAbsent)
)

// Origin has the modules that can be in a closure. It is used concurrently.
type Origin interface {
	// Versions returns the versions that clients can be offered: the stored ones, and those that can be stored. The error
	// wraps [ErrAbsent] if there is no such module, or if it cannot be reached. It can come with the stored versions, which
	// are then followed.
	Versions(context.Context, module.Address) ([]Offer, error)
	// Package returns what a version declares. The error wraps [ErrAbsent] if the version cannot be stored, and [ErrFailed]
	// if this is not known.
	Package(context.Context, module.Address, provider.Version) (*Package, error)
}

// Offer is a version that clients can be offered.
type Offer struct {
	Version provider.Version
	Stored  bool // clients are offered it in any case
}

// Options say what a closure begins with.
type Options struct {
	Origin Origin
	Starts []Release
	Calls  []calls.Call // of a configuration on this machine, apart from those with local sources
	// Defaults are the registries of sources without a host. If there are several, the closure has the modules of each. Nil:
	// the host of the calling module, if it is one of [PublicHosts]. Otherwise those of them that are hosts of starts, or else
	// all of them.
	Defaults []svchost.Hostname
	Jobs     int // the maximum number of concurrent requests to Origin; 0 means 4
}

// Release is a version of a module.
type Release struct {
	Module  module.Address   `json:"module"`
	Version provider.Version `json:"version"`
}

func (r Release) String() string { return r.Module.String() + " " + r.Version.String() }

// Place is a position in a file. Release is zero for a configuration on this machine.
type Place struct {
	Release
	File string
	Line int
}

func (p Place) String() string {
	at := fmt.Sprintf("%s:%d", p.File, p.Line)
	if p.Module.IsZero() {
		return at
	}
	return p.Release.String() + ", " + at
}

// Found is a version in a closure. By is the first call that was found to lead to it. It is zero for a start.
type Found struct {
	Release
	By Place
}

// Missing is something that a closure cannot have.
type Missing struct {
	At     Place
	Source string // as written, without what can be a secret; "" if it is no constant
	Reason string
}

func (m Missing) String() string {
	if m.Source == "" {
		return fmt.Sprintf("%s: %s", m.At, m.Reason)
	}
	return fmt.Sprintf("%s: %s: %s", m.At, m.Source, m.Reason)
}

// Result is a closure.
type Result struct {
	Releases  []Found // callers come before the modules that they call for the first time
	Missing   []Missing
	Providers []Requirement // of the modules that were followed, in no order
}

// Check returns an error if something is missing, for a strict run.
func (r *Result) Check() error {
	if len(r.Missing) == 0 {
		return nil
	}
	text := r.Missing[0].String()
	if more := len(r.Missing) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return hint.New("nothing is stored, because --strict is set: "+text, "leave out --strict to store the rest, or have the module's publisher use a source in a module registry")
}

// Follow returns the closure. An error wraps [ErrTooLarge] if it exceeds a limit.
func Follow(ctx context.Context, o Options) (*Result, error) {
	w := &walker{o: o, out: &Result{}, packages: map[Release]*Package{}, absent: map[Release]error{}, resolved: map[folderOf]bool{}, followed: map[visit]bool{}, reached: map[Release]map[string]bool{}, versions: map[module.Address]*listed{}, reported: map[Missing]bool{}}
	if w.o.Jobs == 0 {
		w.o.Jobs = 4
	}
	if w.o.Defaults == nil {
		w.o.Defaults, w.own = defaultsOf(o.Starts), true
	}
	// 1. Begin with the starts, and with the calls of the configuration.
	var next []visit
	for _, r := range o.Starts {
		next = append(next, visit{Release: r, start: true})
	}
	var requests []request
	for _, c := range o.Calls {
		requests = append(requests, w.requests(Release{}, c)...)
	}
	called, err := w.resolve(ctx, requests)
	if err != nil {
		return nil, err
	}
	next = append(next, called...)
	// 2. Follow one level of calls after the other.
	for depth := 0; len(next) > 0; depth++ {
		if depth > maxDepth {
			return nil, tooLarge("modules call each other more than %d deep, at last %s", maxDepth, next[0].Release)
		}
		if next, err = w.load(ctx, next); err != nil {
			return nil, err
		}
		requests = nil
		for _, v := range next {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			requests = append(requests, w.follow(v)...)
		}
		if next, err = w.resolve(ctx, requests); err != nil {
			return nil, err
		}
	}
	return w.out, nil
}

// defaultsOf returns the public hosts among the hosts of the starts, or all public hosts.
func defaultsOf(starts []Release) (out []svchost.Hostname) {
	for _, host := range PublicHosts {
		if slices.ContainsFunc(starts, func(r Release) bool { return r.Module.ServiceHost() == host }) {
			out = append(out, host)
		}
	}
	if out == nil {
		return PublicHosts
	}
	return out
}

// visit is one folder of a release that is to be followed.
type visit struct {
	Release
	folder string // in the module, with slashes; "" is the module itself
	start  bool   // also follow the submodules
	by     Place

	selected *selection // the reason for the version; nil for a start
}

// request is a call of a module in a registry.
type request struct {
	module     module.Address
	constraint string
	folder     string
	source     string
	by         Place
}

// listed are the versions of a module.
type listed struct {
	versions candidates
	err      error
	selected map[string]*selection // by the constraint
}

// folderOf is a folder of the version that clients select for a constraint.
type folderOf struct {
	*selection
	folder string
}

type walker struct {
	o        Options
	own      bool // sources without a host are at the host of their module, if it is public
	out      *Result
	packages map[Release]*Package
	absent   map[Release]error // of those that are not in packages
	texts    int
	resolved map[folderOf]bool
	followed map[visit]bool              // without the callers
	reached  map[Release]map[string]bool // the folders that were followed
	versions map[module.Address]*listed
	selected int // the number of different constraints
	reported map[Missing]bool
}

// missing adds what cannot be brought.
func (w *walker) missing(at Place, source, format string, args ...any) {
	if len(w.out.Missing) == maxMissing {
		return
	}
	m := Missing{at, withoutSecrets(source), hint.OneLine(fmt.Sprintf(format, args...))}
	if !w.reported[m] {
		w.reported[m] = true
		w.out.Missing = append(w.out.Missing, m)
	}
}

var userInfo = regexp.MustCompile(`://[^/?#]*@`)

// withoutSecrets returns a source without the user, the password and the parameters other than ref.
func withoutSecrets(source string) string {
	source, query, _ := strings.Cut(userInfo.ReplaceAllString(hint.OneLine(source), "://"), "?")
	if values, err := url.ParseQuery(query); err == nil && values.Get("ref") != "" {
		source += "?ref=" + url.QueryEscape(values.Get("ref"))
	}
	return source
}

// load reads the packages of the visits. It returns the visits of versions that are there, without those that it has returned
// before. A visit of a version that cannot be brought becomes one of the version that clients select then.
func (w *walker) load(ctx context.Context, visits []visit) (out []visit, err error) {
	for len(visits) > 0 {
		if err := w.read(ctx, visits); err != nil {
			return nil, err
		}
		var again []visit
		for _, v := range visits {
			s := v.selected
			switch {
			case w.absent[v.Release] == nil:
				if s != nil {
					w.reportRefused(v, "clients get "+v.Version.String()+" instead")
				}
				if key := (visit{Release: v.Release, folder: v.folder, start: v.start}); !w.followed[key] {
					w.followed[key] = true
					out = append(out, v)
				}
			case w.advance(s, v.Module):
				v.Version = s.version()
				again = append(again, v)
			default:
				w.reportRefused(v, "")
			}
		}
		visits = again
	}
	return out, nil
}

// advance moves a selection past the versions that cannot be brought. It returns false if none is left.
func (w *walker) advance(s *selection, a module.Address) bool {
	for s.at < len(s.candidates) {
		err := w.absent[Release{a, s.version()}]
		if err == nil {
			return true
		}
		s.refuse(err)
	}
	return false
}

// reportRefused adds the version that clients would have selected, once for each selection.
func (w *walker) reportRefused(v visit, instead string) {
	s := v.selected
	if s.err == nil || s.reported {
		return
	}
	s.reported = true
	if instead != "" {
		instead = "; " + instead
	}
	w.missing(v.by, v.Module.String(), "%s: %v%s", s.first, s.err, instead)
}

// read reads the packages of the visits that are not read yet, and adds their releases to the result.
func (w *walker) read(ctx context.Context, visits []visit) error {
	var fresh []visit
	for _, v := range visits {
		if _, known := w.packages[v.Release]; !known {
			w.packages[v.Release] = nil
			fresh = append(fresh, v)
		}
	}
	if len(w.packages) > len(w.o.Starts)+maxReleases {
		return tooLarge("modules call more than %d versions", maxReleases)
	}
	read := make([]*Package, len(fresh))
	absent := make([]error, len(fresh))
	g, ctx := panics.WithContext(ctx)
	g.SetLimit(w.o.Jobs)
	for i, v := range fresh {
		g.Go(func() (err error) {
			read[i], err = w.o.Origin.Package(ctx, v.Module, v.Version)
			if !v.start && errors.Is(err, ErrAbsent) {
				absent[i], err = err, nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, v := range fresh {
		if absent[i] != nil {
			w.absent[v.Release] = absent[i]
			continue
		}
		if w.texts += read[i].kept; w.texts > maxTexts {
			return tooLarge("the calls of its modules have more than %d MiB", maxTexts>>20)
		}
		w.packages[v.Release] = read[i]
		w.out.Releases = append(w.out.Releases, Found{v.Release, v.by})
	}
	return nil
}

// follow returns what the folder of a visit, and the folders that it reaches, call.
func (w *walker) follow(v visit) (out []request) {
	p := w.packages[v.Release]
	from := path.Join(p.root, v.folder)
	begin := []string{from}
	if v.start {
		sub := p.submodules()
		slices.Sort(sub)
		begin = append(begin, sub...)
	} else if p.folders[from] == nil {
		w.missing(v.by, v.Module.String()+folderSuffix(v.folder), "%s has no .tf or .tofu file there", v.Version)
	}
	if w.reached[v.Release] == nil {
		w.reached[v.Release] = map[string]bool{}
	}
	folders, problems := p.reach(w.reached[v.Release], begin...)
	for _, problem := range problems {
		w.missing(w.at(v.Release, problem.call), problem.call.Source.Text, "%s", problem.reason)
	}
	for _, dir := range folders {
		for _, c := range p.folders[dir].Calls {
			out = append(out, w.requests(v.Release, c)...)
		}
		w.declared(v.Release, p.folders[dir])
	}
	return out
}

// declared adds what a folder requires, and what was not read of it.
func (w *walker) declared(in Release, f *calls.Folder) {
	for _, s := range f.Skipped {
		w.missing(Place{in, s.File, s.Line}, "", "it was not read: %s", s.Reason)
	}
	w.out.Providers = append(w.out.Providers, requirements(in, f)...)
}

func folderSuffix(folder string) string {
	if folder == "" {
		return ""
	}
	return "//" + folder
}

func (w *walker) at(in Release, c calls.Call) Place { return Place{in, c.File, c.Line} }

// requests returns the calls of modules in registries that a module block means.
func (w *walker) requests(in Release, c calls.Call) (out []request) {
	at := w.at(in, c)
	switch {
	case !c.Source.Set:
		w.missing(at, "", "the module block has no source")
		return nil
	case !c.Source.Constant:
		w.missing(at, "", "the source is no constant")
		return nil
	case calls.IsLocal(c.Source.Text):
		return nil
	}
	defaults := w.o.Defaults
	if host := in.Module.ServiceHost(); w.own && slices.Contains(PublicHosts, host) {
		defaults = []svchost.Hostname{host}
	}
	addresses, folder, ok := parseSource(c.Source.Text, defaults)
	switch {
	case !ok:
		w.missing(at, c.Source.Text, "it is not in a module registry, so clients fetch it from there themselves")
	case c.Version.Set && !c.Version.Constant:
		w.missing(at, c.Source.Text, "the version is no constant")
	default:
		for _, a := range addresses {
			out = append(out, request{a, c.Version.Text, folder, c.Source.Text, at})
		}
	}
	return out
}

// parseSource returns the addresses that a source in a module registry means, and the folder in the module. ok is false for
// any other source.
func parseSource(source string, defaults []svchost.Hostname) (out []module.Address, folder string, ok bool) {
	address, folder, hasFolder := strings.Cut(source, "//")
	if hasFolder {
		if folder = path.Clean(folder); folder == "." || folder == ".." || strings.HasPrefix(folder, "../") || strings.HasPrefix(folder, "/") {
			return nil, "", false
		}
	}
	if a, err := module.ParseAddress(address); err == nil {
		return []module.Address{a}, folder, true
	}
	for _, host := range defaults {
		if a, err := module.ParseAddress(string(host) + "/" + address); err == nil {
			out = append(out, a)
		}
	}
	return out, folder, len(out) > 0
}

// resolve returns a visit of the version that clients select for each request, without the visits that it has returned before.
func (w *walker) resolve(ctx context.Context, requests []request) (out []visit, err error) {
	if err := w.list(ctx, requests); err != nil {
		return nil, err
	}
	for _, r := range requests {
		l := w.versions[r.module]
		if l.err != nil {
			w.missing(r.by, r.source, "%v", l.err)
		}
		if l.err != nil && len(l.versions) == 0 {
			continue
		}
		of := l.selected[r.constraint]
		if of == nil {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			if w.selected++; w.selected > maxSelected {
				return nil, tooLarge("it has more than %d different constraints", maxSelected)
			}
			of = l.versions.allowed(r.constraint)
			l.selected[r.constraint] = of
		}
		if of.none != nil {
			w.missing(r.by, r.source, "%s: %v", r.module, of.none)
			continue
		}
		key := folderOf{of, r.folder}
		if w.resolved[key] || of.at == len(of.candidates) {
			continue
		}
		w.resolved[key] = true
		out = append(out, visit{Release: Release{r.module, of.version()}, folder: r.folder, by: r.by, selected: of})
	}
	return out, nil
}

// list lists the versions of the requested modules.
func (w *walker) list(ctx context.Context, requests []request) error {
	g, ctx := panics.WithContext(ctx)
	g.SetLimit(w.o.Jobs)
	var mu sync.Mutex
	found := map[module.Address]*listed{}
	for _, r := range requests {
		if w.versions[r.module] != nil {
			continue
		}
		l := &listed{}
		w.versions[r.module] = l
		if len(w.versions) > maxModules {
			return errors.Join(g.Wait(), tooLarge("it has more than %d modules", maxModules))
		}
		g.Go(func() error {
			versions, err := w.o.Origin.Versions(ctx, r.module)
			if err != nil && !errors.Is(err, ErrAbsent) {
				return fmt.Errorf("%s: %w", r.by, err)
			}
			mu.Lock()
			defer mu.Unlock()
			found[r.module] = &listed{newCandidates(versions), err, map[string]*selection{}}
			return nil
		})
	}
	err := g.Wait()
	for a, l := range found {
		w.versions[a] = l
	}
	return err
}
