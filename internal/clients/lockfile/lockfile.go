// Package lockfile reads the dependency lock files of OpenTofu and Terraform, .terraform.lock.hcl, and adds hashes to them.
//
// It accepts the same files as the clients. A file contains provider blocks with canonical addresses and versions, at most one
// block for each provider, and nothing unknown. Like the clients, the package ignores and keeps hashes of unknown schemes. It
// refuses some files that clients would read but never write: files with expressions, templates or escapes, and files of more
// than 50,000 tokens.
//
// An edit inserts hashes and changes nothing else, so comments, order and formatting stay. There is one exception: if a hash
// is added after the last hash of a list, a comment on the line of that last hash moves behind the added hash. The result is
// the same as if the client that wrote the file had added the hashes. The caller decides which hashes may be added.
package lockfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// Name is the name of a configuration's lock file.
const Name = ".terraform.lock.hcl"

// MaxBytes is the maximum size of a lock file in bytes. A lock file with a hundred providers is about 300 KiB.
const MaxBytes = 1 << 20

// File is a lock file.
type File struct {
	Name      string     // the path of the file, for messages
	Providers []Provider // the entries, in the order of the file
	Warnings  []string   // the warnings that clients show about the file

	src []byte
}

// Provider is the entry of one provider.
type Provider struct {
	Address     provider.Address
	Version     provider.Version
	Constraints string   // as in the file; "" if there are none
	Hashes      []string // of known and unknown schemes, in the order of the file
	Line        int      // the number of the first line of the entry's block

	body   *hclsyntax.Body
	ranges []hcl.Range // the positions of Hashes, including their quotes
}

// Known returns the hashes of known schemes. Clients compare packages only with these hashes.
func (p Provider) Known() []provider.Hash {
	var out []provider.Hash
	for _, s := range p.Hashes {
		if h, err := provider.ParseHash(s); err == nil {
			out = append(out, h)
		}
	}
	return out
}

// HashLine returns the line number of Hashes[i].
func (p Provider) HashLine(i int) int { return p.ranges[i].Start.Line }

// Read reads the lock file at path.
func Read(path string) (*File, error) {
	src, err := files.Read(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, hint.Wrap(fmt.Errorf("no lock file: %w", err), "run tofu init or terraform init in %s: it writes the lock file", filepath.Dir(path))
	}
	if err != nil {
		return nil, hint.Wrap(err, "give the path of a file %s that a client wrote", Name)
	}
	return Parse(path, src)
}

// Provider returns the entry of a provider. The bool is false if there is no such entry.
func (f *File) Provider(a provider.Address) (Provider, bool) {
	i := slices.IndexFunc(f.Providers, func(p Provider) bool { return p.Address == a })
	if i < 0 {
		return Provider{}, false
	}
	return f.Providers[i], true
}

// Bytes returns the file's content. The caller must not change it.
func (f *File) Bytes() []byte { return f.src }

// Where returns a position in the file as NAME:LINE.
func (f *File) Where(line int) string { return fmt.Sprintf("%s:%d", f.Name, line) }
