package page

import (
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/manuals"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/moduledoc"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// manualWithin is the maximum time that a page waits for the README, inputs and outputs of a version. Reading them continues
// afterwards.
const manualWithin = 4 * time.Second

// manualView is what a version of a module says about itself: the module, or one of its folders.
type manualView struct {
	State string // one of the constants below; "" if the manual is shown
	*moduledoc.Part
	Readme   template.HTML
	Long     bool // the README is too long to be shown
	Modules  []partView
	Examples []partView
	Changes  *changesView
	// Required and Optional are the inputs.
	Required, Optional []moduledoc.Input
}

// States of a manual that is not shown.
const (
	manualUnreadable = "unreadable" // it is too large, or no zip
	manualUnknown    = "unknown"    // the registry does not answer in time
	manualNoPart     = "no part"    // the module has no such folder
)

// partView is a link to a folder of a module.
type partView struct {
	Name, Query     string
	Inputs, Outputs int
	Current         bool
}

// changesView compares the interface of a version with that of another version.
type changesView struct {
	Since   provider.Version // zero if there is no other version
	Path    string           // of the other version's page
	Unknown string           // the version that the user has named and that does not exist
	Failed  bool             // the other version cannot be read now
	Changes []moduledoc.Change
}

// manual returns the manual of the version that a page shows, or nil if the gateway reads none.
func (p *page) manual(ctx context.Context, r *http.Request, view catalog.View, a module.Address, list *catalog.Item, v provider.Version) *manualView {
	if p.Manuals == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, manualWithin)
	defer cancel()
	read, err := p.readManual(ctx, view, a, v)
	if err != nil {
		p.Log.WarnContext(r.Context(), "cannot show the manual", "path", r.URL.Path, "version", v.String(), "err", hint.Brief(err))
		return &manualView{State: manualState(err)}
	}
	at := r.URL.Query().Get("part")
	part := read.Part(at)
	if part == nil {
		return &manualView{State: manualNoPart, Modules: parts(read.Modules, at), Examples: parts(read.Examples, at)}
	}
	out := &manualView{Part: part, Modules: parts(read.Modules, at), Examples: parts(read.Examples, at)}
	for _, in := range part.Inputs {
		if in.Required {
			out.Required = append(out.Required, in)
		} else {
			out.Optional = append(out.Optional, in)
		}
	}
	if part.Readme != "" {
		out.Readme, err = p.Manuals.Readme(ctx, read, part, partQuery)
		out.Long = errors.Is(err, manuals.ErrUnreadable)
	}
	out.Changes = p.changes(ctx, r, view, a, list, v, part)
	return out
}

// plainFolder matches the submodules whose folder an address can name without escaping anything.
var plainFolder = regexp.MustCompile(`^modules/[A-Za-z0-9._-]+$`)

// submodule returns the folder of the submodule that the page shows, or "" if it shows the module itself or an example.
func (m *manualView) submodule() string {
	if m == nil || m.Part == nil || !plainFolder.MatchString(m.Path) {
		return ""
	}
	return m.Path
}

// errNotStored means that only the origin has a version.
var errNotStored = errors.New("the version is not stored yet")

// readManual reads the manual of a version of a module.
func (p *page) readManual(ctx context.Context, view catalog.View, a module.Address, v provider.Version) (*manuals.Module, error) {
	item, err := view.ModuleVersion(ctx, a, v)
	if err != nil {
		return nil, err
	}
	if item.Announced() {
		return nil, errNotStored
	}
	return p.Manuals.Module(ctx, item.Found, p.Catalog.StoredPackage(context.WithoutCancel(ctx), a, *item.Found.Zip()))
}

func manualState(err error) string {
	if errors.Is(err, manuals.ErrUnreadable) {
		return manualUnreadable
	}
	return manualUnknown
}

// partQuery returns the link to a folder of a module, from the page of its version.
func partQuery(at string) string {
	return "?part=" + url.QueryEscape(at)
}

func parts(all []moduledoc.Part, current string) (out []partView) {
	for _, part := range all {
		out = append(out, partView{path.Base(part.Path), partQuery(part.Path), len(part.Inputs), len(part.Outputs), part.Path == current})
	}
	return out
}

// changes compares the interface of a part with that of the version that a request names, or else of the version before.
func (p *page) changes(ctx context.Context, r *http.Request, view catalog.View, a module.Address, list *catalog.Item, v provider.Version, part *moduledoc.Part) *changesView {
	out := &changesView{}
	stored := slices.DeleteFunc(slices.Clone(list.Versions), func(v provider.Version) bool {
		_, offered := list.Offer(v)
		return offered
	})
	if named := strings.TrimSpace(r.URL.Query().Get("since")); named != "" {
		since, err := provider.ParseVersion(named[:min(len(named), maxFilter)])
		if err != nil || !slices.Contains(stored, since) {
			out.Unknown = named[:min(len(named), maxFilter)]
			return out
		}
		out.Since = since
	} else if out.Since = versionBefore(stored, v); out.Since.IsZero() {
		return nil
	}
	out.Path = entry{a}.versionPage(out.Since)
	before, err := p.readManual(ctx, view, a, out.Since)
	if err != nil {
		out.Failed = true
		return out
	}
	old := before.Part(part.Path)
	if old == nil {
		old = &moduledoc.Part{}
	}
	out.Changes = moduledoc.Diff(&old.Interface, &part.Interface)
	return out
}

// versionBefore returns the version before v: a release if v is one. versions begins with the oldest. The result is zero if
// there is none.
func versionBefore(versions []provider.Version, v provider.Version) (before provider.Version) {
	for _, other := range versions {
		if other == v {
			return before
		}
		if !other.IsPrerelease() || v.IsPrerelease() {
			before = other
		}
	}
	return provider.Version{}
}
