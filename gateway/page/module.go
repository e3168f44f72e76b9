package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// moduleView is a module's page: one version, and the list of all versions.
type moduleView struct {
	subjectView
	Own   bool               // the address has the gateway's own host name
	Host  string             // the host block to copy, or ""
	Shown *moduleVersionView // nil if no version can be shown
}

// moduleVersionView describes one version of a module.
type moduleVersionView struct {
	Version    provider.Version
	Use        string // the module block, to copy
	Constraint string // a ~> constraint, or ""
	Deprecated string // why the configuration deprecates the version, or ""
	OCI        string // the module block with an oci:// address, or "" if clients cannot read the registry
	block      moduleBlock
	Reference  string // the OCI reference, or ""
	Manifest   string // the digest of the manifest
	zipView
	Revision  string // the commit that the push recorded, or ""
	Source    string // the location that the module was fetched from, or is fetched from, or ""
	Elsewhere bool   // only the origin has it: there is no zip, and no manifest

	Approvals *approvalsView // nil if the module's versions need no approval
	Manual    *manualView
}

// moduleBlock is what the module blocks of a version consist of.
type moduleBlock struct {
	name, source, version   string
	repository, root, query string // of the oci:// address; repository is "" if there is none, and root is the module's folder in the zip
}

// useFolder makes the module blocks name a folder of the module; "" names the module itself.
func (v *moduleVersionView) useFolder(folder string) {
	b := v.block
	v.Use = fmt.Sprintf("module %q {\n  source  = %q\n  version = %q\n}\n", b.name, withFolder(b.source, folder), b.version)
	if b.repository != "" {
		v.OCI = fmt.Sprintf("module %q {\n  source = %q\n}\n", b.name, "oci://"+withFolder(b.repository, path.Join(b.root, folder))+"?"+b.query)
	}
}

// withFolder returns the address of a folder in a module. The folder is "" for the module itself.
func withFolder(source, folder string) string {
	if folder == "" {
		return source
	}
	return source + "//" + folder
}

// zipView is the zip of a module.
type zipView struct {
	Zip    fileView
	Size   int64 // in bytes
	Digest string
	H1     string // "" if the push recorded none
}

// module shows a module and the version in the path, or else the newest version.
func (p *page) module(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), metadataTimeout)
	defer cancel()
	a, err := gateway.ModuleOf(r)
	view := p.View(r)
	v := moduleView{subjectView: subjectView{entry: entry{a}}, Own: a.Hostname() == p.OwnHost()}
	list, ok := p.open(ctx, w, r, &v.subjectView, view, "the module "+a.String(), err)
	if !ok {
		return
	}
	source := a.String()
	if v.Own {
		source = p.gatewayURL(r).Host + "/" + a.Namespace() + "/" + a.Name() + "/" + a.System()
		v.Sources = []sourceView{{"Source address", source}}
	} else {
		if p.ModuleHost != nil {
			v.Host = p.ModuleHost(p.gatewayURL(r).String(), a.ServiceHost(), p.hasProviders(r, a.ServiceHost()))
		}
		v.Sources = sources(a.Hostname(), a.Namespace()+"/"+a.Name()+"/"+a.System(), source)
	}
	if !v.chosen.version.IsZero() {
		v.Shown, err = p.describeModule(ctx, r, view, a, v.chosen.version, source)
		if err != nil && !p.omit(w, r, &v.subjectView, err) {
			return
		}
	}
	if v.Shown != nil {
		v.Pushed, v.LastUse = p.pushed(a, v.Shown.Version), p.lastUse(a, v.Shown.Version)
		if !v.Shown.Elsewhere {
			v.Shown.Manual = p.manual(ctx, r, view, a, list, v.chosen.version)
		}
		folder := v.Shown.Manual.submodule()
		v.Shown.useFolder(folder)
		for i := range v.Sources {
			v.Sources[i].Address = withFolder(v.Sources[i].Address, folder)
		}
	}
	v.versionsView = listVersions(ctx, r, list, v.chosen, func(ctx context.Context, of provider.Version) rowView { return p.moduleRow(ctx, view, list, a, of) })
	v.Twins = p.twins(r, v.entry)
	v.Confirmed, v.Pulls = view.Confirmed(a), p.MayFetch(r) && p.Pulls(a)
	p.render(w, r, http.StatusOK, "module", layout{Title: v.title(), View: v})
}

// hasProviders reports whether providers of a host are known here that the client may read.
func (p *page) hasProviders(r *http.Request, host svchost.Hostname) bool {
	who, err := p.Access.Person(r)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(p.directory.now(r.Context()).providers, func(e entry) bool {
		return e.Hostname() == string(host) && p.mayRead(who, e)
	})
}

// describeModule describes a version of a module with the given source address. Its errors come from the catalog.
func (p *page) describeModule(ctx context.Context, r *http.Request, view catalog.View, a module.Address, v provider.Version, source string) (*moduleVersionView, error) {
	item, err := view.ModuleVersion(ctx, a, v)
	if err != nil {
		return nil, err
	}
	m, zip := item.Found, *item.Found.Zip()
	out := &moduleVersionView{
		Version: v, Constraint: constraint(v), Deprecated: p.Catalog.Deprecated(a, v), Manifest: m.Index.Digest.String(), Revision: m.Revision, Source: m.Provenance.Location,
		zipView: zipView{Zip: fileView{"Zip", zip.Filename, p.ModuleLink(r, base(r), a, v, zip)}, Size: zip.Size, Digest: zip.Digest.String()},
	}
	if h1 := p.H1Of(zip); !h1.IsZero() {
		out.H1 = h1.String()
	}
	out.Approvals = p.approvals(ctx, item)
	out.block = moduleBlock{name: a.Name(), source: source, version: cmp.Or(out.Constraint, v.String())}
	if out.Elsewhere = item.Announced(); out.Elsewhere || p.ModuleRepository == nil {
		return out, nil
	}
	if repo := p.ModuleRepository(p.gatewayURL(r).String(), a); repo != "" {
		reference, query := repo+":"+string(m.Tag), "tag="+string(m.Tag)
		if m.Tag == "" {
			reference, query = repo+"@"+out.Manifest, "digest="+out.Manifest
		}
		out.Reference = reference
		out.block.repository, out.block.root, out.block.query = repo, m.Provenance.Folder, query
	}
	return out, nil
}

// moduleRow describes a version in the list of a module's versions. A version that clients can install has no state.
func (p *page) moduleRow(ctx context.Context, view catalog.View, list *catalog.Item, a module.Address, v provider.Version) rowView {
	row := rowView{Version: v, Path: entry{a}.versionPage(v), Deprecated: p.Catalog.Deprecated(a, v)}
	if _, ok := list.Offer(v); ok && p.Catalog.Denied(a, v) == nil {
		row.State = rowOffered // the origin gets no request for a version that no client has chosen
		return row
	}
	item, err := view.ModuleVersion(ctx, a, v)
	switch {
	case errors.Is(err, catalog.ErrDenied):
		row.deny(err)
	case err != nil && isInvalid(err):
		row.State = rowRefused
	case err != nil:
		row.State = rowUnknown
	default:
		row.Size, row.Pushed = item.Found.Packages[0].Size, p.pushed(a, v)
	}
	return row
}
