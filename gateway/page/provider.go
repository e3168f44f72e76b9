package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gorilla/mux"
	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// providerView is a provider's page: one version, and the list of all versions.
type providerView struct {
	Address   provider.Address
	Sources   []sourceView
	Shown     *versionView // nil if no version can be shown
	Newest    bool         // Shown is the version that clients choose by default
	Unshown   *messageView // the reason why the newest version cannot be shown, or nil
	Versions  []rowView
	Total     int
	Matching  int        // the number of versions that the filter selects
	Filter    filterView // selects the versions in the list
	Confirmed time.Time  // when the registry last confirmed the list
	Pages     pager
	Pulls     bool // missing versions are fetched from the origin
}

// rowView is a version in the list.
type rowView struct {
	Version   provider.Version
	Path      string
	Platforms []provider.Platform
	Size      int64  // the size of the largest package in bytes; 0 if unknown
	State     string // one of the constants below
	Reason    string // why the configuration denies the version, or ""
	Current   bool   // the page shows this version
}

// States of a version in a list.
const (
	rowSigned   = "signed"
	rowOther    = string(artifact.SignedOtherName)
	rowChecksum = "checksum only"
	rowNone     = "no evidence"
	rowOffered  = "at its origin" // not stored yet
	rowDenied   = "denied"
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
	case rowRefused, rowDenied:
		return "bad"
	}
	return "unknown"
}

// provider shows a provider and the version in the path. If the path has no version, provider shows the
// newest version.
func (p *page) provider(w http.ResponseWriter, r *http.Request) {
	who := p.known(w, r)
	if who == nil {
		return
	}
	a, err := gateway.AddressOf(r)
	if err != nil {
		p.say(w, r, messageView{Kind: "no address", Status: http.StatusNotFound})
		return
	}
	if !who.MayRead(a) {
		p.forbid(w, r, who, a)
		return
	}
	asked, named := mux.Vars(r)["version"]
	ctx, cancel := context.WithTimeout(r.Context(), metadataTimeout)
	defer cancel()
	view := p.View(r)
	list, err := view.Versions(ctx, a)
	if err != nil {
		p.fail(w, r, a, "", fmt.Errorf("list versions of %s: %w", a, err))
		return
	}
	all := slices.Clone(list.All())
	slices.Reverse(all)
	v := providerView{Address: a, Sources: sources(a), Total: len(all), Confirmed: view.Confirmed(a), Pulls: p.MayFetch(r) && p.Pulls(a)}
	newest := newestOf(list.Versions)
	chosen := newest
	if named {
		if chosen, err = provider.ParseVersion(asked); err != nil {
			p.fail(w, r, a, asked, fmt.Errorf("%w: %v", catalog.ErrAbsent, err))
			return
		}
	}
	if !chosen.IsZero() {
		v.Newest = chosen == newest
		v.Shown, err = p.describe(ctx, r, view, a, chosen)
		if err != nil && named {
			p.fail(w, r, a, chosen.String(), fmt.Errorf("describe %s %s: %w", a, chosen, err))
			return
		}
		if err != nil { // users can choose another version
			p.Log.WarnContext(r.Context(), "cannot show", "path", r.URL.Path, "version", chosen.String(), "err", hint.Brief(err))
			v.Unshown = &messageView{Kind: kindOf(err, chosen.String()), Status: gateway.StatusOf(err), Version: chosen.String()}
		}
	}
	v.Filter = newFilter(r.URL.Query().Get("q"))
	all = v.Filter.apply(all)
	v.Matching = len(all)
	part := r.URL.Query().Get("page")
	if at := slices.Index(all, chosen); part == "" && named && at >= 0 {
		part = strconv.Itoa(at/versionsPerPage + 1) // the page of the list with this version
	}
	var from, to int
	v.Pages, from, to = newPager(v.Matching, versionsPerPage, part)
	v.Pages.Query = v.Filter.Text
	v.Pages.What, v.Pages.Back, v.Pages.On = "the versions", "Newer", "Older"
	v.Versions = p.rows(ctx, view, list, all[from:to], chosen)
	title := a.String()
	if named {
		title += " " + chosen.String()
	}
	p.render(w, r, http.StatusOK, "provider", layout{Title: title, View: v})
}

// newestOf returns the version that clients choose by default: the newest release, or the newest prerelease
// if there are only prereleases. The result is zero if there are no versions.
func newestOf(versions []provider.Version) (out provider.Version) {
	for _, v := range versions { // oldest first
		if !v.IsPrerelease() || out.IsZero() || out.IsPrerelease() {
			out = v
		}
	}
	return out
}

// rows describes versions. Versions that cannot be read in time get the state rowUnknown.
func (p *page) rows(ctx context.Context, view catalog.View, list *catalog.Item, versions []provider.Version, chosen provider.Version) []rowView {
	ctx, cancel := context.WithTimeout(ctx, listVersionsWithin)
	defer cancel()
	out := make([]rowView, len(versions))
	var group errgroup.Group
	group.SetLimit(versionReads)
	for i, v := range versions {
		group.Go(func() error {
			out[i] = p.row(ctx, view, list, v)
			out[i].Current = v == chosen
			return nil
		})
	}
	group.Wait()
	return out
}

func (p *page) row(ctx context.Context, view catalog.View, list *catalog.Item, v provider.Version) rowView {
	a := list.Address
	row := rowView{Version: v, Path: providerPath(a, v), State: rowUnknown}
	if offer, ok := list.Offer(v); ok && p.Catalog.Denied(a, v) == nil {
		// The offer contains everything that the row needs. So the origin gets no request for a version
		// that no client has chosen.
		row.State, row.Platforms = rowOffered, offer.Platforms
		return row
	}
	item, err := view.Version(ctx, a, v)
	switch {
	case errors.Is(err, catalog.ErrDenied):
		row.State, row.Reason = rowDenied, reasonOf(err)
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
