package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/rogpeppe/go-internal/testscript"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
)

// writeLock writes a lock file as OpenTofu does, for a configuration that uses a version of
// registry.acme.example/acme/widget. It also creates the folder of the file:
//
//	lockfile FILE VERSION [HASH...]
//
// HASH is zh:PLATFORM or h1:PLATFORM for a hash of the origin's package. It is
// other-zh:PLATFORM or other-h1:PLATFORM for a hash of a package with other content.
func writeLock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: lockfile FILE VERSION [HASH...]")
	}
	var hashes []string
	for _, arg := range args[2:] {
		hashes = append(hashes, fmt.Sprintf("    %q,\n", widgetHash(ts, args[1], arg)))
	}
	slices.Sort(hashes)
	list := ""
	if len(hashes) > 0 {
		list = "  hashes = [\n" + strings.Join(slices.Compact(hashes), "") + "  ]\n"
	}
	path := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(path[:strings.LastIndex(path, "/")], 0o755))
	ts.Check(os.WriteFile(path, fmt.Appendf(nil, `# This file is maintained automatically by "tofu init".
# Manual edits may be lost in future updates.

provider "%s/acme/widget" {
  version     = %q
  constraints = %[2]q
%s}
`, widgetHost, args[1], list), 0o640))
}

// widgetHash returns the hash that a HASH argument of writeLock names.
func widgetHash(ts *testscript.TestScript, version, name string) string {
	scheme, platform, _ := strings.Cut(name, ":")
	content := ""
	if s, ok := strings.CutPrefix(scheme, "other-"); ok {
		scheme, content = s, "other"
	}
	for _, p := range widgetRelease(ts, version, content, nil).Packages {
		if p.OS+"_"+p.Arch != platform {
			continue
		}
		if scheme == "zh" {
			return "zh:" + p.SHA256
		}
		h1, err := provider.H1(context.Background(), bytes.NewReader(p.Data), p.Size)
		ts.Check(err)
		return h1.String()
	}
	ts.Fatalf("no such hash: %s", name)
	return ""
}

// forge changes the index of a version in $REGISTRY/providers/acme/widget. An attacker with
// the right to write to the registry can make the same changes. forge changes no signed
// document:
//
//	forge h1 VERSION           replace every h1: hash with the hash of another package
//	forge no-h1 VERSION        remove the h1: hashes
//	forge swap VERSION         exchange the packages of the two platforms
//	forge no-evidence VERSION  remove the evidence
//	forge size VERSION         add one byte to every size in the index and the manifests
func forge(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: forge h1|no-h1|swap|no-evidence|size VERSION")
	}
	ctx := context.Background()
	repo, err := remote.NewRepository(ts.Getenv("REGISTRY") + "/providers/acme/widget")
	ts.Check(err)
	repo.PlainHTTP = true
	_, body, err := repo.FetchReference(ctx, args[1])
	ts.Check(err)
	defer body.Close()
	var index ocispec.Index
	ts.Check(json.NewDecoder(body).Decode(&index))
	var packages []*ocispec.Descriptor
	for i := range index.Manifests {
		if index.Manifests[i].Platform != nil {
			packages = append(packages, &index.Manifests[i])
		}
	}
	const h1 = "io.github.ocibridge.h1"
	for _, p := range packages {
		switch args[0] {
		case "h1":
			p.Annotations[h1] = widgetHash(ts, args[1], "other-h1:"+p.Platform.OS+"_"+p.Platform.Architecture)
		case "no-h1":
			delete(p.Annotations, h1)
		case "size":
			forgeSize(ts, repo, p)
		}
	}
	if args[0] == "swap" {
		packages[0].Platform, packages[1].Platform = packages[1].Platform, packages[0].Platform
	}
	if args[0] == "no-evidence" {
		index.Manifests = slices.DeleteFunc(index.Manifests, func(d ocispec.Descriptor) bool { return d.ArtifactType == artifact.TypeEvidence })
	}
	data, err := json.Marshal(index)
	ts.Check(err)
	ts.Check(repo.PushReference(ctx, content.NewDescriptorFromBytes(ocispec.MediaTypeImageIndex, data), bytes.NewReader(data), args[1]))
}

// forgeSize replaces the manifest of an index entry. In the new manifest, the size of the
// package is one byte too large.
func forgeSize(ts *testscript.TestScript, repo *remote.Repository, entry *ocispec.Descriptor) {
	ctx := context.Background()
	data, err := content.FetchAll(ctx, repo, *entry)
	ts.Check(err)
	var m ocispec.Manifest
	ts.Check(json.Unmarshal(data, &m))
	m.Layers[0].Size++
	data, err = json.Marshal(m)
	ts.Check(err)
	desc := content.NewDescriptorFromBytes(entry.MediaType, data)
	ts.Check(repo.Push(ctx, desc, bytes.NewReader(data)))
	entry.Digest, entry.Size = desc.Digest, desc.Size
	entry.Annotations["io.github.ocibridge.layer.size"] = fmt.Sprint(m.Layers[0].Size)
}
