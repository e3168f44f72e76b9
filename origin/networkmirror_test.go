package origin_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/disco"
	"github.com/opentofu/svchost/svcauth"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// mirrorServer serves a mirror folder, and requires a token for its JSON.
func mirrorServer(t *testing.T, m mirror) (*recorder.Recorder, *origin.NetworkMirror) {
	t.Helper()
	files := http.StripPrefix("/mirror/", http.FileServer(http.Dir(m.dir)))
	rec := recorder.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".json") && r.Header.Get("Authorization") != "Bearer s3cr3t" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		files.ServeHTTP(w, r)
	}))
	server := httptest.NewTLSServer(rec)
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL + "/mirror/")
	if err != nil {
		t.Fatal(err)
	}
	creds := svcauth.StaticCredentialsSource(map[svchost.Hostname]svcauth.HostCredentials{svchost.Hostname(base.Host): svcauth.HostCredentialsToken("s3cr3t")})
	client := origin.NewRegistry(origin.RegistryOptions{
		Transport: server.Client().Transport, Services: origin.NewDiscovery(server.Client().Transport, disco.WithCredentials(creds)),
	})
	return rec, client.NetworkMirror(base)
}

func TestSources(t *testing.T) {
	m := newMirror(t)
	old, r := build(t, pgp.For(t, "Acme"), "1.0.0"), build(t, pgp.For(t, "Acme"), "1.1.0")
	m.add(widgetDir, old, h1AndZ)
	m.add(widgetDir, r, h1Only)
	dir, err := origin.OpenMirrorDir(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	rec, network := mirrorServer(t, m)
	for name, source := range map[string]origin.Source{"folder": dir, "network": network} {
		t.Run(name, func(t *testing.T) {
			l, err := source.Versions(t.Context(), widget)
			if err != nil || fmt.Sprint(l.Versions) != "[1.0.0 1.1.0]" {
				t.Fatalf("%v, %v", l, err)
			}
			v := l.Versions[1]
			platforms, err := source.Platforms(t.Context(), widget, l, v)
			if err != nil || len(platforms) != len(r.Packages) {
				t.Fatalf("%v, %v", platforms, err)
			}
			got, err := source.Release(t.Context(), widget, l, v, platforms[:1])
			if err != nil || len(got.Packages) != 1 || !got.Partial || got.Version() != v {
				t.Fatalf("%+v, %v", got, err)
			}
			pkg := got.Packages[0]
			sums, err := trust.Policy{AllowUnsigned: true}.Accept(t.Context(), got.Claims)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := sums.Verifier(pkg.Platform, pkg.Filename); err != nil {
				t.Error(err)
			}
			body, size, err := pkg.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer body.Close()
			data, err := io.ReadAll(body)
			if err != nil || int64(len(data)) != size || pkg.Size(t.Context()) != size || size == 0 {
				t.Errorf("%d bytes of %d, %v", len(data), size, err)
			}
			if _, err := source.Versions(t.Context(), provider.MustParseAddress(host+"/acme/gadget")); !errors.Is(err, origin.ErrProviderNotFound) {
				t.Errorf("another provider: %v", err)
			}
			if _, err := source.Release(t.Context(), widget, l, provider.MustParseVersion("9.0.0"), nil); !errors.Is(err, origin.ErrVersionNotFound) {
				t.Errorf("another version: %v", err)
			}
			if _, err := source.Release(t.Context(), widget, l, v, []provider.Platform{provider.MustParsePlatform("plan9_386")}); !errors.Is(err, origin.ErrPlatformNotFound) {
				t.Errorf("another platform: %v", err)
			}
		})
	}
	if n := rec.Count(recorder.PathSuffix(".zip"), recorder.Authorized()); n > 0 {
		t.Errorf("%d requests for packages carried the token", n)
	}
}

func TestNetworkMirrorRefused(t *testing.T) {
	testkit.LeaveToMake(t)
	m := newMirror(t)
	m.add(widgetDir, build(t, pgp.For(t, "Acme"), "1.0.0"), h1AndZ)
	for name, tt := range map[string]struct {
		status    int
		body      string
		err, hint string
	}{
		"unauthorized":        {401, "", "credentials refused", "TF_TOKEN_127_0_0_1:"},
		"trouble":             {501, "", "answered 501", "later"},
		"HTML":                {200, "<html>", "JSON", "login page"},
		"no archives":         {200, `{"archives":{}}`, "version not found", "pushed"},
		"no platform":         {200, `{"archives":{"linux":{}}}`, "version not found", "pushed"},
		"many archives":       {200, string(cost.Counted(129, `{"archives":{`, `"linux_amd%d":{}`, `}}`)), "129 packages of one version", "protocol"},
		"many hashes":         {200, string(cost.Counted(65, `{"archives":{"linux_amd64":{"hashes":[`, `"h9:0"`, `]}}}`)), "65 hashes of one package", "protocol"},
		"no URL":              {200, `{"archives":{"linux_amd64":{"hashes":["zh:` + strings.Repeat("0", 64) + `"]}}}`, "URL", "protocol"},
		"file URL":            {200, `{"archives":{"linux_amd64":{"url":"file:///etc/passwd","hashes":["zh:` + strings.Repeat("0", 64) + `"]}}}`, "scheme", "protocol"},
		"long URL":            {200, `{"archives":{"linux_amd64":{"url":"` + strings.Repeat("x", 8<<10+1) + `","hashes":["zh:` + strings.Repeat("0", 64) + `"]}}}`, "more than 8192 bytes", "protocol"},
		"bad hash":            {200, `{"archives":{"linux_amd64":{"url":"a.zip","hashes":["zh:0"]}}}`, "zh:0", "protocol"},
		"other hash alone":    {200, `{"archives":{"linux_amd64":{"url":"a.zip","hashes":["h9:0"]}}}`, `no hash to check the package with, only unknown schemes: "h9:0"`, "anew"},
		"hash without scheme": {200, `{"archives":{"linux_amd64":{"url":"a.zip","hashes":["zh:` + strings.Repeat("0", 64) + `","` + strings.Repeat("0", 64) + `"]}}}`, "has no scheme", "protocol"},
		"empty scheme":        {200, `{"archives":{"linux_amd64":{"url":"a.zip","hashes":["zh:` + strings.Repeat("0", 64) + `",":x"]}}}`, "has no scheme", "protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			rec, source := mirrorServer(t, m)
			rec.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/1.0.0.json") {
					return false
				}
				w.WriteHeader(tt.status)
				io.WriteString(w, tt.body)
				return true
			})
			l, err := source.Versions(t.Context(), widget)
			if err != nil {
				t.Fatal(err)
			}
			_, err = source.Release(t.Context(), widget, l, l.Versions[0], nil)
			if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(hint.Of(err), tt.hint) || strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("%v; hint %q", err, hint.Of(err))
			}
		})
	}
}

// answerJSON replaces the mirror's response to requests whose path ends in suffix.
func answerJSON(rec *recorder.Recorder, suffix, contentType, body string) {
	rec.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, suffix) {
			return false
		}
		w.Header()["Content-Type"] = []string{contentType}
		io.WriteString(w, body)
		return true
	})
}

// TestNetworkMirrorWithoutList shows that a document without a list of versions is an
// error. A document with an empty list means that there are no versions.
func TestNetworkMirrorWithoutList(t *testing.T) {
	for body, says := range map[string]string{
		`{}`:                   "no list of versions",
		`null`:                 "no list of versions",
		`{"providers":{}}`:     "no list of versions",
		`{"versions":{}}`:      "",
		`{"versions":null}`:    "",
		`{"versions":["1.0"]}`: "cannot unmarshal array",
	} {
		t.Run(body, func(t *testing.T) {
			rec, source := mirrorServer(t, newMirror(t))
			answerJSON(rec, "/index.json", "application/json", body)
			l, err := source.Versions(t.Context(), widget)
			if says == "" {
				if err != nil || len(l.Versions) > 0 {
					t.Errorf("%+v, %v", l, err)
				}
				return
			}
			if errors.Is(err, origin.ErrProviderNotFound) {
				t.Error("the error means that there are no versions")
			}
			checkError(t, err, says, "does not keep to the ")
		})
	}
}

// TestNetworkMirrorAsClientsRead shows that NetworkMirror ignores the parts of documents
// that clients ignore.
func TestNetworkMirrorAsClientsRead(t *testing.T) {
	m := newMirror(t)
	r := build(t, nil, "1.0.0")
	m.add(widgetDir, r, h1AndZ)
	linux := r.Package("linux", "amd64")
	entry := func(hashes ...string) string {
		return fmt.Sprintf(`"linux_amd64":{"url":%q,"hashes":["%s"]}`, linux.Filename, strings.Join(hashes, `","`))
	}
	zh := "zh:" + linux.SHA256
	for name, tc := range map[string]struct {
		archives string
		want     []string // platforms to push; empty means all
		warning  string
		err      string
	}{
		"unknown platform":            {entry(zh) + `,"Linux/amd64":{"url":"x"},"any":{}`, nil, `names that are no platforms; clients ignore them: "Linux/amd64", "any"`, ""},
		"unknown platform, bad entry": {entry(zh) + `,"any":{"url":"file:///x","hashes":["x"]}`, nil, "no platforms", ""},
		"unknown scheme beside known": {entry("h9:0", zh), nil, "", ""},
		"unknown scheme before known": {entry("sha512:"+strings.Repeat("0", 128), h1(t, *linux)), nil, "", ""},
		"unknown scheme alone":        {entry("h9:0"), nil, "", "only unknown schemes"},
		"malformed":                   {entry(zh, "0000"), nil, "", "linux_amd64: the hash \"0000\" has no scheme"},
		"malformed for another":       {entry(zh) + `,"darwin_arm64":{"url":"x","hashes":["0000"]}`, []string{"linux_amd64"}, "", ""},
		"malformed for one of all":    {entry(zh) + `,"darwin_arm64":{"url":"x","hashes":["0000"]}`, nil, "", "darwin_arm64: the hash"},
		"unknown for another":         {entry(zh) + `,"darwin_arm64":{"url":"x","hashes":["h9:0"]}`, []string{"linux_amd64"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			rec, source := mirrorServer(t, m)
			answerJSON(rec, "/1.0.0.json", "application/json; charset=utf-8", `{"archives":{`+tc.archives+`}}`)
			l, err := source.Versions(t.Context(), widget)
			if err != nil {
				t.Fatal(err)
			}
			got, err := source.Release(t.Context(), widget, l, l.Versions[0], platforms(tc.want...))
			if tc.err != "" {
				checkError(t, err, tc.err, "")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(got.Warnings, "; "); !strings.Contains(all, tc.warning) || tc.warning == "" && all != "" {
				t.Errorf("warnings %q", all)
			}
			if len(got.Packages) != 1 {
				t.Fatalf("%d packages", len(got.Packages))
			}
			if err := verify(t, got, got.Packages[0], trust.Policy{AllowUnsigned: true}); err != nil {
				t.Error(err)
			}
			if listed, err := source.Platforms(t.Context(), widget, l, l.Versions[0]); err != nil || !slices.Contains(listed, got.Packages[0].Platform) {
				t.Errorf("platforms %v, %v", listed, err)
			}
		})
	}
}

// TestNetworkMirrorMediaTypes shows that a response with a media type that clients refuse
// leads to a warning.
func TestNetworkMirrorMediaTypes(t *testing.T) {
	m := newMirror(t)
	r := build(t, nil, "1.0.0")
	m.add(widgetDir, r, h1AndZ)
	for contentType, refused := range map[string]bool{
		"application/json": false, "application/json; charset=utf-8": false, "Application/JSON": false,
		"text/plain": true, "text/plain; charset=utf-8": true, "application/vnd.acme+json": true, "": true,
	} {
		t.Run(contentType, func(t *testing.T) {
			rec, source := mirrorServer(t, m)
			rec.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				w.Header()["Content-Type"] = []string{contentType} // so that net/http does not set it
				return false
			})
			l, err := source.Versions(t.Context(), widget)
			if err != nil {
				t.Fatal(err)
			}
			got, err := source.Release(t.Context(), widget, l, l.Versions[0], nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, warnings := range map[string][]string{"index.json": l.Warnings, "1.0.0.json": got.Warnings} {
				said := strings.Join(warnings, "; ")
				if warned := strings.Contains(said, name+" with the Content-Type") && strings.Contains(said, "clients refuse it"); warned != refused || !refused && said != "" {
					t.Errorf("%s: warnings %q", name, said)
				}
			}
		})
	}
}

// TestMirrorsWithoutHashes shows that a release without hashes is accepted only if the
// policy allows it.
func TestMirrorsWithoutHashes(t *testing.T) {
	m := newMirror(t)
	r := build(t, nil, "1.0.0")
	m.add(widgetDir, r, func(*testing.T, release.Package) []string { return nil })
	dir, err := origin.OpenMirrorDir(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	_, network := mirrorServer(t, m)
	for name, source := range map[string]origin.Source{"folder": dir, "network": network} {
		t.Run(name, func(t *testing.T) {
			l, err := source.Versions(t.Context(), widget)
			if err != nil {
				t.Fatal(err)
			}
			got, err := source.Release(t.Context(), widget, l, l.Versions[0], nil)
			if err != nil {
				t.Fatal(err)
			}
			if said := strings.Join(got.Warnings, "; "); strings.Count(said, "gives no hash of the package for") != len(got.Packages) {
				t.Errorf("warnings %q", said)
			}
			for _, pkg := range got.Packages {
				err := verify(t, got, pkg, trust.Policy{})
				checkError(t, err, "neither hashes", "accept it unchecked with allow_unsigned = true")
				if !errors.Is(err, trust.ErrUnsigned) {
					t.Error(err)
				}
				if err := verify(t, got, pkg, trust.Policy{AllowUnsigned: true}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
