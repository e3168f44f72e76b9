package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// versionReads is the number of versions that a listing reads concurrently.
const versionReads = 16

// versionsJSON is the response of "List Available Versions" in the provider registry protocol.
type versionsJSON struct {
	Versions []*listedVersionJSON `json:"versions"`
	Warnings []string             `json:"warnings,omitempty"` // clients show them to users
}

// listedVersionJSON is a version in versionsJSON. The protocols and platforms are omitted if they are unknown.
type listedVersionJSON struct {
	Version   string         `json:"version"`
	Protocols []string       `json:"protocols,omitempty"`
	Platforms []platformJSON `json:"platforms,omitempty"`
}

// isDescribed reports whether a version is listed with its platforms.
func (l *listedVersionJSON) isDescribed() bool { return l != nil && l.Platforms != nil }

type platformJSON struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
}

// serveVersions lists the versions that clients install. If there is none, it answers with 404, so that clients treat
// the provider as absent. But if there is none because rules with a reason deny versions, the list has the denied
// versions. Clients ignore the warnings of a list without versions, and a request for a denied version gets 451 with
// the reason.
func (g *gateway) serveVersions(w http.ResponseWriter, r *http.Request, a provider.Address) error {
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
	defer cancel()
	start := time.Now()
	view := g.View(r)
	item, absent := view.Versions(ctx, a) // never assigned again, because the list can outlive this request
	if absent != nil && !errors.Is(absent, errAbsent) {
		return fmt.Errorf("list signed versions of %s: %w", a, absent)
	}
	list, err := g.sharedList(ctx, fmt.Sprintf("%p %t", item, g.MayFetch(r)), func(ctx context.Context) (*answer, error) {
		list, err := g.versionsOf(ctx, view, item, absent, start)
		if err != nil {
			return nil, fmt.Errorf("list signed versions of %s: %w", a, err)
		}
		made, err := newAnswer(list)
		if err != nil {
			return nil, err
		}
		return g.keep(item, catalog.RegistryDocument, made), nil
	})
	if err == nil {
		list.write(w, r)
	}
	return err
}

// sharedList returns the answer that list makes. Requests that arrive meanwhile with the same key share the answer,
// because a list of thousands of versions takes megabytes while it is made. The function list continues when a
// client leaves.
func (g *gateway) sharedList(ctx context.Context, key string, list func(context.Context) (*answer, error)) (*answer, error) {
	made := g.lists.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.limits.metadata)
		defer cancel()
		var out *answer
		// DoChan would repeat a panic in a goroutine of its own, where nothing can recover from it.
		err := panics.Catch(ctx, g.Log, func() (err error) { out, err = list(ctx); return err })
		return out, err
	})
	select {
	case result := <-made:
		a, _ := result.Val.(*answer)
		return a, result.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// versionsOf makes the list of an item's versions. err is the error with which the catalog returned the item, or nil.
func (g *gateway) versionsOf(ctx context.Context, view catalog.View, item *catalog.Item, err error, start time.Time) (out versionsJSON, _ error) {
	if err == nil {
		out.Warnings = item.Warnings
		out.Versions, err = g.listVersions(ctx, view, item, view.Confirmed(item.Address).Before(start))
	}
	if err == nil && len(out.Versions) == 0 {
		err = errUnsigned
	}
	if err == nil || errors.Is(err, errAbsent) {
		denials := g.Catalog.Denials(item)
		out.Warnings = slices.Concat(out.Warnings, denialWarnings(denials, "denied"))
		if err == nil {
			out.Warnings = append(out.Warnings, denialWarnings(g.Catalog.Deprecations(item), "deprecated")...)
		}
		if err != nil && len(denials) > 0 {
			out.Versions, err = listDenied(denials), nil
		}
	}
	return out, err
}

const (
	maxDenialWarnings = 10 // the maximum number of warnings about denied versions in a list, and about deprecated ones
	maxWarnedVersions = 5  // the maximum number of versions that such a warning names
)

// denialWarnings says that versions are denied or deprecated, and why.
func denialWarnings(denials []catalog.Denial, what string) (out []string) {
	for _, d := range denials[:min(len(denials), maxDenialWarnings)] {
		var names []string
		for _, v := range d.Versions[max(0, len(d.Versions)-maxWarnedVersions):] {
			names = append(names, v.String())
		}
		text, verb := strings.Join(names, ", "), "is"
		if len(names) > 1 {
			verb = "are"
		}
		if more := len(d.Versions) - len(names); more > 0 {
			text += fmt.Sprintf(" and %d older", more)
		}
		out = append(out, fmt.Sprintf("%s %s %s here: %s", text, verb, what, d.Reason))
	}
	return out
}

// listDenied lists denied versions without a description.
func listDenied(denials []catalog.Denial) (out []*listedVersionJSON) {
	for _, d := range denials {
		for _, v := range d.Versions {
			out = append(out, &listedVersionJSON{Version: v.String()})
		}
	}
	return out
}

// listVersions lists the versions in an item that clients install. It reads only the versions that the summary does not
// describe. If no version is signed according to the summary, it reads all versions, because clients treat a provider
// without listed versions as absent.
func (g *gateway) listVersions(ctx context.Context, view catalog.View, item *catalog.Item, fromCache bool) ([]*listedVersionJSON, error) {
	summary := view.Summary(ctx, item)
	out, err := g.listSigned(ctx, view, item, summary, fromCache)
	isListed := func(l *listedVersionJSON) bool { return l != nil }
	if err == nil && len(summary) > 0 && !slices.ContainsFunc(out, isListed) {
		out, err = g.listSigned(ctx, view, item, nil, fromCache)
	}
	if err == nil {
		err = g.addKeyless(ctx, view, item, out)
	}
	return slices.DeleteFunc(out, func(l *listedVersionJSON) bool { return !isListed(l) }), err
}

// listSigned describes the signed versions in an item, oldest first. The description of an unsigned version is nil. A
// version with invalid content is listed without a description. If it were omitted, clients would silently install an
// older version.
//
// If a version cannot be read, listSigned fails, because the version may or may not be signed. But if fromCache is
// true, the list is older than this request, and the version may be unreadable for a long time. In that case, the
// version is listed without a description, so that clients can install other versions. If no version at all can be
// read, listSigned always fails.
func (g *gateway) listSigned(ctx context.Context, view catalog.View, item *catalog.Item, summary artifact.Summary, fromCache bool) ([]*listedVersionJSON, error) {
	a, versions := item.Address, item.Versions
	out := make([]*listedVersionJSON, len(versions))
	trouble := make([]error, len(versions))
	group, ctx := panics.WithContext(ctx)
	group.SetLimit(versionReads)
	for i, v := range versions {
		group.Go(func() error {
			if ctx.Err() != nil && !fromCache {
				return ctx.Err() // the read of another version has failed
			}
			if offer, ok := item.Offer(v); ok && offer.Signed {
				// The offer has all that a list needs, so the origin gets no request for each version.
				out[i] = listed(v, offer.Protocols, offer.Platforms)
				return nil
			}
			if described, ok := summary[v]; ok {
				if described.Signed() {
					out[i] = listed(v, described.Protocols, described.Platforms)
				}
				return nil
			}
			var err error
			if out[i], err = g.listVersion(ctx, view, a, v); err == nil {
				return nil
			}
			out[i] = &listedVersionJSON{Version: v.String()}
			switch trouble[i] = fmt.Errorf("version %s: %w", v, err); {
			case isContent(err):
				trouble[i] = nil
				level := slog.LevelWarn
				if errors.Is(err, verify.ErrRefused) {
					level = slog.LevelDebug // this was logged when the index was first read
				}
				g.Log.Log(ctx, level, "cannot describe", "provider", a.String(), "version", v.String(), "err", hint.Brief(err))
			case !fromCache:
				return trouble[i]
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := cmp.Or(trouble...); err != nil {
		if !slices.ContainsFunc(out, (*listedVersionJSON).isDescribed) {
			return nil, err
		}
		g.Log.DebugContext(ctx, "versions are listed without a description", "provider", a.String(), "err", hint.Brief(err))
	}
	return out, nil
}

// listVersion describes a version of a list if it is signed, and otherwise returns nil. The list has no denied versions, and a
// list needs no look-up of approvals for each version.
func (g *gateway) listVersion(ctx context.Context, view catalog.View, a provider.Address, v provider.Version) (*listedVersionJSON, error) {
	item, err := view.Examine(ctx, a, v)
	if err != nil {
		if StatusOf(err) == http.StatusNotFound {
			return nil, nil // deleted since it was listed
		}
		return nil, err
	}
	found := item.Found
	if verdict, err := artifact.ReadVerdict(ctx, view.Metadata(a), found); err != nil || verdict != trust.Signed {
		return nil, err
	}
	return listed(v, found.Protocols, found.Platforms()), nil
}

func listed(v provider.Version, known []string, platforms []provider.Platform) *listedVersionJSON {
	out := &listedVersionJSON{Version: v.String(), Protocols: protocols(known)}
	for _, p := range platforms {
		out.Platforms = append(out.Platforms, platformJSON{p.OS, p.Arch})
	}
	return out
}

var protocolVersion = regexp.MustCompile(`^[0-9]{1,6}(\.[0-9]{1,6}){0,2}$`)

// protocols returns the valid plugin protocol versions, and never nil. Clients would refuse the whole response because
// of one invalid version.
func protocols(all []string) []string {
	return slices.DeleteFunc(append([]string{}, all...), func(p string) bool { return !protocolVersion.MatchString(p) })
}
