package page

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/provider"
)

// subjectView is the part of a page that providers and modules have in common.
type subjectView struct {
	entry
	Sources []sourceView
	Twins   []twinView
	Newest  bool         // the shown version is the one that clients choose by default
	Unshown *messageView // the reason why the newest version cannot be shown, or nil
	Trouble *troubleView // nil if the registry answers
	Pushed  time.Time    // when the shown version was pushed; zero if unknown
	LastUse *lastUseView // of the shown version; nil if the gateway does not remember uses
	versionsView

	chosen choice
}

func (v *subjectView) title() string {
	if v.chosen.named {
		return v.String() + " " + v.chosen.text
	}
	return v.String()
}

// versionsView is the list of versions on the page of a provider or module.
type versionsView struct {
	Versions  []rowView
	Platforms []provider.Platform // those of every listed version; nil if they differ
	Total     int
	Matching  int        // the number of versions that the filter selects
	Filter    filterView // selects the versions in the list
	Confirmed time.Time  // when the registry last confirmed the list
	Pages     pager
	Verdicts  bool // the list shows verdicts
	Pulls     bool // missing versions are fetched from the origin
}

// choice is the version that a page shows: the version in the path, or else the newest version. It is zero if there are
// no versions.
type choice struct {
	version provider.Version
	text    string // the version as users write it
	named   bool   // the path has the version
}

// open reads the versions of the provider or module of v, and chooses the version to show. The bool is false if open
// itself has answered the request. err is the error of the address in the path. name is for messages.
func (p *page) open(ctx context.Context, w http.ResponseWriter, r *http.Request, v *subjectView, view catalog.View, name string, err error) (*catalog.Item, bool) {
	who := p.known(w, r)
	switch {
	case who == nil:
		return nil, false
	case err != nil:
		p.say(w, r, messageView{Kind: "no address", What: v.What(), Status: http.StatusNotFound})
		return nil, false
	case !who.MayRead(v.Address):
		p.forbid(w, r, who, v.entry)
		return nil, false
	}
	list, err := view.Versions(ctx, v.Address)
	if err != nil {
		p.fail(w, r, v.entry, "", fmt.Errorf("list versions of %s: %w", name, err))
		return nil, false
	}
	v.Trouble = standings{view.Standing(v.Address)}.trouble()
	p.directory.note(v.entry)
	newest := newestOf(list.Versions)
	asked, named := mux.Vars(r)["version"]
	v.chosen = choice{newest, newest.String(), named}
	if named {
		if v.chosen.version, err = provider.ParseVersion(asked); err != nil {
			p.fail(w, r, v.entry, asked, fmt.Errorf("%w: %v", catalog.ErrAbsent, err))
			return nil, false
		}
		v.chosen.text = v.chosen.version.String()
	}
	v.Newest = v.chosen.version == newest
	return list, true
}

// omit handles the error of the version to show. If the path names that version, it answers the request and returns
// false. Otherwise users can choose another version, and omit adds the reason to v.
func (p *page) omit(w http.ResponseWriter, r *http.Request, v *subjectView, err error) bool {
	version := v.chosen.text
	if v.chosen.named {
		p.fail(w, r, v.entry, version, err)
		return false
	}
	p.Log.WarnContext(r.Context(), "cannot show", "path", r.URL.Path, "version", version, "err", hint.Brief(err))
	v.Unshown = &messageView{Kind: kindOf(err, version), Status: gateway.StatusOf(err), Version: version}
	return true
}

// listVersions returns the part of the list of versions that a request selects, and calls row for each version.
func listVersions(ctx context.Context, r *http.Request, list *catalog.Item, chosen choice, row func(context.Context, provider.Version) rowView) versionsView {
	all := slices.Clone(list.All())
	slices.Reverse(all)
	v := versionsView{Total: len(all), Filter: newFilter(r.URL.Query().Get("q"))}
	all = v.Filter.apply(all)
	v.Matching = len(all)
	part := r.URL.Query().Get("page")
	if at := slices.Index(all, chosen.version); part == "" && chosen.named && at >= 0 {
		part = strconv.Itoa(at/versionsPerPage + 1) // the page of the list with this version
	}
	var from, to int
	v.Pages, from, to = newPager(v.Matching, versionsPerPage, part)
	v.Pages.label("the versions", "Newer", "Older")
	v.Pages.link("page", "", url.Values{"q": {v.Filter.Text}})
	v.Versions = rows(ctx, all[from:to], chosen.version, row)
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
	var group panics.Group
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

// filterView is a user's filter for versions: a constraint such as "~> 1.2", the beginning of a version such as 1.2, or
// a part of a prerelease such as beta.
type filterView struct {
	Text string // "" selects all versions
	Bad  bool   // the text has an operator, but is not a constraint; it selects no version

	set provider.VersionSet
}

// maxFilter is the maximum length of a filter in bytes.
const maxFilter = 100

func newFilter(text string) (f filterView) {
	f.Text = strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), maxFilter)], ""))
	if strings.ContainsAny(f.Text, "~<>=!,") {
		var err error
		f.set, err = provider.ParseConstraint(f.Text)
		f.Bad = err != nil
	}
	return f
}

// apply returns the versions that the filter selects.
func (f *filterView) apply(all []provider.Version) []provider.Version {
	if f.Text == "" {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(v provider.Version) bool { return !f.selects(v) })
}

func (f *filterView) selects(v provider.Version) bool {
	if f.Bad || f.set.String() != "" {
		return f.set.Has(v)
	}
	text := strings.ToLower(v.String())
	words := strings.ToLower(strings.TrimPrefix(f.Text, "v"))
	if strings.HasPrefix(text, words) {
		return true
	}
	i := strings.IndexAny(text, "-+")
	return i >= 0 && strings.Contains(text[i:], words)
}
