package catalog_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

// FuzzRecords shows that, if records on disk have arbitrary content and the registry cannot be reached, the
// catalog either rejects the records or returns valid answers.
func FuzzRecords(f *testing.F) {
	const at = `"confirmed":"2999-01-01T00:00:00Z"`
	for _, s := range []string{
		`{"provider":"registry.acme.example/acme/widget",` + at + `,"versions":["1.0.0","1.1.0"],"etag":"x"}`,
		`{"provider":"registry.acme.example/acme/widget",` + at + `,"versions":["../1.0.0"]}`,
		`{"provider":"registry.acme.example/acme/widget","version":"1.0.0",` + at + `,"index":{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha256:00","size":5}}`,
		`{"provider":"registry.acme.example/acme/widget","version":"1.0.0",` + at + `,"index":{"digest":"sha256:../../x","size":-1}}`,
		`{"provider":"registry.acme.example/acme/gadget",` + at + `}`, `null`, `{}`, ``,
	} {
		f.Add([]byte(s), []byte(s))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, list, version []byte) {
		c, err := catalog.New(catalog.Options{Directory: dir, Repository: func(context.Context, subject.Address) (catalog.Store, error) {
			return nil, errors.New("there is no registry")
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for name, body := range map[string][]byte{"list": list, "1.0.0": version} {
			file := catalog.RecordFile(c, widget, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, append(fmt.Appendf(nil, "%x\n", sha256.Sum256(body)), body...), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if item, err := c.Union().Versions(t.Context(), widget); err == nil {
			for i, v := range item.Versions {
				if again, err := provider.ParseVersion(v.String()); err != nil || again != v {
					t.Errorf("version %q: %v", v, err)
				}
				if i > 0 && item.Versions[i-1].Compare(v) > 0 {
					t.Errorf("%s after %s", v, item.Versions[i-1])
				}
			}
		}
		if item, err := c.Union().Version(t.Context(), widget, v100); err == nil {
			t.Errorf("a version whose index is not on disk is served: %+v", item.Found)
		}
	})
}
