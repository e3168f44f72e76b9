package origin_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"

	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// dist is a release folder.
type dist struct {
	t       *testing.T
	dir     string
	signer  *pgp.Signer
	release *release.Release
	key     string
}

func newDist(t *testing.T) *dist {
	t.Helper()
	d := &dist{t: t, dir: t.TempDir(), signer: pgp.For(t, "Acme")}
	d.release, d.key = build(t, d.signer, "1.0.0"), d.signer.ArmoredPublicKey()
	if err := d.release.WriteDir(d.dir); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *dist) write(name, content string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, name), []byte(content), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dist) remove(names ...string) {
	d.t.Helper()
	for _, name := range names {
		if err := os.Remove(filepath.Join(d.dir, name)); err != nil {
			d.t.Fatal(err)
		}
	}
}

// resign replaces SHA256SUMS and signs it.
func (d *dist) resign(sums string) {
	d.t.Helper()
	sig, err := d.signer.Sign([]byte(sums))
	if err != nil {
		d.t.Fatal(err)
	}
	d.write(d.release.SHA256SUMSName(), sums)
	d.write(d.release.SignatureName(), string(sig))
}

// read reads the folder as widget 1.0.0. The folder stays open until the test ends.
func (d *dist) read(want ...string) (*origin.Release, error) {
	d.t.Helper()
	return d.readAs(widget, v1, want...)
}

func (d *dist) readAs(a provider.Address, v provider.Version, want ...string) (*origin.Release, error) {
	d.t.Helper()
	dir, err := origin.OpenReleaseDir(d.dir)
	if err != nil {
		return nil, err
	}
	d.t.Cleanup(func() { dir.Close() })
	return dir.Release(d.t.Context(), a, v, d.key, platforms(want...))
}

func (d *dist) mustRead(want ...string) *origin.Release {
	d.t.Helper()
	r, err := d.read(want...)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// check verifies every package of a release.
func (d *dist) check(r *origin.Release, policy trust.Policy) error {
	for _, p := range r.Packages {
		if err := verify(d.t, r, p, policy); err != nil {
			return err
		}
	}
	return nil
}

func TestReleaseDir(t *testing.T) {
	d := newDist(t)
	r := d.mustRead()
	if r.Provider() != widget || r.Version() != v1 || r.Origin != "release folder" || !r.Partial || names(r) != allPlatforms || !slices.Equal(r.Protocols, []string{"5.0", "6.0"}) {
		t.Errorf("release %+v", r)
	}
	if err := d.check(r, trust.Policy{}); err != nil {
		t.Error(err)
	}
	var keys struct {
		GPG []struct {
			KeyID      string `json:"key_id"`
			ASCIIArmor string `json:"ascii_armor"`
		} `json:"gpg_public_keys"`
	}
	if err := json.Unmarshal(r.Claims.SigningKeys, &keys); err != nil || len(keys.GPG) != 1 || keys.GPG[0].KeyID != d.signer.KeyID() || keys.GPG[0].ASCIIArmor != d.key {
		t.Errorf("signing keys %s, %v", r.Claims.SigningKeys, err)
	}
	if r := d.mustRead("linux_amd64", "linux_amd64"); names(r) != "linux_amd64" || !r.Partial {
		t.Errorf("one platform: %s, partial %v", names(r), r.Partial)
	}
}

// TestReleaseDirAccepted shows which folders are accepted, and the resulting release.
func TestReleaseDirAccepted(t *testing.T) {
	for name, tc := range map[string]struct {
		change    func(*dist)
		protocols string
		policy    trust.Policy
	}{
		"without manifest": {change: func(d *dist) { d.remove(d.release.ManifestName()) }},
		"manifest of the source tree": {change: func(d *dist) {
			if err := os.Rename(filepath.Join(d.dir, d.release.ManifestName()), filepath.Join(d.dir, "terraform-registry-manifest.json")); err != nil {
				d.t.Fatal(err)
			}
		}, protocols: "5.0 6.0"},
		"manifest that SHA256SUMS does not list": {change: func(d *dist) {
			d.resign(without(d.release.SHA256SUMS, "manifest"))
			d.write(d.release.ManifestName(), `{"version":1,"metadata":{"protocol_versions":["6.0"]}}`)
		}, protocols: "6.0"},
		"armoured signature": {change: func(d *dist) {
			d.remove(d.release.SignatureName())
			sig, err := d.signer.SignArmored(d.release.SHA256SUMS)
			if err != nil {
				d.t.Fatal(err)
			}
			d.write(d.release.SHA256SUMSName()+".asc", string(sig))
		}, protocols: "5.0 6.0"},
		"armoured signature named .sig": {change: func(d *dist) {
			sig, err := d.signer.SignArmored(d.release.SHA256SUMS)
			if err != nil {
				d.t.Fatal(err)
			}
			d.write(d.release.SignatureName(), string(sig))
		}, protocols: "5.0 6.0"},
		"CRLF": {change: func(d *dist) {
			d.resign(strings.ReplaceAll(string(d.release.SHA256SUMS), "\n", "\r\n"))
		}, protocols: "5.0 6.0"},
		"other releases beside it": {change: func(d *dist) {
			for _, other := range []*release.Release{build(d.t, nil, "1.0.0-rc1"), build(d.t, nil, "1.0.0+b"), build(d.t, nil, "11.0.0")} {
				if err := other.WriteDir(d.dir); err != nil {
					d.t.Fatal(err)
				}
			}
			d.write("terraform-provider-widget-extra_1.0.0_linux_arm64.zip", "")
			d.write("terraform-provider-widget_1.0.0_linux_arm64.zip.sbom.json", "")
			d.write("terraform-provider-widget_1x0.0_linux_arm64.zip", "")
		}, protocols: "5.0 6.0"},
		"another key first": {change: func(d *dist) { d.key = pgp.For(d.t, "Former").ArmoredPublicKey() + d.key }, protocols: "5.0 6.0"},
		"text around the key": {change: func(d *dist) {
			d.key = "pub ed25519 Acme\r\n\r\n" + strings.ReplaceAll(d.key, "\n", "\r\n") + "\r\nthat was it"
		}, protocols: "5.0 6.0"},
		"no key, unsigned allowed": {change: func(d *dist) { d.key = ""; d.remove(d.release.SignatureName()) }, policy: trust.Policy{AllowUnsigned: true}, protocols: "5.0 6.0"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDist(t)
			tc.change(d)
			r := d.mustRead()
			unknown := name == "without manifest" // SHA256SUMS lists the manifest
			if (len(r.Warnings) > 0) != unknown {
				t.Errorf("warnings %q", r.Warnings)
			}
			if names(r) != allPlatforms || strings.Join(r.Protocols, " ") != tc.protocols {
				t.Errorf("platforms %s, protocols %s", names(r), r.Protocols)
			}
			if err := d.check(r, tc.policy); err != nil {
				t.Error(err)
			}
		})
	}
}

// without returns a document without the lines that contain s.
func without(doc []byte, s string) string {
	return strings.Join(slices.DeleteFunc(strings.SplitAfter(string(doc), "\n"), func(line string) bool { return strings.Contains(line, s) }), "")
}

// privateKey returns a new private key in ASCII armour.
func privateKey(t *testing.T) string {
	t.Helper()
	e, err := openpgp.NewEntity("Acme", "", "acme@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w, err := armor.Encode(&buf, openpgp.PrivateKeyType, nil)
	if err == nil {
		err = e.SerializePrivate(w, nil)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// respell renames files of the folder so that their names spell the version otherwise, and signs the new
// SHA256SUMS.
func (d *dist) respell(version string, which func(name string) bool) {
	d.t.Helper()
	sums := string(d.release.SHA256SUMS)
	files, err := os.ReadDir(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, f := range files {
		name := strings.Replace(f.Name(), "_1.0.0_", "_"+version+"_", 1)
		if !which(f.Name()) {
			continue
		}
		sums = strings.ReplaceAll(sums, f.Name(), name)
		if err := os.Rename(filepath.Join(d.dir, f.Name()), filepath.Join(d.dir, name)); err != nil {
			d.t.Fatal(err)
		}
		if f.Name() == d.release.SHA256SUMSName() {
			defer func() {
				d.write(name, sums)
				sig, err := d.signer.Sign([]byte(sums))
				if err != nil {
					d.t.Fatal(err)
				}
				d.remove(d.release.SHA256SUMSName())
				os.Remove(filepath.Join(d.dir, d.release.SignatureName()))
				d.write(name+".sig", string(sig))
			}()
		}
	}
	d.resign(sums)
}

// TestReleaseDirSpelled shows that the files of a release may spell its version otherwise. Files that
// spell another version are another release's.
func TestReleaseDirSpelled(t *testing.T) {
	all := func(string) bool { return true }
	zips := func(name string) bool { return strings.HasSuffix(name, ".zip") }
	for name, tc := range map[string]struct {
		version string
		which   func(string) bool
		err     string
	}{
		"zips":           {version: "v1.0.0", which: zips},
		"every file":     {version: "v1.0.0", which: all},
		"V":              {version: "V1.0.0", which: all},
		"two numbers":    {version: "1.0", which: all},
		"one platform":   {version: "v1.0.0", which: func(name string) bool { return strings.Contains(name, "linux") }},
		"another's zips": {version: "v1.0.1", which: zips, err: "SHA256SUMS lists no terraform-provider-widget_1.0.0_OS_ARCH.zip"},
		"another's":      {version: "v1.0.1", which: all, err: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDist(t)
			d.respell(tc.version, tc.which)
			r, err := d.read()
			if tc.err != "" {
				checkError(t, err, tc.err, "")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if names(r) != allPlatforms || strings.Join(r.Protocols, " ") != "5.0 6.0" || len(r.Warnings) > 0 {
				t.Errorf("platforms %s, protocols %s, warnings %q", names(r), r.Protocols, r.Warnings)
			}
			if err := d.check(r, trust.Policy{}); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("two", func(t *testing.T) {
		d := newDist(t)
		d.respell("v1.0.0", all)
		d.write("terraform-provider-widget_V1.0.0_SHA256SUMS", "")
		_, err := d.read()
		checkError(t, err, "terraform-provider-widget_V1.0.0_SHA256SUMS and terraform-provider-widget_v1.0.0_SHA256SUMS", "remove")
	})
}

func TestReleaseDirRefused(t *testing.T) {
	const linux = "terraform-provider-widget_1.0.0_linux_amd64.zip"
	for name, tc := range map[string]struct {
		spoil      func(*dist)
		is         error
		says, hint string
	}{
		"not there":          {func(d *dist) { d.dir = filepath.Join(d.dir, "dist") }, nil, "no such file", "GoReleaser"},
		"a file":             {func(d *dist) { d.dir = filepath.Join(d.dir, linux) }, nil, "not a directory", "GoReleaser"},
		"empty":              {func(d *dist) { d.dir = d.t.TempDir() }, nil, "widget_1.0.0_SHA256SUMS: no such file", "GoReleaser"},
		"no checksums":       {func(d *dist) { d.remove(d.release.SHA256SUMSName()) }, nil, "SHA256SUMS: no such file", "GoReleaser"},
		"checksums too long": {func(d *dist) { d.resign(strings.Repeat("x", 1<<20+1)) }, nil, "more than 1048576 bytes", ""},
		"checksums lead out": {func(d *dist) {
			d.remove(d.release.SHA256SUMSName())
			if err := os.Symlink("/etc/hostname", filepath.Join(d.dir, d.release.SHA256SUMSName())); err != nil {
				d.t.Fatal(err)
			}
		}, nil, "escapes", ""},
		"no signature": {func(d *dist) { d.remove(d.release.SignatureName()) }, trust.ErrUnsigned, "there is no terraform-provider-widget_1.0.0_SHA256SUMS.sig", "gpg --detach-sign"},
		"signature by key ID": {func(d *dist) {
			name := d.release.SHA256SUMSName() + ".72D7468F.sig"
			if err := os.Rename(filepath.Join(d.dir, d.release.SignatureName()), filepath.Join(d.dir, name)); err != nil {
				d.t.Fatal(err)
			}
		}, trust.ErrUnsigned, "there is no terraform-provider-widget_1.0.0_SHA256SUMS.sig, but terraform-provider-widget_1.0.0_SHA256SUMS.72D7468F.sig",
			"copy the signature by the key in --public-key to terraform-provider-widget_1.0.0_SHA256SUMS.sig"},
		"armour of a key":           {func(d *dist) { d.write(d.release.SignatureName(), d.key) }, nil, "the signature is a PGP PUBLIC KEY BLOCK", "gpg --detach-sign"},
		"armour cut off":            {func(d *dist) { d.write(d.release.SignatureName(), "-----BEGIN PGP SIGNATURE-----\n") }, nil, "signature cannot be read", "gpg --detach-sign"},
		"package not there":         {func(d *dist) { d.remove(linux) }, nil, linux, "--platform"},
		"package without a program": {func(d *dist) { d.repack(linux, "README.md") }, provider.ErrNoProgram, linux + ": no client can run it: its zip has no program", "into the root of the zip"},
		"program in a folder":       {func(d *dist) { d.repack(linux, "dist/terraform-provider-widget_v1.0.0") }, provider.ErrNoProgram, "is in a folder", "into the root of the zip"},
		"program not executable":    {func(d *dist) { d.repack(linux, "terraform-provider-widget_v1.0.0") }, provider.ErrNoProgram, "is not executable", "chmod 755"},
		"package a folder":          {func(d *dist) { d.remove(linux); os.Mkdir(filepath.Join(d.dir, linux), 0o755) }, nil, linux + " is no regular file", "--platform"},
		"no package listed":         {func(d *dist) { d.resign(release.Sum(nil) + "  x.zip\n"); d.remove(zips(d)...) }, nil, "lists no terraform-provider-widget_1.0.0_OS_ARCH.zip", "GoReleaser"},
		"manifest not JSON":         {func(d *dist) { d.write(d.release.ManifestName(), "6.0") }, nil, "manifest.json: json: cannot unmarshal", "protocol_versions"},
		"manifest too long":         {func(d *dist) { d.write(d.release.ManifestName(), strings.Repeat(" ", 1<<20+1)) }, nil, "more than 1048576 bytes", ""},
		"key of no armour":          {func(d *dist) { d.key = "mDMEZ" }, nil, "key cannot be read", "gpg --armor --export"},
		"key cut off":               {func(d *dist) { d.key = d.key[:200] }, nil, "key cannot be read", "gpg --armor --export"},
		"key a signature":           {func(d *dist) { d.key = strings.ReplaceAll(d.key, "PUBLIC KEY BLOCK", "SIGNATURE") }, nil, "key cannot be read", "gpg --armor --export"},
		"key with blanks":           {func(d *dist) { d.key = strings.ReplaceAll(d.key, "\n", " \n") }, trust.ErrArmour, "begins or ends with a blank", "gpg --armor --export"},
		"key private":               {func(d *dist) { d.key = privateKey(d.t) }, nil, "it is a private key", "for everybody to read"},
		"second key private":        {func(d *dist) { d.key += privateKey(d.t) }, nil, "it is a private key", "for everybody to read"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDist(t)
			tc.spoil(d)
			_, err := d.read()
			checkError(t, err, tc.says, tc.hint)
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("error %v is not %v", err, tc.is)
			}
			if !strings.HasPrefix(err.Error(), "release folder") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// repack replaces a package by a zip with one file, which is not executable.
func (d *dist) repack(name, file string) {
	d.t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	h := &zip.FileHeader{Name: file}
	h.SetMode(0o644)
	if _, err := z.CreateHeader(h); err != nil {
		d.t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		d.t.Fatal(err)
	}
	d.write(name, buf.String())
	d.resign(without(d.release.SHA256SUMS, name) + release.Sum(buf.Bytes()) + "  " + name + "\n")
}

// zips returns the names of a release's packages.
func zips(d *dist) (out []string) {
	for _, p := range d.release.Packages {
		out = append(out, p.Filename)
	}
	return out
}

// TestReleaseDirOfAnotherRelease shows that the hint for a wrong type or version lists the
// releases in the folder. A platform that the folder does not have leads to
// ErrPlatformNotFound.
func TestReleaseDirOfAnotherRelease(t *testing.T) {
	d := newDist(t)
	for name, as := range map[string]struct {
		address provider.Address
		version string
	}{
		"another type":    {provider.MustParseAddress(host + "/acme/gadget"), "1.0.0"},
		"another version": {widget, "1.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.readAs(as.address, provider.MustParseVersion(as.version))
			checkError(t, err, "no such file", "there is terraform-provider-widget_1.0.0_SHA256SUMS: correct the type or the version in --as")
		})
	}
	_, err := d.read("plan9_386")
	checkError(t, err, "1.0.0 for plan9_386: platform not found", "darwin_arm64, linux_amd64, windows_amd64")
	if !errors.Is(err, origin.ErrPlatformNotFound) {
		t.Errorf("error %v", err)
	}
}

// TestReleaseDirNotTrusted shows that package trust refuses spoiled releases, although their
// folders can be read.
func TestReleaseDirNotTrusted(t *testing.T) {
	const linux = "terraform-provider-widget_1.0.0_linux_amd64.zip"
	for name, tc := range map[string]struct {
		spoil func(*dist)
		is    error
	}{
		"package not listed":              {func(d *dist) { d.resign(without(d.release.SHA256SUMS, linux)) }, trust.ErrNotListed},
		"listed with the mark for binary": {func(d *dist) { d.resign(strings.ReplaceAll(string(d.release.SHA256SUMS), "  ", " *")) }, trust.ErrNotListed},
		"package changed":                 {func(d *dist) { d.write(linux, "damaged") }, trust.ErrChecksum},
		"manifest changed":                {func(d *dist) { d.write(d.release.ManifestName(), `{"metadata":{"protocol_versions":["9.0"]}}`) }, trust.ErrChecksum},
		"manifest of the source tree changed": {func(d *dist) {
			d.remove(d.release.ManifestName())
			d.write("terraform-registry-manifest.json", `{"metadata":{"protocol_versions":["9.0"]}}`)
		}, trust.ErrChecksum},
		"comment in the checksums":    {func(d *dist) { d.resign(string(d.release.SHA256SUMS) + "# made by Acme\n") }, trust.ErrMalformed},
		"short line in the checksums": {func(d *dist) { d.resign(string(d.release.SHA256SUMS) + "acme\n") }, trust.ErrMalformed},
		"checksums changed": {func(d *dist) {
			d.write(d.release.SHA256SUMSName(), string(d.release.SHA256SUMS)+release.Sum(nil)+"  x\n")
		}, trust.ErrSignature},
		"signed by another": {func(d *dist) { d.key = pgp.For(d.t, "Mallory").ArmoredPublicKey() }, trust.ErrSignature},
		"signature empty":   {func(d *dist) { d.write(d.release.SignatureName(), "") }, trust.ErrUnsigned},
		"signature noise":   {func(d *dist) { d.write(d.release.SignatureName(), "noise") }, trust.ErrSignature},
		"no key":            {func(d *dist) { d.key = "" }, trust.ErrUnsigned},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDist(t)
			tc.spoil(d)
			if err := d.check(d.mustRead(), trust.Policy{}); !errors.Is(err, tc.is) {
				t.Errorf("error %v, want %v", err, tc.is)
			}
		})
	}
}
