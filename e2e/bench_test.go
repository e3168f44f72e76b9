package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
)

// BenchmarkPush compares a push of a release of 12 platforms with what the ORAS CLI
// takes to store the same packages from files: "x-oras" is how many times as long
// ocibridge takes. It gets them from an origin registry over TLS ("origin"), or
// from a folder, as ORAS does ("folder"). Each run has a registry of its own.
//
// OCIBRIDGE_BENCH_MB is the size of a package in megabytes; without it, 10.
func BenchmarkPush(b *testing.B) {
	size := 10
	if s := os.Getenv("OCIBRIDGE_BENCH_MB"); s != "" {
		var err error
		if size, err = strconv.Atoi(s); err != nil || size < 1 {
			b.Fatalf("OCIBRIDGE_BENCH_MB is %q", s)
		}
	}
	w := world.For(b)
	bridge, err := world.Bridge()
	if err != nil {
		b.Fatal(err)
	}
	ws, err := w.Workspace("")
	if err != nil {
		b.Fatal(err)
	}
	ws.Timeout = 10 * time.Minute
	folder := filepath.Join(ws.Dir, "dist")
	rel := benchRelease(b, w, folder, size)
	key := filepath.Join(ws.Dir, "key.asc")
	clients.Must(b, os.WriteFile(key, []byte(w.Signer.ArmoredPublicKey()), 0o644))

	const name = world.Host + "/acme/bench@1.0.0"
	for source, args := range map[string][]string{
		"origin": {"push", name},
		"folder": {"push", "--release-dir", folder, "--as", name, "--public-key", key},
	} {
		b.Run(source, func(b *testing.B) {
			b.SetBytes(int64(len(rel.Packages)) * rel.Packages[0].Size)
			var ours, oras time.Duration
			for b.Loop() {
				ours += timed(b, func(reg *registry.Registry) {
					ws.MustRun(b, bridge, append(args, "--template", template(reg), "--jobs", "4")...)
				})
				b.StopTimer()
				oras += timed(b, func(reg *registry.Registry) { orasPush(b, ws, rel, reg) })
				b.StartTimer()
			}
			b.ReportMetric(ours.Seconds()/oras.Seconds(), "x-oras")
		})
	}
}

// benchRelease publishes a release of 12 platforms, whose packages have so many
// megabytes each and are in a folder, and returns it.
func benchRelease(b *testing.B, w *world.World, folder string, size int) *release.Release {
	clients.Must(b, os.Mkdir(folder, 0o755))
	spec := release.Spec{Host: world.Host, Namespace: "acme", Type: "bench", Version: "1.0.0", Signer: w.Signer}
	for i := range 12 {
		arch := fmt.Sprintf("arch%d", i)
		zip := filepath.Join(folder, "terraform-provider-bench_1.0.0_linux_"+arch+".zip")
		if _, err := release.WriteBigZip(zip, "terraform-provider-bench_v1.0.0", max(1, size*1e6>>20), uint64(i)); err != nil {
			b.Fatal(err)
		}
		spec.Contents = append(spec.Contents, release.Content{OS: "linux", Arch: arch, Zip: zip})
	}
	rel := release.For(b, spec)
	for name, data := range rel.Documents() {
		clients.Must(b, os.WriteFile(filepath.Join(folder, name), data, 0o644))
	}
	w.Origin.Add(rel)
	return rel
}

// timed returns how long a push to a new registry takes.
func timed(b *testing.B, push func(*registry.Registry)) time.Duration {
	reg, err := registry.Start(b.Context(), registry.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer reg.Stop()
	start := time.Now()
	push(reg)
	return time.Since(start)
}

// orasPush stores the packages by OpenTofu's documented recipe.
func orasPush(b *testing.B, ws *clients.Workspace, rel *release.Release, reg *registry.Registry) {
	type object = map[string]any
	oras := clients.ORAS(b)
	repo := reg.Host + "/providers/bench"
	var entries []object
	for _, p := range rel.Packages {
		out, err := ws.Stdout(oras, "push", "--plain-http", "--disable-path-validation", "--format", "json",
			"--artifact-type", "application/vnd.opentofu.provider-target", repo, p.Path+":archive/zip")
		if err != nil {
			b.Fatal(err)
		}
		var pushed struct {
			Digest string `json:"digest"`
			Size   int64  `json:"size"`
		}
		clients.Must(b, json.Unmarshal(out, &pushed))
		entries = append(entries, object{
			"mediaType": "application/vnd.oci.image.manifest.v1+json", "artifactType": "application/vnd.opentofu.provider-target",
			"digest": pushed.Digest, "size": pushed.Size, "platform": object{"os": p.OS, "architecture": p.Arch},
		})
	}
	index, err := json.Marshal(object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
		"artifactType": "application/vnd.opentofu.provider", "manifests": entries,
	})
	clients.Must(b, err)
	clients.Must(b, os.WriteFile(filepath.Join(ws.Dir, "index.json"), index, 0o644))
	ws.MustRun(b, oras, "manifest", "push", "--plain-http", "--media-type", "application/vnd.oci.image.index.v1+json", repo+":1.0.0", "index.json")
}
