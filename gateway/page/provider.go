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

// providerView is a provider's page: one version, and the list of all.
type providerView struct {
	Address   provider.Address
	Shown     *versionView // nil: none can be shown
	Newest    bool         // it is the one that clients take by themselves
	Unshown   string       // why none is, where one was chosen
	Versions  []rowView
	Total     int
	Confirmed time.Time // when the registry last said which there are
	Pages     pager
	Pulls     bool // what the registry lacks is fetched from the origin
}

// rowView is a version in the list.
type rowView struct {
	Version   provider.Version
	Path      string
	Platforms []string
	State     string // one of the states of a row
	Current   bool   // it is the one that is shown
}

// States of a version in a list.
const (
	rowSigned   = "signed"
	rowOther    = string(artifact.SignedOtherName)
	rowChecksum = "checksum only"
	rowNone     = "no evidence"
	rowOffered  = "at its origin" // and not stored yet
	rowDenied   = "denied"
	rowRefused  = "refused"
	rowUnknown  = "not known now"
)

// Class is how a state looks.
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

// provider shows a provider by the version that a path names, or by its newest.
func (p *page) provider(w http.ResponseWriter, r *http.Request) {
	who := p.known(w, r)
	if who == nil {
		return
	}
	a, ok := addressOf(r)
	if !ok {
		p.noAddress(w, r)
		return
	}
	if !who.MayRead(a) {
		p.forbid(w, r, who, a)
		return
	}
	asked, named := mux.Vars(r)["version"]
	ctx, cancel := context.WithTimeout(r.Context(), metadataTimeout)
	defer cancel()
	list, err := p.Catalog.Versions(ctx, a)
	if err != nil {
		p.fail(w, r, a, "", fmt.Errorf("list versions of %s: %w", a, err))
		return
	}
	all := slices.Clone(list.All())
	slices.Reverse(all)
	v := providerView{Address: a, Total: len(all), Confirmed: p.Catalog.Confirmed(a), Pulls: p.Pulls(a)}
	newest := newestOf(list.Versions)
	chosen := newest
	if named {
		if chosen, err = provider.ParseVersion(asked); err != nil {
			p.fail(w, r, a, asked, fmt.Errorf("%w: %v", catalog.ErrAbsent, err))
			return
		}
	}
	if !chosen.IsZero() {
		v.Shown, err = p.describe(ctx, r, a, chosen)
		switch {
		case err != nil && named:
			p.fail(w, r, a, chosen.String(), fmt.Errorf("describe %s %s: %w", a, chosen, err))
			return
		case err != nil: // the others can be chosen
			p.Log.WarnContext(r.Context(), "cannot show", "path", r.URL.Path, "version", chosen.String(), "err", hint.Brief(err))
			m := messageView{Status: gateway.StatusOf(err), Version: chosen.String()}
			m.describeTrouble(err)
			v.Unshown = fmt.Sprintf("The newest version, %s, cannot be shown. %s.", chosen, m.Heading)
		}
		v.Newest = chosen == newest
	}
	part := r.URL.Query().Get("page")
	if at := slices.Index(all, chosen); part == "" && named && at >= 0 {
		part = strconv.Itoa(at/versionsPerPage + 1) // that it is on
	}
	var from, to int
	v.Pages, from, to = newPager(v.Total, versionsPerPage, part)
	v.Pages.What, v.Pages.Back, v.Pages.On = "the versions", "Newer", "Older"
	v.Versions = p.rows(ctx, list, all[from:to], chosen)
	title := a.String()
	if named {
		title += " " + chosen.String()
	}
	p.render(w, r, http.StatusOK, "provider", layout{Title: title, View: v})
}

// newestOf returns the version that clients take by themselves: the newest, and a
// prerelease only where there is nothing else. It is zero if there is none.
func newestOf(versions []provider.Version) (out provider.Version) {
	for _, v := range versions { // oldest first
		if !v.IsPrerelease() || out.IsZero() || out.IsPrerelease() {
			out = v
		}
	}
	return out
}

// rows describes versions as far as that is known in time.
func (p *page) rows(ctx context.Context, list *catalog.Item, versions []provider.Version, chosen provider.Version) []rowView {
	ctx, cancel := context.WithTimeout(ctx, listVersionsWithin)
	defer cancel()
	out := make([]rowView, len(versions))
	var group errgroup.Group
	group.SetLimit(versionReads)
	for i, v := range versions {
		group.Go(func() error {
			out[i] = p.row(ctx, list, v)
			out[i].Current = v == chosen
			return nil
		})
	}
	group.Wait()
	return out
}

func (p *page) row(ctx context.Context, list *catalog.Item, v provider.Version) rowView {
	a := list.Address
	row := rowView{Version: v, Path: providerPath(a, v), State: rowUnknown}
	if offer, ok := list.Offer(v); ok && !p.Catalog.Denied(a, v) {
		// Its origin is not asked about what nobody chose.
		row.State, row.Platforms = rowOffered, names(offer.Platforms)
		return row
	}
	item, err := p.Catalog.Version(ctx, a, v)
	switch {
	case errors.Is(err, catalog.ErrDenied):
		row.State = rowDenied
		return row
	case err != nil && (isInvalid(err) || trust.Refused(err)):
		row.State = rowRefused
		return row
	case err != nil:
		return row
	}
	row.Platforms = names(item.Found.Platforms())
	if item.Found.Evidence == nil {
		row.State = rowNone
		return row
	}
	switch verdict, err := artifact.ReadVerdict(ctx, p.Catalog.Metadata(a), item.Found); {
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

func names(platforms []provider.Platform) (out []string) {
	for _, platform := range platforms {
		out = append(out, platform.String())
	}
	return out
}
