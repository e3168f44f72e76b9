package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// subject is a provider or a module. The other address is zero.
type subject struct {
	address provider.Address
	module  module.Address
}

func (s subject) isModule() bool { return !s.module.IsZero() }

// modulePrefix is the prefix of modules in the names of answers. No hostname has a colon there.
const modulePrefix = "module:"

// path returns the subject's path in the names of answers and in records.
func (s subject) path() string {
	if s.isModule() {
		return modulePrefix + s.module.Path()
	}
	return s.address.Path()
}

// String returns the address in the form for people.
func (s subject) String() string {
	if s.isModule() {
		return s.module.String()
	}
	return s.address.String()
}

// label returns the key of the subject in logs and traces.
func (s subject) label() string {
	if s.isModule() {
		return "module"
	}
	return "provider"
}

// repository returns the repository of a subject.
func (c *Catalog) repository(ctx context.Context, s subject) (Store, error) {
	if s.isModule() {
		return c.opts.Modules.Repository(ctx, s.module)
	}
	return c.opts.Repository(ctx, s.address)
}

// account returns the account of a subject's repository.
func (o *Options) account(s subject) Account {
	if s.isModule() {
		return o.Modules.Account(s.module)
	}
	return o.Account(s.address)
}

// denied returns a *[DeniedError] if a rule denies a version of a subject.
func (c *Catalog) denied(s subject, v provider.Version) error {
	if s.isModule() {
		return c.DeniedModule(s.module, v)
	}
	return c.Denied(s.address, v)
}

// tagList is the part of a repository's list of tags that names versions.
type tagList struct {
	versions []provider.Version // oldest first, including denied versions
	leadingV []provider.Version // the versions of a module whose only tag has a leading v, oldest first
	etag     string             // "": the registry sent none
}

// versions returns the versions that tags name, in no particular order, and without an ETag.
func (s subject) versions(tags []ociaddr.Tag) (out tagList) {
	if s.isModule() {
		for v, t := range ociaddr.ModuleTags(tags) {
			out.versions = append(out.versions, v)
			if _, exact := t.Version(); !exact {
				out.leadingV = append(out.leadingV, v)
			}
		}
		return out
	}
	for _, t := range tags {
		if v, ok := t.Version(); ok {
			out.versions = append(out.versions, v)
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
	if up.isModule() && (hasLeadingV(c.tag(up.question)) || hasLeadingV(tagOf(up.before))) && !c.cache.Last(list).Current(time.Now()) {
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
	if a == nil || a.Err != nil {
		return ""
	}
	return moduleTag(a.Value.Found)
}

// moduleTag returns the tag of a module's version, or "" for a provider.
func moduleTag(v *artifact.Version) ociaddr.Tag {
	if v == nil || v.Module == nil {
		return ""
	}
	return v.Module.Tag
}

// readContent reads a version of a subject from its tag. Only a module's version needs the tag.
// The content of a module's version has the module, one package without a platform, and the
// module's manifest as its index.
func (s subject) readContent(ctx context.Context, from artifact.ReferenceFetcher, v provider.Version, tag ociaddr.Tag) (*artifact.Version, error) {
	if !s.isModule() {
		return artifact.ReadAvailable(ctx, from, s.address, v)
	}
	if _, err := ociaddr.VersionTag(v); err != nil {
		return nil, err
	}
	m, err := artifact.ReadModuleTag(ctx, from, s.module, v, tag)
	if err != nil {
		return nil, err
	}
	zip := artifact.Package{Filename: s.module.Name() + "-" + v.String() + ".zip", Digest: m.Digest, Size: m.Size, H1: m.H1, Manifest: m.Manifest}
	return &artifact.Version{Version: v, Packages: []artifact.Package{zip}, Index: m.Manifest, Module: m}, nil
}

// ModuleOptions configure the catalog of modules.
type ModuleOptions struct {
	// Repository, Account and Redirect are like the fields of [Options], for modules.
	Repository func(context.Context, module.Address) (Store, error)
	Account    func(module.Address) Account
	Redirect   func(context.Context, module.Address, artifact.Package) (string, error)
}

func (o *ModuleOptions) setDefaults() {
	if o.Repository == nil {
		o.Repository = func(context.Context, module.Address) (Store, error) { return nil, ErrNotServed }
	}
	if o.Account == nil {
		o.Account = func(module.Address) Account { return Account{} }
	}
	if o.Redirect == nil {
		o.Redirect = func(context.Context, module.Address, artifact.Package) (string, error) { return "", nil }
	}
}

// ModuleVersions is like [View.Versions], for a module.
func (c *Catalog) ModuleVersions(ctx context.Context, a module.Address) (*Item, error) {
	return c.Registry().get(ctx, c.Registry().question(listing, subject{module: a}))
}

// KnownModules is like [Catalog.Known], for modules.
func (c *Catalog) KnownModules() []module.Address {
	var out []module.Address
	for _, a := range c.cache.Good() {
		if a.Value.IsListing() && a.Value.about.isModule() {
			out = append(out, a.Value.about.module)
		}
	}
	return out
}

// ModuleConfirmed is like [View.Confirmed], for a module.
func (c *Catalog) ModuleConfirmed(a module.Address) time.Time {
	return c.Registry().confirmed(subject{module: a})
}

// ModuleVersion is like [View.Version], for a module. Item.Found has exactly one package: the
// zip of the module.
func (c *Catalog) ModuleVersion(ctx context.Context, a module.Address, v provider.Version) (*Item, error) {
	if err := c.DeniedModule(a, v); err != nil {
		return nil, err
	}
	item, err := c.Registry().get(ctx, c.Registry().versionQuestion(subject{module: a}, v))
	if err != nil && !errors.Is(err, ErrNotServed) {
		err = fmt.Errorf("read the module %s %s: %w", a, v, err)
	}
	return item, err
}

// ModulePackage is like [View.Package], for the zip of a module.
func (c *Catalog) ModulePackage(ctx context.Context, a module.Address, p artifact.Package) Blob {
	store, err := c.opts.Modules.Repository(ctx, a)
	stored := Stored{store, p.Layer(), func(ctx context.Context) (string, error) { return c.opts.Modules.Redirect(ctx, a, p) }}
	if err != nil {
		return unavailable{stored, err}
	}
	return stored
}

// DeniedModule is like [Catalog.Denied], for a version of a module.
func (c *Catalog) DeniedModule(a module.Address, v provider.Version) error {
	if rule, ok := FindModuleDeny(c.opts.Deny, a, v); ok {
		return &DeniedError{Module: a, Version: v, Reason: rule.Reason}
	}
	return nil
}

// RefreshModule is like [Catalog.Refresh], for a module.
func (c *Catalog) RefreshModule(a module.Address) int { return c.refresh(subject{module: a}) }
