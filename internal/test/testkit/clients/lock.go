package clients

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// LockFileName is the name of the lock file. Clients keep it in the folder of the
// configuration.
const LockFileName = ".terraform.lock.hcl"

// A Locked is the entry of a provider in a lock file.
type Locked struct {
	Version     string
	Constraints string
	Hashes      []string // the zh: and h1: hashes, in the order of the file
}

// lockFile is the syntax of a lock file.
type lockFile struct {
	Providers []struct {
		Address     string   `hcl:"address,label"`
		Version     string   `hcl:"version"`
		Constraints string   `hcl:"constraints,optional"`
		Hashes      []string `hcl:"hashes,optional"`
	} `hcl:"provider,block"`
}

// ParseLock parses a dependency lock file. The keys of the result are provider addresses,
// such as "registry.example.com/acme/widget". name is the file's name for error messages.
func ParseLock(name string, data []byte) (map[string]Locked, error) {
	file, diags := hclsyntax.ParseConfig(data, name, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, diags
	}
	var lock lockFile
	if diags := gohcl.DecodeBody(file.Body, nil, &lock); diags.HasErrors() {
		return nil, diags
	}
	out := make(map[string]Locked, len(lock.Providers))
	for _, p := range lock.Providers {
		if _, ok := out[p.Address]; ok {
			return nil, fmt.Errorf("%s: provider %s is locked twice", name, p.Address)
		}
		out[p.Address] = Locked{p.Version, p.Constraints, p.Hashes}
	}
	return out, nil
}

// Lock reads the lock file that a client wrote in the workspace.
func (w *Workspace) Lock() (map[string]Locked, error) {
	path := filepath.Join(w.Dir, LockFileName)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseLock(path, data)
}
