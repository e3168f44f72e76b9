package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// moduleView is a module's page: one version, and the list of all versions.
type moduleView struct {
	entry
	Sources []sourceView
	Own     bool               // the address has the gateway's own host name
	Host    string             // the host block to copy, or ""
	Shown   *moduleVersionView // nil if no version can be shown
	Newest  bool               // Shown is the version that clients choose by default
	Unshown *messageView       // the reason why the newest version cannot be shown, or nil
	versionsView
}

// moduleVersionView describes one version of a module.
type moduleVersionView struct {
	Version    provider.Version
	Use        string // the module block, to copy
	Constraint string // a ~> constraint, or ""
	OCI        string // the module block with an oci:// address, or "" if clients cannot read the registry
	Reference  string // the OCI reference, or ""
	Manifest   string // the digest of the manifest
	zipView
	Revision string // the commit that the push recorded, or ""
}

// zipView is the zip of a module.
type zipView struct {
	Zip    fileView
	Size   int64 // in bytes
	Digest string
	H1     string // "" if the push recorded none
}

// module shows a module and the version in the path. If the path has no version, module shows the newest version.
func (p *page) module(w http.ResponseWriter, r *http.Request) {
	who := p.known(w, r)
	if who == nil {
		return
	}
	a, err := gateway.ModuleOf(r)
	e := entry{a}
	switch {
	case err != nil:
		p.say(w, r, messageView{Kind: "no address", What: "module", Status: http.StatusNotFound})
		return
	case !who.MayRead(a):
		p.forbid(w, r, who, e)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), metadataTimeout)
	defer cancel()
	list, err := p.Catalog.Registry().Versions(ctx, a)
	if err != nil {
		p.fail(w, r, e, "", fmt.Errorf("list versions of the module %s: %w", a, err))
		return
	}
	chosen, named, err := choose(r, list)
	if err != nil {
		p.fail(w, r, e, chosen.text, err)
		return
	}
	v := moduleView{entry: e, Own: a.Hostname() == p.OwnHost(), Newest: chosen.newest}
	source := a.String()
	if v.Own {
		source = p.gatewayURL(r).Host + "/" + a.Namespace() + "/" + a.Name() + "/" + a.System()
		v.Sources = []sourceView{{"Source address", source}}
	} else {
		if p.ModuleHost != nil {
			v.Host = p.ModuleHost(p.gatewayURL(r).String(), a.ServiceHost())
		}
		v.Sources = sources(a.Hostname(), a.Namespace()+"/"+a.Name()+"/"+a.System(), source)
	}
	if !chosen.version.IsZero() {
		v.Shown, err = p.describeModule(ctx, r, a, chosen.version, source)
		if err != nil && named {
			p.fail(w, r, e, chosen.text, err)
			return
		}
		if err != nil { // users can choose another version
			v.Unshown = p.unshown(r, chosen.text, err)
		}
	}
	v.versionsView = listVersions(r, list, chosen.version, named)
	v.Confirmed = p.Catalog.Registry().Confirmed(a)
	v.Versions = rows(ctx, v.onPage, chosen.version, func(ctx context.Context, of provider.Version) rowView {
		return p.moduleRow(ctx, a, of)
	})
	title := a.String()
	if named {
		title += " " + chosen.text
	}
	p.render(w, r, http.StatusOK, "module", layout{Title: title, View: v})
}

// describeModule describes a version of a module. source is the module's source address. Its errors come from the
// catalog.
func (p *page) describeModule(ctx context.Context, r *http.Request, a module.Address, v provider.Version, source string) (*moduleVersionView, error) {
	item, err := p.Catalog.ModuleVersion(ctx, a, v)
	if err != nil {
		return nil, err
	}
	m, zip := item.Found, *item.Found.Zip()
	out := &moduleVersionView{
		Version: v, Constraint: constraint(v), Manifest: m.Index.Digest.String(), Revision: m.Revision,
		zipView: zipView{Zip: fileView{"Zip", zip.Filename, p.ModuleLink(r, base(r), a, v, zip)}, Size: zip.Size, Digest: zip.Digest.String()},
	}
	if h1 := p.H1Of(zip); !h1.IsZero() {
		out.H1 = h1.String()
	}
	wanted := out.Constraint
	if wanted == "" {
		wanted = v.String()
	}
	out.Use = fmt.Sprintf("module %q {\n  source  = %q\n  version = %q\n}\n", a.Name(), source, wanted)
	if p.ModuleRepository == nil {
		return out, nil
	}
	if repo := p.ModuleRepository(p.gatewayURL(r).String(), a); repo != "" {
		reference, query := repo+":"+string(m.Tag), "tag="+string(m.Tag)
		if m.Tag == "" {
			reference, query = repo+"@"+out.Manifest, "digest="+out.Manifest
		}
		out.Reference = reference
		out.OCI = fmt.Sprintf("module %q {\n  source = %q\n}\n", a.Name(), "oci://"+repo+"?"+query)
	}
	return out, nil
}

// moduleRow describes a version in the list of a module's versions. A version that clients can install has no state.
func (p *page) moduleRow(ctx context.Context, a module.Address, v provider.Version) rowView {
	row := rowView{Version: v, Path: entry{a}.versionPage(v)}
	item, err := p.Catalog.ModuleVersion(ctx, a, v)
	switch {
	case errors.Is(err, catalog.ErrDenied):
		row.State, row.Reason = rowDenied, reasonOf(err)
	case err != nil && isInvalid(err):
		row.State = rowRefused
	case err != nil:
		row.State = rowUnknown
	default:
		row.Size = item.Found.Packages[0].Size
	}
	return row
}
