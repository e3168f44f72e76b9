// Package lock adds the hashes of stored versions to dependency lock files. It reads from the registry the versions that the
// files name, and verifies them by their evidence. It then compares the versions with the files, and decides which hashes
// each file lacks.
//
// A run reads all files, plans all changes, and then writes all files. Therefore an error while reading or planning leaves
// every file unchanged. A plan never contains hashes of a version that contradicts the file or that the policy refuses.
package lock

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Read reads lock files. Each path names a lock file, or a folder with one. Read returns each file only once.
func Read(paths []string) ([]*lockfile.File, error) {
	var out []*lockfile.File
	seen := map[string]bool{}
	for _, path := range paths {
		info, err := os.Stat(path)
		if filepath.Base(path) != lockfile.Name || err != nil || info.IsDir() {
			path = filepath.Join(path, lockfile.Name)
		}
		path = filepath.Clean(path)
		file, err := lockfile.Read(path)
		if err != nil {
			return nil, err
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		if !seen[path] {
			seen[path] = true
			out = append(out, file)
		}
	}
	return out, nil
}

// Status says whether a lock file contains all hashes that it needs.
type Status string

const (
	Updated    Status = "updated"    // the missing hashes were added
	Unchanged  Status = "unchanged"  // no hash is missing
	Incomplete Status = "incomplete" // hashes are missing and were not added, or [Entry].LeftOut of an entry is not empty
)

// Change is the planned change of one lock file.
type Change struct {
	File    string   `json:"file"`
	Status  Status   `json:"status"`
	Entries []*Entry `json:"providers"`
	// Diff is the change as a unified diff. It is empty until [Change.Compare] is called.
	Diff string `json:"diff,omitempty"`

	old, new *lockfile.File
}

// Entry is the planned change of one entry.
type Entry struct {
	Provider provider.Address `json:"provider"`
	Version  provider.Version `json:"version"`
	// Missing is set if the registry does not have the version. If Missing is set, the fields below are empty.
	Missing bool `json:"missing,omitempty"`
	// Verdict says how the hashes were verified, and Fingerprint identifies the key of their signature. Pinned is set
	// if a trust block pins the key.
	Verdict     trust.Verdict       `json:"verdict,omitempty"`
	Fingerprint string              `json:"fingerprint,omitempty"`
	Pinned      bool                `json:"pinned,omitempty"`
	Platforms   []provider.Platform `json:"platforms"` // the platforms whose hashes the file contains after the change
	Added       []string            `json:"added"`     // the added hashes
	// LeftOut are the wanted platforms that the registry has, but whose packages are refused. The warnings say why.
	LeftOut []provider.Platform `json:"left_out,omitempty"`
}

// Plan reads the versions that the files name, and decides which hashes to add. If versions are missing in the
// registry, the error names all missing versions.
func Plan(ctx context.Context, o Options, files []*lockfile.File) (changes []*Change, warnings []string, err error) {
	found, warnings, err := o.read(ctx, files)
	if err != nil {
		return nil, warnings, err
	}
	for _, file := range files {
		c, err := plan(ctx, file, found, o.Platforms)
		if err != nil {
			return nil, warnings, err
		}
		changes = append(changes, c)
	}
	return changes, warnings, nil
}

// plan compares a lock file with the versions in the registry.
func plan(ctx context.Context, file *lockfile.File, found map[target]*reading, platforms []provider.Platform) (*Change, error) {
	c := &Change{File: file.Name, Status: Unchanged, Entries: []*Entry{}, old: file}
	add := map[provider.Address][]provider.Hash{}
	for _, p := range file.Providers {
		r := found[target{p.Address, p.Version}]
		entry := &Entry{Provider: p.Address, Version: p.Version, Platforms: []provider.Platform{}, Added: []string{}}
		c.Entries = append(c.Entries, entry)
		if r == nil {
			entry.Missing = true
			continue
		}
		if err := r.check(ctx, file, p); err != nil {
			return nil, err
		}
		entry.Verdict, entry.Fingerprint, entry.Pinned = r.verified.Standing(), r.verified.Signer.Fingerprint, r.verified.Pinned
		for _, pkg := range r.verified.Packages {
			if len(platforms) > 0 && !slices.Contains(platforms, pkg.Platform) {
				continue
			}
			entry.Platforms = append(entry.Platforms, pkg.Platform)
			for _, h := range r.hashes(pkg) {
				if !slices.Contains(p.Hashes, h.String()) {
					entry.Added = append(entry.Added, h.String())
					add[p.Address] = append(add[p.Address], h)
				}
			}
		}
		slices.Sort(entry.Added)
		for _, platform := range r.leftOut {
			if len(platforms) == 0 || slices.Contains(platforms, platform) {
				entry.LeftOut = append(entry.LeftOut, platform)
			}
		}
		if entry.lacks() {
			c.Status = Incomplete
		}
	}
	var err error
	if c.new, err = file.With(add); c.new != c.old {
		c.Status = Incomplete
	}
	return c, err
}

// Compare sets c.Diff.
func (c *Change) Compare() { c.Diff = string(diff.Diff(c.File, c.old.Bytes(), c.File, c.new.Bytes())) }

// Write writes the changed files, and returns the changes. After an error, it returns only those whose files are complete. It
// writes all new content to temporary files before it replaces the first file, so that a full disk leaves every file
// unchanged.
func Write(changes []*Change) (done []*Change, err error) {
	replacements := map[*Change]*lockfile.Replacement{}
	for _, c := range changes {
		if c.new == c.old {
			continue
		}
		r, err := c.old.Prepare(c.new.Bytes())
		if err != nil {
			return complete(changes), err
		}
		defer r.Discard()
		replacements[c] = r
	}
	for _, c := range changes {
		if r := replacements[c]; r != nil {
			if err := r.Commit(); err != nil {
				return complete(changes), err
			}
			if !slices.ContainsFunc(c.Entries, (*Entry).lacks) {
				c.Status = Updated
			}
		}
	}
	return changes, nil
}

// lacks reports whether the entry will lack hashes even after the change.
func (e *Entry) lacks() bool { return !e.Missing && (len(e.LeftOut) > 0 || len(e.Platforms) == 0) }

// LeftOut returns an error that names the platforms that the changes leave out, or nil.
func LeftOut(changes []*Change) error {
	var all []string
	for _, c := range changes {
		for _, e := range c.Entries {
			for _, p := range e.LeftOut {
				if text := fmt.Sprintf("%s %s for %s", e.Provider, e.Version, p); !slices.Contains(all, text) {
					all = append(all, text)
				}
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return hint.New("left out, because their packages are refused: "+strings.Join(all, ", "),
		"the warnings say why; the other hashes are added. Leave these platforms out of --platform, or ask the publisher to sign the packages under their usual names")
}

// complete returns the changes whose status is not Incomplete.
func complete(changes []*Change) []*Change {
	return slices.DeleteFunc(slices.Clone(changes), func(c *Change) bool { return c.Status == Incomplete })
}

// check returns an error if the hashes of an entry show that the entry was written for other packages than the registry
// has for the version.
//
// A lock file does not say which hash belongs to which platform. It can also lack the hashes of some platforms. Therefore an
// unknown hash can belong to a package that the registry does not have. An unknown hash cannot belong to such a package
// if it is
//
//   - a zh: hash that the checksum document, which lists all packages, does not list;
//   - an h1: hash that matches no package, while the h1: hash of every platform in the document is known;
//   - in an entry that contains no hash of the version.
//
// Clients do not check this. They accept a package if one hash in the file matches, so every added hash makes the file accept
// more packages. Therefore the last rule applies even if the entry could simply be for other platforms.
//
// The registry has no h1: hash of some packages, for example of a zip with entries for folders. Before the last rule applies,
// check reads such packages, and compares the entry with the h1: hashes of their content.
func (r *reading) check(ctx context.Context, file *lockfile.File, p lockfile.Provider) error {
	if err := r.checkHashes(file, p); err != nil {
		return err
	}
	known := p.Known()
	if len(known) == 0 || slices.ContainsFunc(known, r.knows) {
		return nil
	}
	if slices.ContainsFunc(known, func(h provider.Hash) bool { return !h.IsZip() }) {
		if err := r.hashContents(ctx); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(known, r.knows) {
		return nil
	}
	return r.contradiction(file, p, 0, "neither this hash nor any other of its entry is known to be a package's of the release", nothingShared)
}

// knows reports whether a hash is listed in the checksum document, or is of a stored package.
func (r *reading) knows(h provider.Hash) bool {
	return slices.Contains(r.listed, h) || slices.ContainsFunc(r.packages(), func(p artifact.Package) bool {
		return h == p.ZipHash() || h == p.H1 || r.contents[p.Platform].Has(h)
	})
}

// checkHashes checks each hash of an entry by the first two rules.
func (r *reading) checkHashes(file *lockfile.File, p lockfile.Provider) error {
	complete := r.platforms != nil && !slices.ContainsFunc(r.platforms, func(platform provider.Platform) bool {
		return !slices.ContainsFunc(r.packages(), func(p artifact.Package) bool { return p.Platform == platform && !p.H1.IsZero() })
	})
	for i, text := range p.Hashes {
		h, err := provider.ParseHash(text)
		switch {
		case err != nil: // a hash of an unknown scheme; clients ignore it
		case r.knows(h):
		case h.IsZip() && r.listed != nil:
			return r.contradiction(file, p, i, "the checksum document of the release lists no such package", otherPackages)
		case !h.IsZip() && complete:
			return r.contradiction(file, p, i, "no package of the release has that content", otherPackages)
		}
	}
	return nil
}

const (
	otherPackages = "the entry was made from other packages than the registry has: find out which of them are the publisher's. If it is the registry's, remove the hashes from the entry and run this again"
	nothingShared = "push the platforms, too, that the entry was made on; if it was made from other packages, find out which are the publisher's"
)

func (r *reading) contradiction(file *lockfile.File, p lockfile.Provider, hash int, why, help string) error {
	return hint.New(fmt.Sprintf("%s: %.80q contradicts the registry's %s: %s", file.Where(p.HashLine(hash)), p.Hashes[hash], r.target, why), "%s", help)
}
