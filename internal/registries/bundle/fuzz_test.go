package bundle_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/bundle"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// checkOpened opens a file or folder as a bundle. It checks that Open returns one of the package's errors, or a
// bundle in which everything on the list can be read.
func checkOpened(t *testing.T, name string, archive bool) {
	b, err := bundle.Open(t.Context(), name, archive)
	if err != nil {
		if !errors.Is(err, bundle.ErrNotBundle) && !errors.Is(err, bundle.ErrIncomplete) {
			t.Errorf("%v", err)
		}
		return
	}
	defer b.Close()
	for _, a := range subject.Of[provider.Address](b.All(subject.Provider)) {
		versions, err := pusher.Stored{Subject: a, Store: b.Repository(a)}.Versions(t.Context())
		if err != nil {
			t.Errorf("%s: %v", a, err)
		}
		for _, v := range versions {
			found, err := artifact.Read(t.Context(), b.Repository(a), a, v)
			if err != nil {
				continue // a complete bundle can contain an index that is not a provider's version
			}
			for _, p := range found.Packages {
				if body, err := b.Fetch(t.Context(), p.Layer()); err == nil {
					io.Copy(io.Discard, body)
					body.Close()
				}
			}
		}
	}
}

// FuzzArchive shows that Open handles any file as an archive safely.
func FuzzArchive(f *testing.F) {
	good, err := os.ReadFile(create(f, true))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[:4096])
	f.Add(good)
	f.Add([]byte{})
	name := filepath.Join(f.TempDir(), "bundle.tar")
	f.Fuzz(func(t *testing.T, data []byte) {
		write(t, name, data)
		checkOpened(t, name, true)
	})
}

// FuzzIndex shows that Open handles a folder with a complete bundle and any index.json safely.
func FuzzIndex(f *testing.F) {
	dir := create(f, false)
	index, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(index)
	for _, s := range []string{`{}`, `null`, `{"manifests":[{"artifactType":"application/vnd.ocibridge.bundle.v1"}]}`, `{"manifests":[{"annotations":{"org.opencontainers.image.ref.name":"../../x/1.0.0"}}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		write(t, filepath.Join(dir, "index.json"), data)
		checkOpened(t, dir, false)
	})
}

// FuzzChecksum shows that Open accepts an archive only if its checksum file begins with the archive's SHA-256.
func FuzzChecksum(f *testing.F) {
	name := create(f, true)
	line, err := os.ReadFile(name + ".sha256")
	if err != nil {
		f.Fatal(err)
	}
	sum := string(line[:64])
	f.Add(line)
	f.Add([]byte(sum))
	f.Add([]byte(`\` + strings.ToUpper(sum) + ` *a\nb`))
	f.Add([]byte(sum + "\n" + sum))
	f.Fuzz(func(t *testing.T, data []byte) {
		write(t, name+".sha256", data)
		b, err := bundle.Open(t.Context(), name, true)
		if err == nil {
			b.Close()
		}
		text := strings.ToLower(strings.TrimPrefix(strings.TrimSpace(string(data)), `\`))
		if err == nil && text != sum && !strings.HasPrefix(text, sum+" ") {
			t.Errorf("%q is accepted", data)
		}
	})
}
