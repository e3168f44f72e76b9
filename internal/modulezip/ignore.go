package modulezip

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/go-slug"

	"github.com/ocibridge/ocibridge/internal/files"
)

const (
	ignoreFile = ".terraformignore"
	// maxIgnoreBytes is the maximum size of an ignore file in bytes. The library cannot read
	// longer lines.
	maxIgnoreBytes = 60 << 10
)

// withoutIgnored returns the entries that the folder's .terraformignore does not exclude.
//
// The library that Terraform uses applies the rules only while it packs a folder. Here it packs
// a temporary folder of empty files with the same names. It thus decides about copies that
// replace links too, and opens no file of the module.
func withoutIgnored(ctx context.Context, root *os.Root, entries []entry) ([]entry, error) {
	if !slices.ContainsFunc(entries, func(e entry) bool { return e.name == ignoreFile && e.refused == nil }) {
		return entries, nil
	}
	rules, err := readRules(root)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ocibridge-*")
	if err != nil {
		return nil, storageError(err)
	}
	defer os.RemoveAll(dir)
	if err := writeNames(ctx, dir, entries, rules); err != nil {
		return nil, err
	}
	packer, err := slug.NewPacker(slug.ApplyTerraformIgnore())
	if err != nil {
		return nil, err
	}
	meta, err := packer.Pack(dir, io.Discard)
	if err != nil {
		return nil, storageError(err)
	}
	included := make(map[string]bool, len(meta.Files))
	for _, name := range meta.Files {
		included[name] = true
	}
	return slices.DeleteFunc(entries, func(e entry) bool { return !included[e.name] }), nil
}

// readRules reads the ignore file, without the empty rules that make the library panic.
func readRules(root *os.Root) ([]byte, error) {
	f, _, err := files.OpenRegular(root, ignoreFile)
	if err != nil {
		return nil, readError(err, "remove the file")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIgnoreBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the module: %w", err)
	}
	if len(data) > maxIgnoreBytes {
		return nil, refuse("shorten it", "%s has more than %d bytes", ignoreFile, maxIgnoreBytes)
	}
	var rules bytes.Buffer
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		if rule := strings.TrimSpace(lines.Text()); rule != "" && rule != "!" {
			fmt.Fprintln(&rules, rule)
		}
	}
	return rules.Bytes(), lines.Err()
}

// writeNames writes an empty file for each entry, and the ignore file.
func writeNames(ctx context.Context, dir string, entries []entry, rules []byte) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return storageError(err)
	}
	defer root.Close()
	made := map[string]bool{}
	for _, e := range entries {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		var content []byte
		if e.name == ignoreFile {
			content = rules
		}
		parent := path.Dir(e.name)
		if !made[parent] {
			err, made[parent] = root.MkdirAll(parent, 0o700), true
		}
		if err = errors.Join(err, root.WriteFile(e.name, content, 0o600)); err != nil {
			return storageError(err)
		}
	}
	return nil
}
