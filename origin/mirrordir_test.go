package origin_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// mirror is a mirror folder as written by the "providers mirror" command of clients.
type mirror struct {
	t   *testing.T
	dir string
}

func newMirror(t *testing.T) mirror {
	return mirror{t, t.TempDir()}
}

const widgetDir = host + "/acme/widget"

// The hashes that clients write into a mirror folder. Terraform writes only h1: hashes.
// OpenTofu writes h1: and zh: hashes.
var (
	h1Only = func(t *testing.T, p release.Package) []string { return []string{h1(t, p)} }
	h1AndZ = func(t *testing.T, p release.Package) []string { return []string{h1(t, p), "zh:" + p.SHA256} }
)

func h1(t *testing.T, p release.Package) string {
	t.Helper()
	h, err := provider.H1(t.Context(), bytes.NewReader(p.Data), p.Size)
	if err != nil {
		t.Fatal(err)
	}
	return h.String()
}

// add adds a release to the folder.
func (m mirror) add(dir string, r *release.Release, hashes func(*testing.T, release.Package) []string) {
	m.t.Helper()
	var archives []string
	for _, p := range r.Packages {
		m.write(dir+"/"+p.Filename, string(p.Data))
		var quoted []string
		for _, h := range hashes(m.t, p) {
			quoted = append(quoted, strconv.Quote(h))
		}
		archives = append(archives, fmt.Sprintf("    %q: {\n      \"hashes\": [%s],\n      \"url\": %q\n    }",
			p.OS+"_"+p.Arch, strings.Join(quoted, ", "), p.Filename))
	}
	m.write(dir+"/"+r.Version+".json", "{\n  \"archives\": {\n"+strings.Join(archives, ",\n")+"\n  }\n}")
	index, err := os.ReadFile(m.path(dir + "/index.json"))
	switch {
	case errors.Is(err, os.ErrNotExist):
		m.index(dir, r.Version)
	case err != nil:
		m.t.Fatal(err)
	default:
		m.write(dir+"/index.json", strings.Replace(string(index), "{}", fmt.Sprintf("{}, %q: {}", r.Version), 1))
	}
}

func (m mirror) index(dir string, versions ...string) {
	m.t.Helper()
	m.write(dir+"/index.json", `{ "versions": { "`+strings.Join(versions, `": {}, "`)+`": {} } }`)
}

func (m mirror) path(name string) string { return filepath.Join(m.dir, filepath.FromSlash(name)) }

func (m mirror) write(name, content string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.path(name)), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(m.path(name), []byte(content), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// releases reads the folder, which stays open until the test ends.
func (m mirror) releases(want ...string) ([]*origin.Release, error) {
	m.t.Helper()
	d, err := origin.OpenMirrorDir(m.dir)
	if err != nil {
		return nil, err
	}
	m.t.Cleanup(func() { d.Close() })
	return d.Releases(m.t.Context(), platforms(want...))
}

func (m mirror) mustReleases(want ...string) []*origin.Release {
	m.t.Helper()
	r, err := m.releases(want...)
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

// verify reads a package and verifies it as a push does.
func verify(t *testing.T, r *origin.Release, p origin.Package, policy trust.Policy) error {
	t.Helper()
	sums, err := policy.Accept(t.Context(), r.Claims)
	if err != nil {
		return err
	}
	v, err := sums.Verifier(p.Platform, p.Filename)
	if err != nil {
		return err
	}
	data, size := read(t, p)
	if int64(len(data)) != size {
		t.Errorf("%s: %d bytes, announced %d", p.Filename, len(data), size)
	}
	v.Write([]byte(data))
	_, err = v.Accept(t.Context(), strings.NewReader(data))
	return err
}

func TestMirrorDir(t *testing.T) {
	for name, hashes := range map[string]func(*testing.T, release.Package) []string{
		"h1 as Terraform writes it": h1Only,
		"both as OpenTofu does":     h1AndZ,
		"beside hashes to come": func(t *testing.T, p release.Package) []string {
			return []string{"h2:later", "sha512:" + strings.Repeat("0", 128), h1(t, p), "no scheme"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			r := build(t, nil, "1.0.0")
			m.add(widgetDir, r, hashes)
			all := m.mustReleases()
			if len(all) != 1 || all[0].Provider() != widget || all[0].Version() != v1 || names(all[0]) != allPlatforms || all[0].Origin != "mirror folder" || !all[0].Partial {
				t.Fatalf("releases %+v", all)
			}
			if _, err := (trust.Policy{}).Accept(t.Context(), all[0].Claims); !errors.Is(err, trust.ErrUnsigned) {
				t.Errorf("error %v", err)
			}
			for _, p := range all[0].Packages {
				if err := verify(t, all[0], p, trust.Policy{AllowUnsigned: true}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestMirrorDirOfManyProviders shows the order of providers and of versions. It also shows
// that the name of a host's folder may be in Unicode and contain a port, as clients write
// it.
func TestMirrorDirOfManyProviders(t *testing.T) {
	m := newMirror(t)
	m.add(widgetDir, build(t, nil, "1.10.0"), h1Only)
	m.add(widgetDir, build(t, nil, "1.2.0"), h1Only)
	m.add(widgetDir, build(t, nil, "1.2.0+b.1"), h1Only)
	m.add("bücher.example/acme/widget", build(t, nil, "1.0.0"), h1Only)
	m.add("localhost:8443/acme/widget", build(t, nil, "1.0.0"), h1Only)
	m.write(widgetDir+"/notes.txt", "not ours")
	m.write("README.md", "not ours")
	var got []string
	for _, r := range m.mustReleases("linux_amd64") {
		got = append(got, r.Provider().Path()+"@"+r.Version().String())
		if names(r) != "linux_amd64" {
			t.Errorf("%s: %s", r.Version(), names(r))
		}
	}
	if want := "xn--bcher-kva.example/acme/widget@1.0.0 localhost:8443/acme/widget@1.0.0 " +
		"registry.acme.example/acme/widget@1.2.0 registry.acme.example/acme/widget@1.2.0+b.1 registry.acme.example/acme/widget@1.10.0"; strings.Join(got, " ") != want {
		t.Errorf("releases %s", got)
	}
}

// TestMirrorDirMixedUp shows that a version with the hashes of another version is refused.
// The hint names the bug of OpenTofu that produces such folders.
func TestMirrorDirMixedUp(t *testing.T) {
	m := newMirror(t)
	old, current := build(t, nil, "1.0.0"), build(t, nil, "2.0.0")
	m.add(widgetDir, current, h1AndZ)
	m.add(widgetDir, old, func(t *testing.T, p release.Package) []string { return h1AndZ(t, *current.Package(p.OS, p.Arch)) })
	m.add(widgetDir, build(t, nil, "0.9.0"), h1AndZ)
	for _, r := range m.mustReleases("linux_amd64") {
		err := verify(t, r, r.Packages[0], trust.Policy{AllowUnsigned: true})
		if wrong := r.Version() == v1; errors.Is(err, trust.ErrChecksum) != wrong {
			t.Errorf("%s: error %v", r.Version(), err)
		}
		if help := r.Packages[0].MismatchHint; !strings.Contains(help, "mixed up the hashes of several versions") || !strings.Contains(help, "folder of its own") {
			t.Errorf("hint %q", help)
		}
	}
}

func TestMirrorDirDamaged(t *testing.T) {
	for name, hashes := range map[string]func(*testing.T, release.Package) []string{
		"by its h1": h1Only,
		"by its zh": func(_ *testing.T, p release.Package) []string { return []string{"zh:" + p.SHA256} },
		"by one of both, its h1": func(t *testing.T, p release.Package) []string {
			return []string{h1(t, p), "zh:" + release.Sum([]byte("damaged"))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			r := build(t, nil, "1.0.0")
			m.add(widgetDir, r, hashes)
			m.write(widgetDir+"/"+r.Package("linux", "amd64").Filename, "damaged")
			got := m.mustReleases("linux_amd64")[0]
			if err := verify(t, got, got.Packages[0], trust.Policy{AllowUnsigned: true}); !errors.Is(err, trust.ErrChecksum) {
				t.Errorf("error %v", err)
			}
			if got.Packages[0].MismatchHint == "" {
				t.Error("no hint for it")
			}
		})
	}
}

func TestMirrorDirRefused(t *testing.T) {
	// archive returns a VERSION.json with one package for linux_amd64.
	archive := func(url string, hashes ...string) string {
		return fmt.Sprintf(`{"archives":{"linux_amd64":{"url":%q,"hashes":["%s"]}}}`, url, strings.Join(hashes, `","`))
	}
	zh := "zh:" + strings.Repeat("0", 64)
	const file = "terraform-provider-widget_1.0.0_linux_amd64.zip"
	// version returns a function that replaces 1.0.0.json in the folder.
	version := func(content string) func(mirror) {
		return func(m mirror) { m.write(widgetDir+"/1.0.0.json", content) }
	}
	remove := func(name string) func(mirror) {
		return func(m mirror) {
			if err := os.RemoveAll(m.path(name)); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	link := func(to, name string) func(mirror) {
		return func(m mirror) {
			remove(name)(m)
			outside := filepath.Join(m.t.TempDir(), "outside")
			if err := os.WriteFile(outside, []byte(archive(file, zh)), 0o644); err != nil {
				m.t.Fatal(err)
			}
			if to == "" {
				to = outside
			}
			if err := os.Symlink(to, m.path(name)); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		spoil      func(mirror)
		says, hint string
	}{
		"empty": {remove(host), "holds no HOSTNAME/NAMESPACE/TYPE/index.json", "providers mirror"},
		"one level too low": {func(m mirror) {
			for _, err := range []error{os.Rename(m.path(widgetDir), m.path("widget")), os.RemoveAll(m.path(host))} {
				if err != nil {
					m.t.Fatal(err)
				}
			}
		}, "holds no HOSTNAME", "providers mirror"},
		"not there": {remove("."), "no such file", "providers mirror"},
		"unpacked layout": {func(m mirror) {
			remove(widgetDir)(m)
			m.write(widgetDir+"/1.0.0/linux_amd64/terraform-provider-widget", "x")
		}, "holds no HOSTNAME", "unpacked"},
		"folder of no address":        {func(m mirror) { m.write("a b/acme/widget/index.json", "{}") }, `invalid provider address "a b/acme/widget"`, ""},
		"built-in provider":           {func(m mirror) { m.write("terraform.io/builtin/terraform/index.json", "{}") }, "built into the clients", ""},
		"no versions":                 {func(m mirror) { m.write(widgetDir+"/index.json", `{"versions":{}}`) }, "lists no version", "run providers mirror again"},
		"no list of versions":         {func(m mirror) { m.write(widgetDir+"/index.json", `{}`) }, "index.json: the document has no list of versions", "run providers mirror again"},
		"null for an index":           {func(m mirror) { m.write(widgetDir+"/index.json", `null`) }, "index.json: the document has no list of versions", "run providers mirror again"},
		"index not JSON":              {func(m mirror) { m.write(widgetDir+"/index.json", `{"versions":`) }, "index.json: unexpected end", "run providers mirror again"},
		"index of other shape":        {func(m mirror) { m.write(widgetDir+"/index.json", `[]`) }, "index.json: json: cannot unmarshal", "run providers mirror again"},
		"index a folder":              {func(m mirror) { remove(widgetDir + "/index.json")(m); m.write(widgetDir+"/index.json/x", "") }, "no regular file", "run providers mirror again"},
		"index too large":             {func(m mirror) { m.write(widgetDir+"/index.json", strings.Repeat(" ", 8<<20+1)) }, "more than 8388608 bytes", ""},
		"index leads out":             {link("", widgetDir+"/index.json"), "escapes", "run providers mirror again"},
		"version not one":             {func(m mirror) { m.index(widgetDir, "v1.0.0") }, `invalid version "v1.0.0"`, "1.0.0"},
		"version a path":              {func(m mirror) { m.index(widgetDir, "../../../../etc/passwd") }, "invalid version", ""},
		"version without JSON":        {func(m mirror) { m.index(widgetDir, "1.0.0", "1.1.0") }, "1.1.0.json: no such file", "run providers mirror again"},
		"version not JSON":            {version(`<html>`), "1.0.0.json: invalid character", "run providers mirror again"},
		"version leads out":           {link("", widgetDir+"/1.0.0.json"), "escapes", "run providers mirror again"},
		"no packages":                 {version(`{"archives":{}}`), "lists no package", "run providers mirror again"},
		"nothing in it":               {version(`{}`), "lists no package", "run providers mirror again"},
		"platform not one":            {version(strings.Replace(archive(file, zh), "linux_amd64", "Linux", 1)), `invalid platform "Linux"`, ""},
		"package above":               {version(archive("../x.zip", zh)), `the package is at "../x.zip"`, "beside their JSON"},
		"package below":               {version(archive("linux/x.zip", zh)), "the package is at", "beside their JSON"},
		"package at a path":           {version(archive("/etc/passwd", zh)), "the package is at", "beside their JSON"},
		"package on the web":          {version(archive("https://example.com/x.zip", zh)), `the package is at "https://example.com/x.zip"`, "beside their JSON"},
		"package with a query":        {version(archive(file+"?x=1", zh)), "the package is at", "beside their JSON"},
		"package escaped":             {version(archive("%2e%2e", zh)), "the package is at", "beside their JSON"},
		"package of another version":  {version(archive("terraform-provider-widget_1.0.1_linux_amd64.zip", zh)), "not at " + file, "beside their JSON"},
		"package of another platform": {version(archive("terraform-provider-widget_1.0.0_darwin_arm64.zip", zh)), "not at " + file, "beside their JSON"},
		"package nowhere":             {version(archive("", zh)), `the package is at ""`, "beside their JSON"},
		"package not there":           {remove(widgetDir + "/" + file), "linux_amd64: ", "run providers mirror again"},
		"package a folder":            {func(m mirror) { remove(widgetDir + "/" + file)(m); m.write(widgetDir+"/"+file+"/x", "") }, "no regular file", "run providers mirror again"},
		"package leads out":           {link("", widgetDir+"/"+file), "escapes", "run providers mirror again"},
		"provider leads out": {func(m mirror) {
			outside := filepath.Join(m.t.TempDir(), "widget")
			if err := os.Rename(m.path(widgetDir), outside); err != nil {
				m.t.Fatal(err)
			}
			if err := os.Symlink(outside, m.path(widgetDir)); err != nil {
				m.t.Fatal(err)
			}
		}, "no HOSTNAME/NAMESPACE/TYPE/index.json", "providers mirror"},
		"package leads up":     {link("../../../../../../../../../../etc/passwd", widgetDir+"/"+file), "escapes", "run providers mirror again"},
		"no known hash":        {version(archive(file, "h2:x", "md5:"+strings.Repeat("0", 32))), "no hash to check", "current client"},
		"zh not one":           {version(archive(file, "zh:0000")), `invalid package hash "zh:0000"`, "run providers mirror again"},
		"h1 not one":           {version(archive(file, zh, "h1:0000")), `invalid package hash "h1:0000"`, "run providers mirror again"},
		"hashes of other type": {version(`{"archives":{"linux_amd64":{"url":"x","hashes":"zh:"}}}`), "cannot unmarshal", "run providers mirror again"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			m.add(widgetDir, build(t, nil, "1.0.0"), h1AndZ)
			tc.spoil(m)
			_, err := m.releases()
			checkError(t, err, tc.says, tc.hint)
			if !strings.HasPrefix(err.Error(), "mirror folder") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestMirrorDirLinks shows that links within the folder are followed.
func TestMirrorDirLinks(t *testing.T) {
	m := newMirror(t)
	r := build(t, nil, "1.0.0")
	m.add(widgetDir, r, h1AndZ)
	file := r.Package("linux", "amd64").Filename
	if err := os.Rename(m.path(widgetDir+"/"+file), m.path("stored.zip")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../../stored.zip", m.path(widgetDir+"/"+file)); err != nil {
		t.Fatal(err)
	}
	got := m.mustReleases("linux_amd64")[0]
	if err := verify(t, got, got.Packages[0], trust.Policy{AllowUnsigned: true}); err != nil {
		t.Error(err)
	}
}

func TestMirrorDirPlatforms(t *testing.T) {
	m := newMirror(t)
	m.add(widgetDir, build(t, nil, "1.0.0"), h1Only)
	if got := m.mustReleases("windows_amd64", "linux_amd64", "linux_amd64")[0]; names(got) != "linux_amd64 windows_amd64" || len(got.Claims.Hashes) != 2 {
		t.Errorf("platforms %s", names(got))
	}
	// Platforms that are not requested are not checked.
	if err := os.Remove(m.path(widgetDir + "/terraform-provider-widget_1.0.0_windows_amd64.zip")); err != nil {
		t.Fatal(err)
	}
	m.mustReleases("linux_amd64")
	_, err := m.releases("linux_amd64", "plan9_386")
	checkError(t, err, "1.0.0 for plan9_386: platform not found", "darwin_arm64, linux_amd64, windows_amd64")
	if !errors.Is(err, origin.ErrPlatformNotFound) {
		t.Errorf("error %v", err)
	}
}

// TestMirrorDirChangedLater shows that Open fails if a link out of the folder has replaced
// the package since the release was read.
func TestMirrorDirChangedLater(t *testing.T) {
	m := newMirror(t)
	r := build(t, nil, "1.0.0")
	m.add(widgetDir, r, h1Only)
	p := m.mustReleases("linux_amd64")[0].Packages[0]
	name := m.path(widgetDir + "/" + p.Filename)
	outside := filepath.Join(t.TempDir(), "secret")
	for _, err := range []error{os.WriteFile(outside, []byte("secret"), 0o600), os.Remove(name), os.Symlink(outside, name)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := p.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("error %v", err)
	}
}
