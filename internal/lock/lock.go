// Package lock adds the hashes of stored versions to dependency lock files. It reads the
// versions that the files name from the registry, verifies them by their evidence, compares
// them with the files, and decides which hashes each file lacks.
//
// A run has three steps, so that an error leaves every file unchanged: read all files, plan
// all changes, write all files. A plan never contains hashes of a version that contradicts
// the file or that the policy refuses.
package lock

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/ocibridge/ocibridge/internal/lockfile"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Read reads lock files. Each path names a lock file, or a folder that contains one. Read
// returns each file only once, even if several paths lead to it.
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

// Status says whether a lock file contains all hashes.
type Status string

const (
	// Updated: hashes were added.
	Updated Status = "updated"
	// Unchanged: no hash is missing.
	Unchanged Status = "unchanged"
	// Incomplete: hashes are missing, and were not added.
	Incomplete Status = "incomplete"
)

// Change is the planned change of one lock file.
type Change struct {
	File    string   `json:"file"`
	Status  Status   `json:"status"`
	Entries []*Entry `json:"providers"`
	// Diff is the change as a unified diff. Only [Change.Compare] sets it.
	Diff string `json:"diff,omitempty"`

	old, new *lockfile.File
}

// Entry is the planned change of one entry.
type Entry struct {
	Provider provider.Address `json:"provider"`
	Version  provider.Version `json:"version"`
	// Missing is set if the registry lacks the version. The fields below are then empty.
	Missing bool `json:"missing,omitempty"`
	// Verdict and Fingerprint say how, and with which key, the hashes were verified. Pinned
	// is set if a trust block pins that key.
	Verdict     trust.Verdict       `json:"verdict,omitempty"`
	Fingerprint string              `json:"fingerprint,omitempty"`
	Pinned      bool                `json:"pinned,omitempty"`
	Platforms   []provider.Platform `json:"platforms"` // the platforms whose hashes the file has after the change
	Added       []string            `json:"added"`     // the added hashes
}

// Plan reads the versions that the files name, and decides which hashes to add. If the
// registry lacks any of them, the error names all that are missing.
func Plan(ctx context.Context, o Options, files []*lockfile.File) (changes []*Change, warnings []string, err error) {
	found, warnings, err := o.read(ctx, files)
	if err != nil {
		return nil, warnings, err
	}
	for _, file := range files {
		c, err := plan(file, found, o.Platforms)
		if err != nil {
			return nil, warnings, err
		}
		changes = append(changes, c)
	}
	return changes, warnings, nil
}

// plan compares a lock file with the versions in the registry.
func plan(file *lockfile.File, found map[target]*reading, platforms []provider.Platform) (*Change, error) {
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
		if err := r.check(file, p); err != nil {
			return nil, err
		}
		entry.Verdict, entry.Fingerprint, entry.Pinned = r.verified.Verdict, r.verified.Signer.Fingerprint, r.verified.Pinned
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
	}
	var err error
	if c.new, err = file.With(add); err != nil {
		return nil, err
	}
	if c.new != c.old {
		c.Status = Incomplete
	}
	return c, nil
}

// Compare sets the change's Diff.
func (c *Change) Compare() {
	c.Diff = string(diff.Diff(c.File, c.old.Bytes(), c.File, c.new.Bytes()))
}

// Write writes the changed files. It returns the changes that are complete. It writes all
// new files next to the old ones before it replaces the first file, so a full disk leaves
// every file unchanged.
func Write(changes []*Change) (done []*Change, err error) {
	replacements := map[*Change]*lockfile.Replacement{}
	for _, c := range changes {
		if c.Status != Incomplete {
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
			c.Status = Updated
		}
	}
	return changes, nil
}

// complete returns the changes that are not incomplete.
func complete(changes []*Change) (out []*Change) {
	for _, c := range changes {
		if c.Status != Incomplete {
			out = append(out, c)
		}
	}
	return out
}
