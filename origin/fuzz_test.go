package origin

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"unicode"

	"github.com/ocibridge/ocibridge/provider"
)

// seed adds the same texts to every fuzz test, because a valid text of one format is often
// an invalid text of another.
func seed(f *testing.F) {
	for _, s := range []string{
		"", "null", "[]", "{}", `{"versions":null}`,
		`{"versions":[{"version":"1.0.0","protocols":["5.0"],"platforms":[{"os":"linux","arch":"amd64"}]},{"version":"v1"}],"warnings":["moved\n"]}`,
		`{"versions":[{"version":"1.0.0","platforms":[{"os":"linux_amd64"}]},{"version":"1.0.0","platforms":[{"os":"linux","arch":"amd64"},{"os":"linux","arch":"amd64"}]}]}`,
		`{"protocols":["5.0"],"os":"linux","arch":"amd64","filename":"x.zip","download_url":"x.zip","shasums_url":"/SUMS","shasums_signature_url":"//h/SUMS.sig",` +
			`"shasum":"0000000000000000000000000000000000000000000000000000000000000000","signing_keys":{"gpg_public_keys":[{"ascii_armor":"x"}]}}`,
		`{"os":"linux","arch":"amd64","filename":"../x.zip","download_url":"file:///x","shasums_url":"https:x","shasum":"00"}`,
		`{"archives":{"linux_amd64":{"url":"x.zip","hashes":["h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","h2:x"]}}}`,
		`{"archives":{"linux_amd64":{"url":"terraform-provider-widget_1.0.0_linux_amd64.zip","hashes":["h2:x"]}}}`,
		`{"archives":{"linux_amd64":{"url":"../x.zip","hashes":["zh:0000000000000000000000000000000000000000000000000000000000000000"]},"darwin":{}}}`,
	} {
		f.Add([]byte(s))
	}
}

// FuzzVersions checks that a list of versions has the properties that the rest of the
// program relies on.
func FuzzVersions(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var body versionsJSON
		if json.Unmarshal(data, &body) != nil {
			return
		}
		l, err := body.listing("registry.example.com")
		if err != nil {
			return
		}
		if len(l.Versions) != len(l.Platforms) {
			t.Errorf("%d versions, platforms of %d", len(l.Versions), len(l.Platforms))
		}
		for i, v := range l.Versions {
			if again, err := provider.ParseVersion(v.String()); err != nil || again != v {
				t.Errorf("version %q: %v", v, err)
			}
			if i > 0 && l.Versions[i-1].Compare(v) >= 0 {
				t.Errorf("%s after %s", v, l.Versions[i-1])
			}
			seen := map[provider.Platform]bool{}
			for _, p := range l.Platforms[v] {
				if again, err := provider.ParsePlatform(p.String()); err != nil || again != p || seen[p] {
					t.Errorf("platform %q: %v", p, err)
				}
				seen[p] = true
			}
		}
		for _, w := range l.Warnings {
			for _, r := range w {
				if !unicode.IsPrint(r) {
					t.Errorf("warning %q", w)
				}
			}
		}
	})
}

// FuzzPackageAnswer shows that an accepted document about a package is safe to use. Its
// file name becomes a name in a registry, and its URLs are requested.
func FuzzPackageAnswer(f *testing.F) {
	seed(f)
	at, err := url.Parse("https://registry.example.com/v1/providers/acme/widget/1.0.0/download/linux/amd64")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m packageMeta
		if json.Unmarshal(data, &m) != nil {
			return
		}
		p := provider.Platform{OS: m.OS, Arch: m.Arch}
		if m.check(p, at) != nil {
			return
		}
		if !provider.ValidFilename(m.Filename) {
			t.Errorf("file name %q", m.Filename)
		}
		for _, u := range []*url.URL{m.download, m.shasums, m.signature} {
			if u == nil && u != m.signature {
				t.Error("a URL is missing")
			}
			if u != nil && (u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
				t.Errorf("URL %q", u)
			}
		}
		if m.check(provider.Platform{OS: m.OS + "x", Arch: m.Arch}, at) == nil {
			t.Error("it is also accepted for another platform")
		}
	})
}

// FuzzMirrorVersion shows that an accepted VERSION.json in a folder is safe to use. Its
// URLs become names of files in the folder.
func FuzzMirrorVersion(f *testing.F) {
	seed(f)
	dir := f.TempDir()
	const file = "terraform-provider-widget_1.0.0_linux_amd64.zip"
	for _, err := range []error{os.MkdirAll(filepath.Join(dir, "registry.example.com/acme/widget"), 0o700), os.WriteFile(filepath.Join(dir, "registry.example.com/acme/widget", file), nil, 0o600)} {
		if err != nil {
			f.Fatal(err)
		}
	}
	m, err := OpenMirrorDir(dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { m.Close() })
	a, version := provider.MustParseAddress("registry.example.com/acme/widget"), provider.MustParseVersion("1.0.0")
	f.Fuzz(func(t *testing.T, data []byte) {
		var v mirrorVersion
		if json.Unmarshal(data, &v) != nil {
			return
		}
		for _, entry := range v.Archives {
			if pkg, err := m.locate(mirrorDocument{}, a, version, provider.MustParsePlatform("linux_amd64"), entry); err == nil && (entry.URL != file || pkg.Filename != file) {
				t.Errorf("URL %q, file %q", entry.URL, pkg.Filename)
			}
			hashes, err := entry.knownHashes()
			if err == nil && len(hashes) == 0 && len(entry.Hashes) > 0 {
				t.Errorf("%q: no hashes", entry.Hashes)
			}
			for _, h := range hashes {
				if again, err := provider.ParseHash(h.String()); err != nil || again != h {
					t.Errorf("hash %q: %v", h, err)
				}
			}
		}
	})
}
