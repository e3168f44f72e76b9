package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// check builds the last commit in two clones with different paths. The second build uses
// an empty build cache. The SHA256SUMS of both builds must be the same.
func check(o options) error {
	temp, err := os.MkdirTemp("", "ocibridge-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	git := builder{options: o}
	var sums [][]byte
	for i, folder := range []string{"a", "another/and/longer"} {
		clone := filepath.Join(temp, folder)
		if _, err := git.run("git", "clone", "--quiet", "--no-hardlinks", o.root, clone); err != nil {
			return err
		}
		cache := os.Getenv("GOCACHE")
		if i > 0 {
			cache = filepath.Join(temp, "cache")
		}
		to := options{root: clone, out: filepath.Join(temp, fmt.Sprintf("dist%d", i)), version: o.version, platforms: o.platforms}
		if err := build(to, cache); err != nil {
			return err
		}
		sum, err := os.ReadFile(filepath.Join(to.out, "SHA256SUMS"))
		if err != nil {
			return err
		}
		sums = append(sums, sum)
	}
	if !bytes.Equal(sums[0], sums[1]) {
		return fmt.Errorf("the two builds differ")
	}
	fmt.Println("The two builds are the same.")
	return nil
}
