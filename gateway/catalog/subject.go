package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// pathOf returns the subject's path in the names of answers and in records.
func pathOf(s subject.Address) string { return subject.TraitsOf(s).Prefix + s.Path() }

// provider returns the question's provider, or the zero value if it is about a module.
func (q question) provider() provider.Address {
	a, _ := q.subject.(provider.Address)
	return a
}

// tagList is the part of a repository's list of tags that names versions.
type tagList struct {
	versions []provider.Version // oldest first, including denied versions
	leadingV []provider.Version // the versions of a module whose only tag has a leading v, oldest first
	etag     string             // "": the registry sent none
}

// versionsIn returns the versions that the tags of a repository name, in no particular order.
func versionsIn(tags []ociaddr.Tag, of subject.Address) (out tagList) {
	for v, t := range ociaddr.TagsOf(of, tags) {
		out.versions = append(out.versions, v)
		if hasLeadingV(t) {
			out.leadingV = append(out.leadingV, v)
		}
	}
	return out
}

// tag returns the tag of a version according to the last list of tags in memory. Without such a
// list, the tag of a module's version has no leading v.
func (c *Catalog) tag(q question) ociaddr.Tag {
	tag, _ := ociaddr.VersionTag(q.version) // reading the version reports the error
	if list := c.cache.Last(c.Registry().question(listing, q.subject)); list != nil && list.Err == nil && slices.Contains(list.Value.tags.leadingV, q.version) {
		return "v" + tag
	}
	return tag
}

// currentTag is like [Catalog.tag]. If a tag with a leading v is likely, it uses a current list
// of tags, because the tag without a v takes precedence as soon as it exists. An error means
// that the registry has not answered.
func (c *Catalog) currentTag(ctx context.Context, up *upstream) (ociaddr.Tag, error) {
	list := c.Registry().question(listing, up.subject)
	if subject.TraitsOf(up.subject).LeadingV && (hasLeadingV(c.tag(up.question)) || hasLeadingV(tagOf(up.before))) && !c.cache.Last(list).Current(time.Now()) {
		if _, err := c.cache.Ask(ctx, list); err != nil {
			return "", err
		}
	}
	return c.tag(up.question), nil
}

// hasLeadingV reports whether a module's tag has a leading v.
func hasLeadingV(t ociaddr.Tag) bool { return strings.HasPrefix(string(t), "v") }

// tagOf returns the tag of the module's version in an answer, or "" if there is none.
func tagOf(a *answer) ociaddr.Tag {
	if a == nil || a.Err != nil || a.Value.Found == nil {
		return ""
	}
	return a.Value.Found.Tag
}

// ModuleVersion is like [View.Version], for a module. Item.Found has exactly one package: the
// zip of the module.
func (c *Catalog) ModuleVersion(ctx context.Context, a module.Address, v provider.Version) (*Item, error) {
	item, err := c.Registry().Version(ctx, a, v)
	if err != nil && !errors.Is(err, ErrNotServed) && !errors.Is(err, ErrDenied) {
		err = fmt.Errorf("read the module %s %s: %w", a, v, err)
	}
	return item, err
}
