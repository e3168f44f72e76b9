package origin_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
)

func widget(t *testing.T, version string, signer *pgp.Signer) *release.Release {
	t.Helper()
	return release.For(t, release.Spec{
		Host: "registry.example.com", Namespace: "acme", Type: "widget", Version: version,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{
			"terraform-provider-widget": []byte("a program"),
		}}},
		Signer: signer,
	})
}

func serve(t *testing.T, o *origin.Origin) *url.URL {
	t.Helper()
	srv := httptest.NewServer(o)
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// get fetches a URL that is relative to base. It returns the status and the body. headers contains pairs of
// names and values.
func get(t *testing.T, base *url.URL, ref string, headers ...string) (int, []byte) {
	t.Helper()
	u, err := base.Parse(ref)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for pair := range slices.Chunk(headers, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

func decode(t *testing.T, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
}

// TestFromDiscoveryToPackage shows that every request of an installation succeeds, from service discovery to the
// package. The version has build metadata, so the URLs contain a plus sign.
func TestFromDiscoveryToPackage(t *testing.T) {
	rel := widget(t, "1.2.3+b1", pgp.For(t, "Acme"))
	base := serve(t, origin.New(origin.Options{}, rel))

	var services map[string]string
	_, body := get(t, base, "/.well-known/terraform.json")
	decode(t, body, &services)
	service, err := base.Parse(services["providers.v1"])
	if err != nil {
		t.Fatal(err)
	}

	var versions struct {
		Versions []struct {
			Version   string
			Protocols []string
			Platforms []struct{ OS, Arch string }
		}
	}
	_, body = get(t, service, "acme/widget/versions")
	decode(t, body, &versions)
	v := versions.Versions[0]
	if v.Version != rel.Version || v.Protocols[0] != "5.0" || v.Platforms[0].Arch != "amd64" {
		t.Fatalf("versions: %s", body)
	}

	var meta struct {
		Filename, Shasum    string
		DownloadURL         string `json:"download_url"`
		SHASumsURL          string `json:"shasums_url"`
		SHASumsSignatureURL string `json:"shasums_signature_url"`
		SigningKeys         struct {
			Keys []struct {
				KeyID string `json:"key_id"`
			} `json:"gpg_public_keys"`
		} `json:"signing_keys"`
	}
	at, err := service.Parse("acme/widget/" + v.Version + "/download/linux/amd64")
	if err != nil {
		t.Fatal(err)
	}
	_, body = get(t, at, "")
	decode(t, body, &meta)
	p := rel.Packages[0]
	if meta.Filename != p.Filename || meta.Shasum != p.SHA256 || meta.SigningKeys.Keys[0].KeyID != rel.Keys[0].KeyID {
		t.Fatalf("download: %s", body)
	}
	for ref, want := range map[string][]byte{
		meta.DownloadURL:         p.Data,
		meta.SHASumsURL:          rel.SHA256SUMS,
		meta.SHASumsSignatureURL: rel.Signature,
	} {
		if status, got := get(t, at, ref); status != http.StatusOK || string(got) != string(want) {
			t.Errorf("%s: %d and %d bytes, want %d", ref, status, len(got), len(want))
		}
	}
	if status, got := get(t, at, meta.DownloadURL, "Range", "bytes=2-5"); status != http.StatusPartialContent || string(got) != string(p.Data[2:6]) {
		t.Errorf("range: %d %q", status, got)
	}
}

func TestNotFound(t *testing.T) {
	base := serve(t, origin.New(origin.Options{}, widget(t, "1.0.0", nil)))
	for _, path := range []string{
		"/v1/providers/acme/other/versions",
		"/v1/providers/acme/widget/2.0.0/download/linux/amd64",
		"/v1/providers/acme/widget/1.0.0/download/linux/arm64",
		"/files/acme/widget/1.0.0/other.zip",
		"/files/acme/widget/1.0.0/terraform-provider-widget_1.0.0_SHA256SUMS.sig", // unsigned
		"/elsewhere",
	} {
		if status, _ := get(t, base, path); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
}

func TestAddAndRemove(t *testing.T) {
	o := origin.New(origin.Options{})
	base := serve(t, o)
	const path = "/v1/providers/acme/widget/versions"
	o.Add(widget(t, "1.0.0", nil))
	if status, _ := get(t, base, path); status != http.StatusOK {
		t.Errorf("after Add: %d", status)
	}
	o.Remove("acme", "widget", "1.0.0")
	if status, _ := get(t, base, path); status != http.StatusNotFound {
		t.Errorf("after Remove: %d", status)
	}
}

func TestToken(t *testing.T) {
	o := origin.New(origin.Options{Token: "secret"}, widget(t, "1.0.0", nil))
	base := serve(t, o)
	const path = "/v1/providers/acme/widget/versions"
	if status, _ := get(t, base, path); status != http.StatusUnauthorized {
		t.Errorf("without the token: %d", status)
	}
	if status, _ := get(t, base, path, "Authorization", "Bearer secret"); status != http.StatusOK {
		t.Errorf("with the token: %d", status)
	}
	if status, _ := get(t, base, "/.well-known/terraform.json"); status != http.StatusOK {
		t.Errorf("discovery: %d", status)
	}
	if n := o.Count(recorder.Path(path), recorder.Authorized()); n != 1 {
		t.Errorf("the recorder has %d requests with credentials, want 1", n)
	}
}
