package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// providerView is a provider's page: one version, and the list of all versions.
type providerView struct {
	subjectView
	Shown *versionView // nil if no version can be shown
}

// rowView is a version in the list.
type rowView struct {
	Version    provider.Version
	Path       string
	Platforms  []provider.Platform
	Size       int64  // the size of the largest package in bytes; 0 if unknown
	State      string // one of the constants below, or "" if there is nothing to say
	Reason     string // why the configuration denies the version, or the approvals that it lacks, or ""
	Deprecated string // why the configuration deprecates the version, or ""
	Current    bool   // the page shows this version
}

// States of a version in a list.
const (
	rowSigned   = "signed"
	rowOther    = string(artifact.SignedOtherName)
	rowChecksum = "checksum only"
	rowNone     = "no evidence"
	rowOffered  = "at its origin" // not stored yet
	rowDenied   = "denied"
	rowWaiting  = "not approved"
	rowRefused  = "refused"
	rowUnknown  = "not known now"
)

// Class returns the CSS class of the row's state.
func (r rowView) Class() string {
	switch r.State {
	case rowSigned:
		return "fair"
	case rowChecksum, rowNone, rowOther:
		return "weak"
	case rowRefused, rowDenied, rowWaiting:
		return "bad"
	}
	return "unknown"
}

// deny sets the state and the reason of a version that is denied or not approved.
func (r *rowView) deny(err error) {
	r.State, r.Reason, r.Deprecated = rowDenied, reasonOf(err), ""
	if errors.Is(err, approval.ErrNotApproved) {
		r.State, r.Reason = rowWaiting, strings.TrimPrefix(r.Reason, approval.ErrNotApproved.Error()+": ")
	}
}

// provider shows a provider and the version in the path, or else the newest version.
func (p *page) provider(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), metadataTimeout)
	defer cancel()
	a, err := gateway.AddressOf(r)
	view := p.View(r)
	v := providerView{subjectView: subjectView{entry: entry{a}}}
	list, ok := p.open(ctx, w, r, &v.subjectView, view, a.String(), err)
	if !ok {
		return
	}
	v.Sources = sources(a.Hostname(), a.Namespace()+"/"+a.Type(), a.String())
	if !v.chosen.version.IsZero() {
		if v.Shown, err = p.describe(ctx, r, view, a, v.chosen.version); err != nil && v.chosen.named {
			err = fmt.Errorf("describe %s %s: %w", a, v.chosen.version, err)
		}
		if err != nil && !p.omit(w, r, &v.subjectView, err) {
			return
		}
	}
	v.versionsView = listVersions(ctx, r, list, v.chosen, func(ctx context.Context, of provider.Version) rowView { return p.row(ctx, view, list, of) })
	v.Confirmed, v.Verdicts, v.Pulls = view.Confirmed(a), true, p.MayFetch(r) && p.Pulls(a)
	p.render(w, r, http.StatusOK, "provider", layout{Title: v.title(), View: v})
}

// row describes a version in the list. A version that cannot be read in time gets the state rowUnknown.
func (p *page) row(ctx context.Context, view catalog.View, list *catalog.Item, v provider.Version) rowView {
	a := list.Address
	row := rowView{Version: v, Path: entry{a}.versionPage(v), State: rowUnknown, Deprecated: p.Catalog.Deprecated(a, v)}
	if offer, ok := list.Offer(v); ok && p.Catalog.Denied(a, v) == nil {
		// The offer has all that the row needs, so the origin gets no request for a version that no client has chosen.
		row.State, row.Platforms = rowOffered, offer.Platforms
		if !slices.Contains(list.Versions, v) {
			row.deny(p.Catalog.NotStored(ctx, a, v))
		}
		return row
	}
	item, err := view.Version(ctx, a, v)
	switch {
	case errors.Is(err, catalog.ErrDenied):
		row.deny(err)
		return row
	case err != nil && (isInvalid(err) || trust.Refused(err)):
		row.State = rowRefused
		return row
	case err != nil:
		return row
	}
	row.Platforms = item.Found.Platforms()
	for _, pkg := range item.Found.Packages {
		row.Size = max(row.Size, pkg.Size)
	}
	if item.Found.Evidence == nil {
		row.State = rowNone
		return row
	}
	switch verdict, err := artifact.ReadVerdict(ctx, view.Metadata(a), item.Found); {
	case err != nil:
	case item.Found.RecordedStanding(verdict, a, v) == artifact.SignedOtherName:
		row.State = rowOther
	case verdict == trust.Signed:
		row.State = rowSigned
	default:
		row.State = rowChecksum
	}
	return row
}
