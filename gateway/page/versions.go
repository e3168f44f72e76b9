package page

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gorilla/mux"
	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// versionsView is the list of versions on the page of a provider or module.
type versionsView struct {
	Versions  []rowView
	Total     int
	Matching  int        // the number of versions that the filter selects
	Filter    filterView // selects the versions in the list
	Confirmed time.Time  // when the registry last confirmed the list
	Pages     pager
	Verdicts  bool // the list shows verdicts
	Pulls     bool // missing versions are fetched from the origin

	onPage []provider.Version // the versions that Versions describes
}

// choice is the version that a page shows. It is zero if there is none.
type choice struct {
	version provider.Version
	text    string // the version as users write it
	newest  bool   // clients choose this version by default
}

// choose returns the version in the request's path. If the path has none, named is false, and choose returns the
// newest version. The error means that the path has no valid version.
func choose(r *http.Request, list *catalog.Item) (c choice, named bool, err error) {
	newest := newestOf(list.Versions)
	asked, named := mux.Vars(r)["version"]
	if !named {
		return choice{newest, newest.String(), true}, false, nil
	}
	v, err := provider.ParseVersion(asked)
	if err != nil {
		return choice{text: asked}, true, fmt.Errorf("%w: %v", catalog.ErrAbsent, err)
	}
	return choice{v, v.String(), v == newest}, true, nil
}

// unshown logs the reason why the newest version cannot be shown, and returns the message for users.
func (p *page) unshown(r *http.Request, version string, err error) *messageView {
	p.Log.WarnContext(r.Context(), "cannot show", "path", r.URL.Path, "version", version, "err", hint.Brief(err))
	return &messageView{Kind: kindOf(err, version), Status: gateway.StatusOf(err), Version: version}
}

// listVersions returns the part of the list of versions that a request selects, without descriptions.
func listVersions(r *http.Request, list *catalog.Item, chosen provider.Version, named bool) versionsView {
	all := slices.Clone(list.All())
	slices.Reverse(all)
	v := versionsView{Total: len(all), Filter: newFilter(r.URL.Query().Get("q"))}
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
	v.onPage = all[from:to]
	return v
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

// rows calls row for each version, several at a time. All calls together have one time limit.
func rows(ctx context.Context, versions []provider.Version, chosen provider.Version, row func(context.Context, provider.Version) rowView) []rowView {
	ctx, cancel := context.WithTimeout(ctx, listVersionsWithin)
	defer cancel()
	out := make([]rowView, len(versions))
	var group errgroup.Group
	group.SetLimit(versionReads)
	for i, v := range versions {
		group.Go(func() error {
			out[i] = row(ctx, v)
			out[i].Current = v == chosen
			return nil
		})
	}
	group.Wait()
	return out
}
