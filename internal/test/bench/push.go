package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// pushed is the provider and version that the benchmark pushes.
const pushed = world.Host + "/acme/pushed@1.0.0"

// push compares pushes of a release for 12 platforms with uploads by the ORAS CLI. The ORAS CLI uploads the same
// packages from files. push measures a push from an origin registry over TLS, and a push from a folder. Each run
// uses a new registry.
func (b *bench) push(packageMB int) error {
	folder, err := b.subdir("dist")
	if err != nil {
		return err
	}
	rel, err := b.release(folder, packageMB)
	if err != nil {
		return err
	}
	key := filepath.Join(b.Dir, "key.asc")
	if err := os.WriteFile(key, []byte(b.Signer.ArmoredPublicKey()), 0o644); err != nil {
		return err
	}
	oras, err := clients.Find("oras")
	if err != nil {
		return err
	}
	for _, from := range []struct {
		what string
		args []string
	}{
		{"a registry", []string{"push", pushed}},
		{"a folder", []string{"push", "--release-dir", folder, "--as", pushed, "--public-key", key}},
	} {
		var ratios []float64
		var took []time.Duration
		for range runs {
			ours, err := b.timed(func(reg *registry.Registry) error {
				_, err := b.ws.Run(b.bridge, append(from.args, "--template", reg.Host+"/providers/${hostname}/${namespace}/${type}", "--jobs", "4")...)
				return err
			})
			if err != nil {
				return err
			}
			theirs, err := b.timed(func(reg *registry.Registry) error { return b.orasPush(oras, rel, reg) })
			if err != nil {
				return err
			}
			took = append(took, ours)
			ratios = append(ratios, ours.Seconds()/theirs.Seconds())
		}
		r := row{
			what:   fmt.Sprintf("push of %d x %d MB from %s", len(rel.Packages), packageMB, from.what),
			figure: fmt.Sprintf("%.2f s", median(took).Seconds()), ratio: median(ratios), than: "the time of oras push", wanted: "<= 1.00",
		}
		r.reached = r.ratio <= 1
		b.rows = append(b.rows, r)
	}
	return nil
}

// release creates a release for 12 platforms. Each of its packages has packageMB megabytes. release publishes
// the release at the origin, and also writes it into a folder.
func (b *bench) release(folder string, packageMB int) (*release.Release, error) {
	spec := release.Spec{Host: world.Host, Namespace: "acme", Type: "pushed", Version: "1.0.0", Signer: b.Signer}
	for i := range 12 {
		arch := fmt.Sprintf("arch%d", i)
		zip := filepath.Join(folder, "terraform-provider-pushed_1.0.0_linux_"+arch+".zip")
		if _, err := release.WriteBigZip(zip, "terraform-provider-pushed_v1.0.0", max(1, packageMB*1e6>>20), uint64(i)); err != nil {
			return nil, err
		}
		spec.Contents = append(spec.Contents, release.Content{OS: "linux", Arch: arch, Zip: zip})
	}
	rel, err := release.Build(spec)
	if err != nil {
		return nil, err
	}
	for name, data := range rel.Documents() {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
			return nil, err
		}
	}
	b.Origin.Add(rel)
	return rel, nil
}

// timed returns how long push takes with a new registry.
func (b *bench) timed(push func(*registry.Registry) error) (time.Duration, error) {
	reg, err := registry.Start(b.ctx, registry.Options{})
	if err != nil {
		return 0, err
	}
	defer reg.Stop()
	start := time.Now()
	err = push(reg)
	return time.Since(start), err
}

// orasPush uploads the packages with the commands that OpenTofu's documentation names.
func (b *bench) orasPush(oras clients.Client, rel *release.Release, reg *registry.Registry) error {
	type object = map[string]any
	repo := reg.Host + "/providers/pushed"
	var entries []object
	for _, p := range rel.Packages {
		out, err := b.ws.Stdout(oras, "push", "--plain-http", "--disable-path-validation", "--format", "json",
			"--artifact-type", "application/vnd.opentofu.provider-target", repo, p.Path+":archive/zip")
		if err != nil {
			return err
		}
		var manifest struct {
			Digest string `json:"digest"`
			Size   int64  `json:"size"`
		}
		if err := json.Unmarshal(out, &manifest); err != nil {
			return err
		}
		entries = append(entries, object{
			"mediaType": "application/vnd.oci.image.manifest.v1+json", "artifactType": "application/vnd.opentofu.provider-target",
			"digest": manifest.Digest, "size": manifest.Size, "platform": object{"os": p.OS, "architecture": p.Arch},
		})
	}
	index, err := json.Marshal(object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
		"artifactType": "application/vnd.opentofu.provider", "manifests": entries,
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.ws.Dir, "index.json"), index, 0o644); err != nil {
		return err
	}
	_, err = b.ws.Run(oras, "manifest", "push", "--plain-http", "--media-type", "application/vnd.oci.image.index.v1+json", repo+":1.0.0", "index.json")
	return err
}
