package transfer_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/inventory"
	"github.com/ocibridge/ocibridge/internal/test/testkit/stored"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// listing writes the JSON output of ocibridge list for a registry to a file.
func listing(t *testing.T, r *stored.Registry) transfer.Location {
	t.Helper()
	found, err := (&inventory.Inventory[provider.Address]{Kind: inventory.Providers, Registry: inventory.Remote{Repositories: r}, Jobs: 1}).Find(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	report, err := found.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	return listingOf(t, string(data))
}

func listingOf(t *testing.T, text string) transfer.Location {
	t.Helper()
	name := filepath.Join(t.TempDir(), "list.json")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return transfer.Location{Kind: transfer.Listing, Name: name}
}

// contents reads and hashes all packages in a registry. It returns the digest of the index of each version.
func contents(t *testing.T, r *stored.Registry) map[string]string {
	t.Helper()
	found, err := (&inventory.Inventory[provider.Address]{Kind: inventory.Providers, Registry: inventory.Remote{Repositories: r}, Jobs: 1}).Find(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	report, err := found.Verify(t.Context(), inventory.Verifier{Policy: trust.Rules(nil).For, Packages: true})
	if err != nil || report.Failed() != nil {
		t.Fatalf("%v, %v", err, report.Failed())
	}
	out := map[string]string{}
	for _, p := range report.Stored {
		for _, v := range p.Versions {
			out[p.Address.Path()+"@"+v.Version.String()] = v.Digest
		}
	}
	return out
}

// bundleAt returns the location of a bundle that does not exist yet.
func bundleAt(t *testing.T, kind transfer.Kind) transfer.Location {
	return transfer.Location{Kind: kind, Name: filepath.Join(t.TempDir(), "bundle")}
}

// copySince copies everything, and returns the reported results.
func (c *copies) copySince(from, to, since transfer.Location, platforms ...provider.Platform) string {
	c.t.Helper()
	got, err := c.run(func(run *transfer.Copy) { run.From, run.To, run.Since, run.Platforms = from, to, since, platforms })
	if err != nil {
		c.t.Fatal(err)
	}
	return got
}

// wantOmitted checks how many packages a bundle omits.
func wantOmitted(t *testing.T, at transfer.Location, want int) {
	t.Helper()
	b, err := at.OpenBundle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if n, bytes := b.Omitted(); n != want || (bytes > 0) != (want > 0) {
		t.Errorf("%s omits %d packages, %d bytes, want %d packages", at.Name, n, bytes, want)
	}
}

var nothing transfer.Location

// TestCopySince shows that a bundle without the packages of an earlier bundle arrives exactly like a full bundle
// at a destination that has the earlier one, also in a version to which a platform was added.
func TestCopySince(t *testing.T) {
	for _, tc := range []struct {
		kind  transfer.Kind
		omits int
	}{
		{transfer.Folder, 3},
		{transfer.Archive, 3},
		{transfer.Listing, 2}, // the index of the version with one platform differs
	} {
		t.Run(string(tc.kind), func(t *testing.T) {
			c := newCopies(t)
			first, second := c.to, stored.For(t, "second/${namespace}/${type}")
			c.from.Store("acme/null", "1.0.0")
			since, part := bundleAt(t, tc.kind), bundleAt(t, transfer.Archive)
			if tc.kind == transfer.Listing {
				since.Kind = transfer.Folder
			}
			c.copySince(registryAt("from"), since, nothing)
			c.from.Store("acme/null", "1.1.0")
			c.copySince(registryAt("from"), part, since, provider.MustParsePlatform("linux_amd64"))
			wantOmitted(t, part, 1)
			for _, c.to = range []*stored.Registry{second, first} {
				c.copySince(since, registryAt("to"), nothing)
				c.copySince(part, registryAt("to"), nothing)
			}
			switch tc.kind {
			case transfer.Listing:
				since = listing(t, first)
			case transfer.Folder: // a bundle that omits packages is extended, and serves as the earlier bundle
				c.copySince(part, since, nothing)
			default:
				since = bundleAt(t, tc.kind)
				c.copySince(registryAt("to"), since, nothing)
			}
			c.from.Store("acme/widget", "2.0.0")
			full, update := bundleAt(t, transfer.Archive), bundleAt(t, transfer.Archive)
			c.copySince(registryAt("from"), full, nothing)
			c.copySince(registryAt("from"), update, since)
			wantOmitted(t, full, 0)
			wantOmitted(t, update, tc.omits)

			c.copySince(update, registryAt("to"), nothing)
			c.to = second
			c.copySince(full, registryAt("to"), nothing)
			if got, want := contents(t, first), contents(t, second); len(want) != 3 || !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}

// TestCopySinceHasOtherRepositories shows that a bundle contains the packages that the earlier bundle has only
// for another provider.
func TestCopySinceHasOtherRepositories(t *testing.T) {
	c := newCopies(t)
	c.from.Store("acme/null", "1.0.0")
	since, update := bundleAt(t, transfer.Archive), bundleAt(t, transfer.Archive)
	c.copySince(registryAt("from"), since, nothing)
	c.copySince(since, registryAt("to"), nothing)
	c.from.Store("other/null", "1.0.0")
	c.copySince(registryAt("from"), update, since)
	wantOmitted(t, update, 0)
	if got := c.copySince(update, registryAt("to"), nothing); got != "null 1.0.0 unchanged, null 1.0.0 pushed" {
		t.Error(got)
	}
}

// TestCopySinceMissing shows the error if a destination lacks packages that a bundle omits. No tag names such a
// version. If only the tag is missing, the version is stored again.
func TestCopySinceMissing(t *testing.T) {
	c := newCopies(t)
	a := c.from.Store("acme/null", "1.0.0")
	since, update := bundleAt(t, transfer.Folder), bundleAt(t, transfer.Archive)
	c.copySince(registryAt("from"), since, nothing)
	c.copySince(registryAt("from"), update, since)
	for _, to := range []transfer.Location{registryAt("to"), bundleAt(t, transfer.Folder), bundleAt(t, transfer.Archive), bundleAt(t, transfer.Mirror)} {
		got, err := c.run(func(run *transfer.Copy) { run.From, run.To = update, to })
		if got != "" || err == nil || errors.Is(err, errdef.ErrNotFound) || !strings.Contains(err.Error(), " of "+a.String()+" 1.0.0 is left out of the bundle, and ") ||
			!strings.HasSuffix(err.Error(), " lacks it") || !strings.Contains(hint.Of(err), "make a full bundle") {
			t.Errorf("to %s: %q, %v, hint %q", to.Kind, got, err, hint.Of(err))
		}
		if _, err := os.Stat(to.Name); to.Kind == transfer.Archive && err == nil {
			t.Error("the archive exists")
		}
	}
	_, repo, err := c.to.Repository(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := artifact.Resolve(t.Context(), repo, "1.0.0"); !errors.Is(err, errdef.ErrNotFound) {
		t.Errorf("a tag: %v", err)
	}

	c.copySince(since, registryAt("to"), nothing)
	want := contents(t, c.to)
	desc, err := artifact.Resolve(t.Context(), repo, "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Delete(t.Context(), desc); err != nil {
		t.Fatal(err)
	}
	if got := c.copySince(update, registryAt("to"), nothing); got != "null 1.0.0 pushed" || !maps.Equal(contents(t, c.to), want) {
		t.Errorf("%s: %v, want %v", got, contents(t, c.to), want)
	}
}

// TestCopySinceChecks shows that a package is not left out if the evidence contradicts the source's index.
func TestCopySinceChecks(t *testing.T) {
	c := newCopies(t)
	c.from.Reindex(c.from.Store("acme/null", "1.0.0"), "1.0.0", stored.Swap)
	since := listing(t, c.from)
	if got, err := c.run(func(run *transfer.Copy) { run.To, run.Since = bundleAt(t, transfer.Folder), since }); got != "" || !errors.Is(err, trust.ErrChecksum) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestBadListings shows that a file that is not a listing is refused before anything is written.
func TestBadListings(t *testing.T) {
	c := newCopies(t)
	c.from.Store("acme/null", "1.0.0")
	for text, want := range map[string]string{
		"":                       "unexpected end of JSON input",
		"VERSION  PLATFORMS":     "invalid character",
		`{"results":[]}`:         "it has no providers",
		`{"providers":[1]}`:      "cannot unmarshal",
		strings.Repeat("[", 100): "the document is too large",
		`{"providers":[` + strings.Repeat("{},", 100_000) + `{}]}`: "the document is too large",
	} {
		to := bundleAt(t, transfer.Folder)
		_, err := c.run(func(run *transfer.Copy) { run.To, run.Since = to, listingOf(t, text) })
		if err == nil || !strings.Contains(err.Error(), want) || hint.Of(err) == "" {
			t.Errorf("%.40q: %v", text, err)
		}
		if _, err := os.Stat(to.Name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%.40q: the bundle exists", text)
		}
	}
	// An empty registry is listed as well.
	c.copySince(registryAt("from"), bundleAt(t, transfer.Folder), listingOf(t, `{"providers":[]}`))
}
