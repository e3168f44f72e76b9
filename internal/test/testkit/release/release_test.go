package release_test

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"

	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
)

func widget(signer *pgp.Signer) release.Spec {
	return release.Spec{
		Host: "registry.example.com", Namespace: "acme", Type: "widget", Version: "1.2.3",
		Contents: []release.Content{
			{OS: "linux", Arch: "amd64", Files: map[string][]byte{
				"terraform-provider-widget_v1.2.3": []byte("a program"),
				"LICENSE":                          []byte("a licence"),
			}},
			{OS: "darwin", Arch: "arm64", Files: map[string][]byte{
				"terraform-provider-widget_v1.2.3": []byte("another program"),
			}},
		},
		Signer: signer,
	}
}

func TestBuildIsDeterministic(t *testing.T) {
	a, b := release.For(t, widget(nil)), release.For(t, widget(nil))
	for i, p := range a.Packages {
		if !bytes.Equal(p.Data, b.Packages[i].Data) {
			t.Errorf("%s differs from one build to the next", p.Filename)
		}
	}
	if !bytes.Equal(a.SHA256SUMS, b.SHA256SUMS) {
		t.Error("SHA256SUMS differs from one build to the next")
	}
}

func TestChecksumDocument(t *testing.T) {
	r := release.For(t, widget(nil))
	want := r.Package("darwin", "arm64").SHA256 + "  terraform-provider-widget_1.2.3_darwin_arm64.zip\n" +
		r.Package("linux", "amd64").SHA256 + "  terraform-provider-widget_1.2.3_linux_amd64.zip\n" +
		release.Sum(r.Manifest) + "  terraform-provider-widget_1.2.3_manifest.json\n"
	if got := string(r.SHA256SUMS); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	if got, want := string(r.Manifest), `{"version":1,"metadata":{"protocol_versions":["5.0"]}}`+"\n"; got != want {
		t.Errorf("manifest %q, want %q", got, want)
	}
	if r.Signature != nil || r.Keys != nil {
		t.Error("a release without a signer has a signature or keys")
	}
}

func TestZipContents(t *testing.T) {
	p := release.For(t, widget(nil)).Package("linux", "amd64")
	z, err := zip.NewReader(bytes.NewReader(p.Data), p.Size)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range z.File {
		got = append(got, f.Name+" "+f.Mode().String())
	}
	want := []string{"LICENSE -rw-r--r--", "terraform-provider-widget_v1.2.3 -rwxr-xr-x"}
	if !slices.Equal(got, want) {
		t.Errorf("entries %q, want %q", got, want)
	}
}

func TestAsZip(t *testing.T) {
	data := release.AsZip([]byte("anything"))
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil || len(z.File) != 0 || !bytes.HasPrefix(data, []byte("anything")) || len(data) != len("anything")+release.ZipEndSize {
		t.Errorf("%q is %+v, %v", data, z, err)
	}
}

func TestSignatureVerifies(t *testing.T) {
	r := release.For(t, widget(pgp.For(t, "Acme")))
	ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(r.Keys[0].ASCIIArmor))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openpgp.CheckDetachedSignature(ring, bytes.NewReader(r.SHA256SUMS), bytes.NewReader(r.Signature), nil); err != nil {
		t.Fatal(err)
	}
}

func TestBinaryIsPackedUnderTheClientsName(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "built")
	if err := os.WriteFile(binary, []byte("MZ"), 0o755); err != nil {
		t.Fatal(err)
	}
	spec := widget(nil)
	spec.Contents = []release.Content{{OS: "windows", Arch: "amd64", Binary: binary}}
	p := release.For(t, spec).Packages[0]
	z, err := zip.NewReader(bytes.NewReader(p.Data), p.Size)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := z.File[0].Name, "terraform-provider-widget_v1.2.3.exe"; got != want {
		t.Errorf("binary is named %q, want %q", got, want)
	}
}

func TestWriteDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dist")
	r := release.For(t, widget(pgp.For(t, "Acme")))
	if err := r.WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	want := []string{
		"terraform-provider-widget_1.2.3_SHA256SUMS",
		"terraform-provider-widget_1.2.3_SHA256SUMS.sig",
		"terraform-provider-widget_1.2.3_darwin_arm64.zip",
		"terraform-provider-widget_1.2.3_linux_amd64.zip",
		"terraform-provider-widget_1.2.3_manifest.json",
	}
	if !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	data, err := os.ReadFile(filepath.Join(dir, want[3]))
	if err != nil {
		t.Fatal(err)
	}
	if release.Sum(data) != r.Package("linux", "amd64").SHA256 {
		t.Error("the zip on disk is not the one in SHA256SUMS")
	}
}

func TestBigZip(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "big.zip")
	sum, err := release.WriteBigZip(path, "terraform-provider-widget_v1.2.3", 3, 7)
	if err != nil {
		t.Fatal(err)
	}
	again, err := release.WriteBigZip(filepath.Join(dir, "again.zip"), "terraform-provider-widget_v1.2.3", 3, 7)
	if err != nil {
		t.Fatal(err)
	}
	if sum != again {
		t.Error("the same seed gives a different zip")
	}
	spec := widget(nil)
	spec.Contents = []release.Content{{OS: "linux", Arch: "amd64", Zip: path}}
	p := release.For(t, spec).Packages[0]
	if p.SHA256 != sum || p.Size < 3<<20 || p.Data != nil {
		t.Errorf("package of %d bytes with sum %s, want %s", p.Size, p.SHA256, sum)
	}
	f, err := p.Content()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := io.Copy(io.Discard, f); n != p.Size || err != nil {
		t.Errorf("read %d bytes, %v; want %d", n, err, p.Size)
	}
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if got := z.File[0].UncompressedSize64; got != 3<<20 {
		t.Errorf("the file in the zip has %d bytes, want 3 MiB", got)
	}
}
