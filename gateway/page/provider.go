package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/subject"
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

	Signer    string    // the fingerprint of the key, as recorded at the push, or ""
	Pinned    bool      // the configuration pins that key
	Published time.Time // when the origin published the version; zero if unknown
	Pushed    time.Time // when the version was pushed; zero if unknown

	evidence *ocispec.Descriptor // nil if there is none
}

// Date returns when the version was published, or else when it was pushed, or the zero time.
func (r rowView) Date() time.Time {
	if r.Published.IsZero() {
		return r.Pushed
	}
	return r.Published
}

// States of a version. The list of versions and the page of a version use the same words.
const (
	rowSigned    = "signed"
	rowOther     = string(artifact.SignedOtherName)
	rowChecksum  = "checksum only"
	rowNone      = "no evidence"
	rowOffered   = "at its origin" // not stored yet
	rowDenied    = "denied"
	rowWaiting   = "not approved"
	rowRefused   = "refused"
	rowUnpinned  = "not signed by a pinned key"
	rowSignature = "signature not valid"
	rowEvidence  = "evidence not valid"
	rowUnknown   = "not known now"
)

// Class returns the CSS class of the row's state.
func (r rowView) Class() string { return classOf(r.State) }

// classOf returns the CSS class of a state.
func classOf(state string) string {
	switch state {
	case rowSigned:
		return "fair"
	case rowChecksum, rowNone, rowOther:
		return "weak"
	case rowRefused, rowDenied, rowWaiting, rowUnpinned, rowSignature, rowEvidence:
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
	if v.Shown != nil && v.Shown.Manual != nil && v.Shown.Manual.Path != "" {
		p.render(w, r, http.StatusOK, "docs", layout{Title: v.Shown.Manual.title(v.title()), View: v})
		return
	}
	v.versionsView = listVersions(ctx, r, list, v.chosen, func(ctx context.Context, of provider.Version) rowView { return p.row(ctx, view, list, of) })
	p.addRecords(ctx, view, a, v.Versions)
	if v.Shown != nil {
		v.showVerdict(v.Shown.Signature.State)
		v.Pushed, v.LastUse = p.pushed(a, v.Shown.Version), p.lastUse(a, v.Shown.Version)
	}
	v.sharePlatforms()
	v.Twins = p.twins(r, v.entry)
	v.Confirmed, v.Verdicts, v.Pulls = view.Confirmed(a), true, p.MayFetch(r) && p.Pulls(a)
	p.render(w, r, http.StatusOK, "provider", layout{Title: v.title(), View: v})
}

// pushed returns when a version was pushed, or the zero time.
func (p *page) pushed(a subject.Address, v provider.Version) time.Time {
	if p.Changed == nil {
		return time.Time{}
	}
	return p.Changed(a, v)
}

// addRecords adds the records of the evidence to the rows, several at a time.
func (p *page) addRecords(ctx context.Context, view catalog.View, a provider.Address, rows []rowView) {
	var group panics.Group
	group.SetLimit(versionReads)
	ctx, cancel := context.WithTimeout(ctx, recordPatience)
	defer cancel()
	for i := range rows {
		group.Go(func() error {
			p.addRecord(ctx, view, a, &rows[i])
			return nil
		})
	}
	group.Wait()
}

// showVerdict gives the shown version in the list the verdict that the page has just found.
func (v *providerView) showVerdict(state string) {
	for i := range v.Versions {
		if row := &v.Versions[i]; row.Current && row.State != rowOffered {
			row.State = state
		}
	}
}

// sharePlatforms moves the platforms of the listed versions to the list, if all versions have the same.
func (v *providerView) sharePlatforms() {
	var shared []provider.Platform
	n := 0
	for _, row := range v.Versions {
		switch {
		case row.Platforms == nil:
			continue // unknown, or not served
		case n > 0 && !slices.Equal(row.Platforms, shared):
			return
		}
		shared, n = row.Platforms, n+1
	}
	if n < 2 {
		return
	}
	v.Platforms = shared
	for i := range v.Versions {
		v.Versions[i].Platforms = nil
	}
}

// twinView is the same provider or module at the other public registry.
type twinView struct {
	entry
	Client string // the client whose default host that is
}

// twins returns the same provider or module at the other public registry, if it is known here and the client may read it.
func (p *page) twins(r *http.Request, e entry) (out []twinView) {
	host, client := "registry.opentofu.org", "OpenTofu"
	switch e.Hostname() {
	case host:
		host, client = "registry.terraform.io", "Terraform"
	case "registry.terraform.io":
	default:
		return nil
	}
	twin, _, ok := exact(host + strings.TrimPrefix(e.Path(), e.Hostname()))
	who, err := p.Access.Person(r)
	if !ok || err != nil || twin.Kind() != e.Kind() || !p.mayRead(who, twin) {
		return nil
	}
	if !p.directory.now(r.Context()).has(twin) {
		return nil
	}
	return []twinView{{twin, client}}
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
	item, err := inHalf(ctx, func(ctx context.Context) (*catalog.Item, error) { return view.Version(ctx, a, v) })
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
	if row.evidence, row.Pushed = item.Found.Evidence, p.pushed(a, v); row.evidence == nil {
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
