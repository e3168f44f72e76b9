package lock_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/clients/lock"
	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/internal/test/testkit/leaks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/stored"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// write creates a folder with a lock file that locks the given version of acme/null.
func write(t *testing.T, version string, hashes ...string) (dir string) {
	t.Helper()
	list := ""
	slices.Sort(hashes)
	for _, h := range hashes {
		list += fmt.Sprintf("    %q,\n", h)
	}
	if list != "" {
		list = "  hashes = [\n" + list + "  ]\n"
	}
	dir = t.TempDir()
	text := fmt.Sprintf("provider \"%s/acme/null\" {\n  version = %q\n%s}\n", stored.Host, version, list)
	if err := os.WriteFile(filepath.Join(dir, lockfile.Name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t *testing.T, dirs ...string) []*lockfile.File {
	t.Helper()
	files, err := lock.Read(dirs)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// added returns the schemes of the hashes that a change adds.
func added(c *lock.Change) string {
	var out []string
	for _, e := range c.Entries {
		for _, h := range e.Added {
			scheme, _, _ := strings.Cut(h, ":")
			out = append(out, scheme)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestHintForMissing shows that the hint names --skip-missing and --platform only where
// they help.
func TestHintForMissing(t *testing.T) {
	r := stored.For(t, "${namespace}/${type}")
	r.Store("acme/null", "1.0.0")
	for _, tc := range []struct {
		versions      string
		skip, exclude bool
	}{
		{versions: "1.0.0", exclude: true},
		{versions: "2.0.0", skip: true},
		{versions: "1.0.0 2.0.0", skip: true, exclude: true},
	} {
		var dirs []string
		for _, v := range strings.Fields(tc.versions) {
			dirs = append(dirs, write(t, v))
		}
		_, _, err := lock.Plan(t.Context(), lock.Options{
			Registry: r, Jobs: 1, H1: lock.None, Platforms: []provider.Platform{provider.MustParsePlatform("plan9_arm")},
			Policy: func(provider.Address) trust.Policy { return trust.Policy{} },
		}, read(t, dirs...))
		if help := hint.Of(err); strings.Contains(help, "--skip-missing") != tc.skip || strings.Contains(help, "--platform") != tc.exclude {
			t.Errorf("%s: %v: %s", tc.versions, err, help)
		}
	}
}

// withFolders replaces the package for linux by a zip with an entry for a folder, and returns the package's h1: hashes:
// that of the unpacked folder, and that of the zip.
func withFolders(t *testing.T, rel *release.Release, signer *pgp.Signer) (h1s []string) {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for _, name := range []string{"docs/", "docs/index.md", "terraform-provider-null_v1.0.0"} {
		if _, err := z.Create(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := rel.Repack("linux", "amd64", buf.Bytes(), signer); err != nil {
		t.Fatal(err)
	}
	hashes, err := provider.HashContent(t.Context(), bytes.NewReader(buf.Bytes()), int64(buf.Len()))
	if err != nil || len(hashes.All()) != 2 {
		t.Fatalf("%v, %v", hashes, err)
	}
	for _, h := range hashes.All() {
		h1s = append(h1s, h.String())
	}
	return h1s
}

// TestUnknownIsNotWrong shows that an entry with only the h1: hash of a package does not contradict the registry,
// although the registry has no such hash: because its zip has two right ones, or because the package is signed under
// another name. A strange hash still does.
func TestUnknownIsNotWrong(t *testing.T) {
	r := stored.For(t, "${namespace}/${type}")
	folders := r.Build("acme/null", "1.0.0")
	h1s := withFolders(t, folders, r.Signer)
	r.Push(folders)
	other := r.Build("acme/null", "2.0.0")
	for i := range other.Packages {
		other.Packages[i].Filename = "null_" + other.Packages[i].OS + ".zip"
	}
	if err := other.Seal(r.Signer); err != nil {
		t.Fatal(err)
	}
	a := r.Push(other)
	_, repo, err := r.Repository(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	found, err := artifact.Read(t.Context(), repo, a, provider.MustParseVersion("2.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	foreign := found.Packages[0].H1.String()
	pinned := trust.Policy{Keys: []string{r.Signer.Fingerprint()}}
	for name, tc := range map[string]struct {
		version, hash string
		policy        trust.Policy
		added         string // the schemes of the added hashes
		verdict       trust.Verdict
		status        lock.Status
		err           string
	}{
		"the unpacked folder's":     {version: "1.0.0", hash: h1s[0], added: "h1 zh zh", verdict: trust.Signed, status: lock.Incomplete},
		"the zip's":                 {version: "1.0.0", hash: h1s[1], added: "h1 zh zh", verdict: trust.Signed, status: lock.Incomplete},
		"a strange one":             {version: "1.0.0", hash: foreign, err: "contradicts"},
		"another name":              {version: "2.0.0", hash: foreign, added: "h1 zh zh", verdict: artifact.SignedOtherName, status: lock.Incomplete},
		"another name, none locked": {version: "2.0.0", added: "h1 h1 zh zh", verdict: artifact.SignedOtherName, status: lock.Incomplete},
		"another name, strange":     {version: "2.0.0", hash: h1s[0], err: "contradicts"},
		"another name, keys pinned": {version: "2.0.0", hash: foreign, policy: pinned, verdict: artifact.SignedOtherName, status: lock.Incomplete},
		"strange, keys pinned":      {version: "2.0.0", hash: h1s[0], policy: pinned, err: "contradicts"},
	} {
		t.Run(name, func(t *testing.T) {
			var hashes []string
			if tc.hash != "" {
				hashes = append(hashes, tc.hash)
			}
			o := lock.Options{Registry: r, Jobs: 1, H1: lock.Auto, Policy: func(provider.Address) trust.Policy { return tc.policy }}
			changes, warnings, err := lock.Plan(t.Context(), o, read(t, write(t, tc.version, hashes...)))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || hint.Of(err) == "" {
					t.Errorf("%v, want %q and a hint", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			entry := changes[0].Entries[0]
			if added(changes[0]) != tc.added || entry.Verdict != tc.verdict || changes[0].Status != tc.status {
				t.Errorf("added %q, %+v, %s", added(changes[0]), entry, changes[0].Status)
			}
			if others := tc.version == "2.0.0"; others != strings.Contains(strings.Join(warnings, "\n"), "signed under another name") {
				t.Errorf("warnings %q", warnings)
			}
			done, err := lock.Write(changes)
			want := lock.Updated
			if tc.added == "" {
				want = lock.Incomplete
			}
			if err != nil || done[0].Status != want {
				t.Errorf("written: %s, %v", done[0].Status, err)
			}
		})
	}
}

// TestLeftOut shows that a plan names each platform that is wanted and left out because keys are pinned, and that the
// file stays incomplete, also if hashes of other platforms or other entries are added.
func TestLeftOut(t *testing.T) {
	r := stored.For(t, "${namespace}/${type}")
	rel := r.Build("acme/null", "1.0.0")
	for i := range rel.Packages {
		if rel.Packages[i].OS == "darwin" {
			rel.Packages[i].Filename = "null_mac.zip"
		}
	}
	if err := rel.Seal(r.Signer); err != nil {
		t.Fatal(err)
	}
	r.Push(rel)
	r.Store("acme/null", "2.0.0")
	pinned := trust.Policy{Keys: []string{r.Signer.Fingerprint()}}
	for name, tc := range map[string]struct {
		version   string
		policy    trust.Policy
		platforms string
		added     string // the schemes of the added hashes
		leftOut   string
		written   lock.Status
	}{
		"keys pinned":                     {version: "1.0.0", policy: pinned, added: "zh", leftOut: "[darwin_arm64]", written: lock.Incomplete},
		"keys pinned, only that platform": {version: "1.0.0", policy: pinned, platforms: "darwin_arm64", leftOut: "[darwin_arm64]", written: lock.Incomplete},
		"keys pinned, another platform":   {version: "1.0.0", policy: pinned, platforms: "linux_amd64", added: "zh", leftOut: "[]", written: lock.Updated},
		"no keys pinned":                  {version: "1.0.0", added: "h1 h1 zh zh", leftOut: "[]", written: lock.Updated},
		"usual names":                     {version: "2.0.0", policy: pinned, added: "zh zh", leftOut: "[]", written: lock.Updated},
	} {
		t.Run(name, func(t *testing.T) {
			o := lock.Options{Registry: r, Jobs: 1, H1: lock.Auto, Policy: func(provider.Address) trust.Policy { return tc.policy }}
			if tc.platforms != "" {
				o.Platforms = append(o.Platforms, provider.MustParsePlatform(tc.platforms))
			}
			changes, warnings, err := lock.Plan(t.Context(), o, read(t, write(t, tc.version)))
			if err != nil {
				t.Fatal(err)
			}
			entry := changes[0].Entries[0]
			if added(changes[0]) != tc.added || fmt.Sprint(entry.LeftOut) != tc.leftOut || changes[0].Status != lock.Incomplete {
				t.Errorf("added %q, left out %v, %s, warnings %q", added(changes[0]), entry.LeftOut, changes[0].Status, warnings)
			}
			done, err := lock.Write(changes)
			if err != nil || done[0].Status != tc.written {
				t.Errorf("written: %s, %v", done[0].Status, err)
			}
			err = lock.LeftOut(done)
			if (err == nil) != (tc.leftOut == "[]") || err != nil && (!strings.Contains(err.Error(), "/acme/null 1.0.0 for darwin_arm64") || hint.Of(err) == "") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestPlan(t *testing.T) {
	unsigned := func(r *stored.Registry) {
		rel := r.Build("acme/null", "1.0.0")
		if err := rel.Seal(nil); err != nil {
			t.Fatal(err)
		}
		r.Push(rel)
	}
	reindexed := func(change func(*ocispec.Index)) func(*stored.Registry) {
		return func(r *stored.Registry) { r.Reindex(r.Store("acme/null", "1.0.0"), "1.0.0", change) }
	}
	wrongH1 := reindexed(func(i *ocispec.Index) {
		for _, m := range i.Manifests {
			if m.Platform != nil && m.Platform.OS == "darwin" {
				m.Annotations["io.github.ocibridge.h1"] = "h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
			}
		}
	})
	linux := []provider.Platform{provider.MustParsePlatform("linux_amd64")}
	other := "zh:" + strings.Repeat("a", 64)
	for name, tc := range map[string]struct {
		registry func(*stored.Registry) // prepares the registry; nil stores one signed version
		version  string                 // the locked version; "" for 1.0.0
		hashes   []string
		pins     bool
		options  lock.Options
		added    string // the schemes of the hashes that must be added
		warning  string
		err      string
	}{
		"annotated h1 hashes are added":            {added: "h1 h1 zh zh"},
		"one platform":                             {options: lock.Options{Platforms: linux}, added: "h1 zh"},
		"no h1":                                    {options: lock.Options{H1: lock.None}, added: "zh zh"},
		"pinned keys do not sign annotations":      {pins: true, added: "zh zh", warning: "no h1: hashes are added"},
		"annotations are wanted in spite of pins":  {pins: true, options: lock.Options{H1: lock.Annotated}, added: "h1 h1 zh zh"},
		"computed h1 under pins":                   {pins: true, options: lock.Options{H1: lock.Computed}, added: "h1 h1 zh zh"},
		"a wrong annotation is found by computing": {registry: wrongH1, options: lock.Options{H1: lock.Computed}, err: "but the computed hash is"},
		"other platforms are not computed":         {registry: wrongH1, options: lock.Options{H1: lock.Computed, Platforms: linux}, added: "h1 zh"},
		"an absent version":                        {version: "2.0.0", err: "not in the registry: " + stored.Host + "/acme/null 2.0.0"},
		"an absent version is skipped":             {version: "2.0.0", options: lock.Options{SkipMissing: true}},
		"an absent platform":                       {options: lock.Options{SkipMissing: true, Platforms: []provider.Platform{provider.MustParsePlatform("plan9_arm")}}, err: "1.0.0 for plan9_arm"},
		"a hash of no package":                     {hashes: []string{other}, err: "contradicts"},
		"swapped packages":                         {registry: reindexed(stored.Swap), err: "checksum"},
		"unsigned":                                 {registry: unsigned, err: "signature"},
		"no evidence":                              {registry: reindexed(stored.WithoutEvidence), err: "evidence"},
		"no evidence, keys pinned":                 {registry: reindexed(stored.WithoutEvidence), pins: true, err: "evidence"},
	} {
		t.Run(name, func(t *testing.T) {
			r := stored.For(t, "${namespace}/${type}")
			if tc.registry == nil {
				tc.registry = func(r *stored.Registry) { r.Store("acme/null", "1.0.0") }
			}
			tc.registry(r)
			if tc.version == "" {
				tc.version = "1.0.0"
			}
			o := tc.options
			o.Registry, o.Jobs = r, 2
			if o.H1 == "" {
				o.H1 = lock.Auto
			}
			o.Policy = func(provider.Address) trust.Policy {
				if tc.pins {
					// AllowUnsigned has no effect if keys are pinned.
					return trust.Policy{Keys: []string{r.Signer.Fingerprint()}, AllowUnsigned: true}
				}
				return trust.Policy{}
			}
			changes, warnings, err := lock.Plan(t.Context(), o, read(t, write(t, tc.version, tc.hashes...)))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || hint.Of(err) == "" {
					t.Errorf("%v, want %q and a hint", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := added(changes[0]); got != tc.added {
				t.Errorf("added %q, want %q", got, tc.added)
			}
			if entry := changes[0].Entries[0]; entry.Missing != (tc.added == "") || entry.Pinned != tc.pins {
				t.Errorf("%+v", entry)
			}
			if got := strings.Join(warnings, "\n"); (got == "") != (tc.warning == "") || !strings.Contains(got, tc.warning) {
				t.Errorf("warnings %q, want %q", got, tc.warning)
			}
		})
	}
}

// TestAllowUnsigned shows the verdict on an unsigned version that the policy allows.
func TestAllowUnsigned(t *testing.T) {
	r := stored.For(t, "${namespace}/${type}")
	r.Reindex(r.Store("acme/null", "1.0.0"), "1.0.0", stored.WithoutEvidence)
	o := lock.Options{Registry: r, Jobs: 1, H1: lock.Auto, Policy: func(provider.Address) trust.Policy { return trust.Policy{AllowUnsigned: true} }}
	changes, _, err := lock.Plan(t.Context(), o, read(t, write(t, "1.0.0")))
	if err != nil || changes[0].Entries[0].Verdict != trust.ChecksumOnly || added(changes[0]) != "h1 h1 zh zh" {
		t.Errorf("%+v, %v", changes, err)
	}
}

// TestUnsignedAsClients shows that a version without a key at registry.opentofu.org is locked as long as no signed
// version of the provider is stored.
func TestUnsignedAsClients(t *testing.T) {
	const host = "registry.opentofu.org"
	r := stored.ForHost(t, "${namespace}/${type}", host)
	keyless := r.Build("acme/null", "1.0.0")
	keyless.Keys = nil
	r.Push(keyless)
	plan := func(policy trust.Policy) error {
		t.Helper()
		dir := write(t, "1.0.0")
		path := filepath.Join(dir, lockfile.Name)
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, []byte(strings.Replace(string(text), stored.Host, host, 1)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		o := lock.Options{Registry: r, Jobs: 1, H1: lock.Auto, Policy: func(provider.Address) trust.Policy { return policy }}
		changes, _, err := lock.Plan(t.Context(), o, read(t, dir))
		if err == nil && (changes[0].Entries[0].Verdict != trust.ChecksumOnly || added(changes[0]) != "h1 h1 zh zh") {
			t.Errorf("%+v", changes)
		}
		return err
	}
	asClients := trust.Policy{UnsignedAsClients: true}
	if err := plan(asClients); err != nil {
		t.Errorf("no signed version is stored: %v", err)
	}
	r.Store("acme/null", "0.9.0")
	if err := plan(asClients); !errors.Is(err, trust.ErrUnsigned) || !strings.Contains(err.Error(), "the stored version 0.9.0 is signed") || hint.Of(err) == "" {
		t.Errorf("a signed version is stored: %v", err)
	}
	if err := plan(trust.Policy{AllowUnsigned: true}); err != nil {
		t.Errorf("a signed version is stored, and all unsigned versions are allowed: %v", err)
	}
}

// TestProviderWithoutRepository shows that a provider counts as missing if the templates
// exclude it.
func TestProviderWithoutRepository(t *testing.T) {
	r := stored.For(t, "${namespace}/${type}")
	dir := write(t, "1.0.0")
	path := filepath.Join(dir, lockfile.Name)
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Replace(string(text), stored.Host, "registry.other.example", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	o := lock.Options{Registry: r, Jobs: 1, H1: lock.Auto, Policy: func(provider.Address) trust.Policy { return trust.Policy{} }}
	if _, _, err := lock.Plan(t.Context(), o, read(t, dir)); err == nil || !strings.Contains(err.Error(), "not in the registry: registry.other.example/acme/null 1.0.0") {
		t.Errorf("%v", err)
	}
}

// TestRead shows that Read returns a lock file only once if two paths lead to it.
func TestRead(t *testing.T) {
	dir := write(t, "1.0.0")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if files := read(t, dir, filepath.Join(dir, lockfile.Name), link, dir+"/."); len(files) != 1 || files[0].Name != filepath.Join(dir, lockfile.Name) {
		t.Errorf("%d files, %s", len(files), files[0].Name)
	}
	if _, err := lock.Read([]string{t.TempDir()}); err == nil || hint.Of(err) == "" {
		t.Errorf("a folder without a lock file: %v", err)
	}
}

// plans plans changes for two files that lack hashes and for one complete file.
func plans(t *testing.T) (dirs []string, changes []*lock.Change) {
	t.Helper()
	r := stored.For(t, "${namespace}/${type}")
	a := r.Store("acme/null", "1.0.0")
	_, repo, err := r.Repository(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	v, err := artifact.Read(t.Context(), repo, a, provider.MustParseVersion("1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range v.Packages {
		all = append(all, p.ZipHash().String(), p.H1.String())
	}
	dirs = []string{write(t, "1.0.0"), write(t, "1.0.0", all...), write(t, "1.0.0")}
	o := lock.Options{Registry: r, Jobs: 1, H1: lock.Auto, Policy: func(provider.Address) trust.Policy { return trust.Policy{} }}
	if changes, _, err = lock.Plan(t.Context(), o, read(t, dirs...)); err != nil {
		t.Fatal(err)
	}
	return dirs, changes
}

func statuses(changes []*lock.Change) string {
	var out []string
	for _, c := range changes {
		out = append(out, string(c.Status))
	}
	return strings.Join(out, " ")
}

func TestWrite(t *testing.T) {
	dirs, changes := plans(t)
	if got := statuses(changes); got != "incomplete unchanged incomplete" {
		t.Errorf("planned: %s", got)
	}
	changes[0].Compare()
	if !strings.Contains(changes[0].Diff, "\n+    \"h1:") {
		t.Errorf("diff:\n%s", changes[0].Diff)
	}
	done, err := lock.Write(changes)
	if got := statuses(done); err != nil || got != "updated unchanged updated" {
		t.Errorf("written: %s, %v", got, err)
	}
	for _, f := range read(t, dirs...) {
		if len(f.Providers[0].Hashes) != 4 {
			t.Errorf("%s has %v", f.Name, f.Providers[0].Hashes)
		}
	}
}

// TestWriteFails shows that Write changes no file if it cannot write a new file, and never
// overwrites a file that has changed since Read.
func TestWriteFails(t *testing.T) {
	t.Run("gone", func(t *testing.T) {
		dirs, changes := plans(t)
		if err := os.RemoveAll(dirs[2]); err != nil {
			t.Fatal(err)
		}
		done, err := lock.Write(changes)
		if got := statuses(done); err == nil || got != "unchanged" {
			t.Errorf("%s, %v", got, err)
		}
		if got := statuses(changes); got != "incomplete unchanged incomplete" {
			t.Errorf("the caller's slice: %s", got)
		}
		if hashes := read(t, dirs[0])[0].Providers[0].Hashes; len(hashes) != 0 {
			t.Errorf("the first file has %v", hashes)
		}
		if left, err := filepath.Glob(filepath.Join(dirs[0], "*.tmp")); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
	t.Run("changed", func(t *testing.T) {
		dirs, changes := plans(t)
		if err := os.WriteFile(filepath.Join(dirs[2], lockfile.Name), []byte("# other\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		done, err := lock.Write(changes)
		if got := statuses(done); err == nil || got != "updated unchanged" {
			t.Errorf("%s, %v", got, err)
		}
	})
}
