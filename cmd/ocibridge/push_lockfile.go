package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/lockfile"
	"github.com/ocibridge/ocibridge/internal/query"
	"github.com/ocibridge/ocibridge/trust"
)

// lockedRequests are the versions that lock files name, in their order, each once.
// Of a version that several of them name, each file must know every package.
func lockedRequests(paths []string, stderr io.Writer) ([]request, error) {
	var out []request
	for _, path := range paths {
		file, err := lockfile.Read(path)
		if err != nil {
			return nil, fmt.Errorf("--lock-file: %w", err)
		}
		for _, w := range file.Warnings {
			fmt.Fprintf(stderr, "warning: %s\n", w)
		}
		for _, p := range file.Providers {
			if len(p.Known()) == 0 {
				return nil, hint.New(fmt.Sprintf("%s: %s %s has no hashes there to check packages against", file.Where(p.Line), p.Address, p.Version),
					"have them written by tofu providers lock or terraform providers lock")
			}
			out = addLocked(out, request{
				Query: query.Query{Provider: p.Address, Version: p.Version},
				known: []trust.Known{{Where: file.Where(p.Line), Hashes: p.Known()}},
			})
		}
	}
	if len(out) == 0 {
		return nil, hint.New(fmt.Sprintf("no provider is locked in %s", strings.Join(paths, ", ")), "run tofu init or terraform init there: it writes the lock file")
	}
	return out, nil
}

// addLocked adds a request to those that there are, or what it knows to one for
// the same version.
func addLocked(requests []request, r request) []request {
	for i := range requests {
		if q := &requests[i]; q.Provider == r.Provider && q.Version == r.Version {
			q.known = append(q.known, r.known...)
			return requests
		}
	}
	return append(requests, r)
}

// where names the place that asked for what failed, if it is in a file.
func (r request) where(err error) error {
	if len(r.known) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", r.known[0].Where, err)
}
