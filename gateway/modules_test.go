package gateway_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

const modulePrefix = "/hosts/" + host + "/v1/modules/acme/net/aws/"

var (
	netModule   = module.MustParseAddress(host + "/acme/net/aws")
	otherModule = module.MustParseAddress(host + "/acme/other/aws")
)

// modules makes the gateway serve the modules of the bench's registry.
func (b *bench) modules() *bench {
	providers := b.options.Repository
	b.options.Repository = func(ctx context.Context, of subject.Address) (catalog.Store, error) {
		if a, ok := of.(module.Address); ok && a.Hostname() != "elsewhere.example" {
			return b.moduleRepository(a), nil
		}
		return providers(ctx, of)
	}
	return b
}

func (b *bench) moduleRepository(a module.Address) *remote.Repository {
	repo := b.repository(widget)
	encode := ociaddr.EncodeComponent
	repo.Reference.Repository = "modules/" + a.Hostname() + "/" + encode(a.Namespace()) + "/" + encode(a.Name()) + "/" + a.System()
	return repo
}

// publishModule stores a version of a module under a tag, and returns its zip.
func (b *bench) publishModule(a module.Address, version, tag string) []byte {
	b.t.Helper()
	content, err := release.Zip(map[string][]byte{"main.tf": []byte("# " + a.String() + " " + version)})
	if err != nil {
		b.t.Fatal(err)
	}
	b.storeModule(a, version, tag, content)
	return content
}

// storeModule stores a version of a module with the given zip under a tag.
func (b *bench) storeModule(a module.Address, version, tag string, content []byte) {
	b.t.Helper()
	m := artifact.Version{Owner: a, Version: provider.MustParseVersion(version), Packages: []artifact.Package{{Digest: digest.FromBytes(content), Size: int64(len(content))}}}
	manifest, err := artifact.EncodeZip(m)
	if err != nil {
		b.t.Fatal(err)
	}
	repo := b.moduleRepository(a)
	b.send(repo, artifact.Config(), artifact.Blob{Descriptor: m.Zip().Layer(), Data: content}, manifest)
	if err := repo.Tag(b.t.Context(), manifest.Descriptor, tag); err != nil {
		b.t.Fatal(err)
	}
}

// location returns the location in a download document, which must also be in the header.
func (c *client) location(path string) string {
	c.t.Helper()
	a := c.get(path)
	var doc struct{ Location string }
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil || a.status != http.StatusOK || doc.Location == "" || a.header.Get("X-Terraform-Get") != doc.Location {
		c.t.Fatalf("%s: %+v", path, a)
	}
	if !strings.HasSuffix(doc.Location, "?archive=zip") {
		c.t.Errorf("location %s", doc.Location)
	}
	return doc.Location
}

// relative returns the path of a location that is relative to a download document.
func relative(document, location string) string {
	base, _ := url.Parse(document)
	to, err := base.Parse(location)
	if err != nil {
		return location
	}
	return to.Path
}

func TestModules(t *testing.T) {
	b := newBench(t).modules()
	exact := b.publishModule(netModule, "1.0.0", "1.0.0")
	b.publishModule(netModule, "1.0.0-wrong", "v1.0.0-wrong")
	tagged := b.publishModule(netModule, "1.10.0", "v1.10.0")
	b.options.PublicURL = parseURL(t, "https://"+host+"/tf/")
	c := b.serve()
	for _, prefix := range []string{modulePrefix, "/v1/modules/acme/net/aws/"} {
		if a := c.get(prefix + "versions"); a.status != 200 || a.body != `{"modules":[{"versions":[{"version":"1.0.0-wrong"},{"version":"1.0.0"},{"version":"1.10.0"}]}]}` || a.header.Get("Etag") == "" {
			t.Errorf("%s: %+v", prefix, a)
		}
		for version, content := range map[string][]byte{"1.0.0": exact, "1.10.0": tagged} {
			want := "https://" + host + "/tf" + prefix + version + "/net-" + version + ".zip?archive=zip"
			if got := c.location(prefix + version + "/download"); got != want {
				t.Errorf("location %s, want %s", got, want)
			}
			zip := prefix + version + "/net-" + version + ".zip"
			if a := c.get(zip + "?archive=zip"); a.status != 200 || a.body != string(content) || a.header.Get("Etag") != `"`+digest.FromBytes(content).String()+`"` {
				t.Errorf("%s: %d, %d bytes", zip, a.status, len(a.body))
			}
		}
	}
	for _, path := range []string{
		"9.9.9/download", "v1.0.0/download", "nonsense/download", "1.0.0/other.zip", "1.0.0", "", "1.0.0/download/linux/amd64",
	} {
		if a := c.get(modulePrefix + path); a.status != 404 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	for _, path := range []string{"/hosts/" + host + "/v1/modules/acme/absent/aws/versions", "/hosts/elsewhere.example/v1/modules/acme/net/aws/versions", "/providers/module:" + netModule.Path() + "/index.json"} {
		if a := c.get(path); a.status != 404 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

// TestModulesAreCached shows that many clients cost one request each for the tags, the manifest and the zip, and that a
// module is served stale, also after a restart.
func TestModulesAreCached(t *testing.T) {
	b := newBench(t).modules()
	content := b.publishModule(netModule, "1.0.0", "1.0.0")
	cache, err := archives.OpenCache(t.TempDir(), 1<<20, archives.CacheOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.Close() })
	b.options.Cache = cache
	folder := t.TempDir()
	open := func() *client {
		var err error
		b.options.Catalog, err = catalog.New(catalog.Options{Repository: b.options.Repository, Directory: folder, TagTTL: -1})
		if err != nil {
			t.Fatal(err)
		}
		return b.serve()
	}
	read := func(c *client) {
		t.Helper()
		if a := c.get(modulePrefix + "versions"); a.status != 200 {
			t.Errorf("versions: %+v", a)
		}
		document := modulePrefix + "1.0.0/download"
		if a := c.get(relative(document, c.location(document))); a.status != 200 || a.body != string(content) {
			t.Errorf("archive: %d, %q", a.status, a.body)
		}
	}
	c := open()
	read(c)
	b.registry.Reset()
	read(c)
	for _, r := range b.registry.Requests() {
		if strings.Contains(r.Path, "/blobs/") || r.Method == http.MethodGet && strings.Contains(r.Path, "/manifests/") {
			t.Errorf("fetched again: %s %s", r.Method, r.Path)
		}
	}
	if err := b.options.Catalog.Close(); err != nil {
		t.Fatal(err)
	}
	b.stopRegistry()
	c = open()
	t.Cleanup(func() { b.options.Catalog.Close() })
	read(c)
	if a := c.get(modulePrefix + "9.9.9/download"); a.status != 502 {
		t.Errorf("a version that may exist: %d", a.status)
	}
}

// TestModuleFailuresAreNeverAbsence shows that a module is reported as absent only if the list of tags says so, and that
// no such failure is a redirect to the origin.
func TestModuleFailuresAreNeverAbsence(t *testing.T) {
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	const denied = `{"errors":[{"code":"DENIED","message":"no"}]}`
	for name, tc := range map[string]struct {
		part   string
		lie    http.HandlerFunc
		status int
		broken bool // the response may begin before the lie is noticed
	}{
		"tags: 500":                 {"/tags/list", answer(500, ""), 502, false},
		"tags: 429":                 {"/tags/list", answer(429, ""), 503, false},
		"tags: 403":                 {"/tags/list", answer(403, denied), 502, false},
		"tags: a proxy's 404":       {"/tags/list", answer(404, "<html>"), 502, false},
		"tags: no list":             {"/tags/list", answer(200, `{"hello":1}`), 502, false},
		"manifest: 404, but listed": {"/manifests/", answer(404, ""), 502, false},
		"manifest: 401":             {"/manifests/", answer(401, denied), 502, false},
		"manifest: not a module":    {"/manifests/", answer(200, `{"schemaVersion":2}`), 502, false},
		"manifest: over 4 MiB":      {"/manifests/", answer(200, strings.Repeat(" ", 5<<20)), 502, false},
		"blob: 404":                 {"/blobs/", answer(404, ""), 502, false},
		"blob: other bytes":         {"/blobs/", answer(200, "x"), 502, true},

		"tags: a page for people":      {"/tags/list", respond(200, "text/html", "<html>"), 502, false},
		"tags: a reset":                {"/tags/list", cut, 502, false},
		"tags: a broken page":          {"/tags/list", cutAfter(`{"tags":["1.0.0"`), 502, false},
		"manifest: a page for people":  {"/manifests/", respond(200, "text/html", "<html>"), 502, false},
		"manifest: a reset":            {"/manifests/", cut, 502, false},
		"manifest: an index":           {"/manifests/", answer(200, moduleManifest("index.v1", "", "")), 502, false},
		"manifest: two zips":           {"/manifests/", answer(200, moduleManifest("manifest.v1", zipOfModule+","+zipOfModule, "")), 502, false},
		"manifest: another module":     {"/manifests/", answer(200, moduleManifest("manifest.v1", zipOfModule, `"io.github.ocibridge.module":"`+otherModule.Path()+`"`)), 502, false},
		"manifest: another version":    {"/manifests/", answer(200, moduleManifest("manifest.v1", zipOfModule, `"io.github.ocibridge.version":"2.0.0"`)), 502, false},
		"manifest: another digest":     {"/manifests/", withDigest(answer(200, moduleManifest("manifest.v1", zipOfModule, ""))), 502, false},
		"manifest: a million layers":   {"/manifests/", answer(200, moduleManifest("manifest.v1", strings.Repeat("{},", 1_000_000)+"{}", "")), 502, false},
		"manifest: megabytes of names": {"/manifests/", answer(200, moduleManifest("manifest.v1", zipOfModule, `"io.github.ocibridge.module":"`+strings.Repeat("a", 3<<20)+`"`)), 502, false},
		"blob: a page for people":      {"/blobs/", respond(200, "text/html", "<html>"), 502, true},
		"blob: a reset":                {"/blobs/", cut, 502, true},
		"blob: broken off":             {"/blobs/", cutAfter("PK"), 502, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t).modules()
			b.publishModule(netModule, "1.0.0", "1.0.0")
			b.options.ModuleOrigin = func(context.Context, module.Address) (*url.URL, error) {
				t.Error("the origin was looked up")
				return url.Parse("https://origin.example/v1/modules/")
			}
			b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, tc.part) {
					return false
				}
				tc.lie(w, r)
				return true
			})
			path := map[string]string{"/tags/list": "versions", "/manifests/": "1.0.0/download", "/blobs/": "1.0.0/net-1.0.0.zip"}[tc.part]
			c := b.serve()
			status, body, err := c.download(modulePrefix + path)
			if status != tc.status && !(tc.broken && err != nil) {
				t.Errorf("%d %s %v, want %d", status, body, err, tc.status)
			}
		})
	}
}

// zipOfModule is the descriptor of a zip that no registry has.
const zipOfModule = `{"mediaType":"archive/zip","digest":"sha256:6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d","size":1}`

// moduleManifest returns a manifest of a module with the given kind, layers and annotations.
func moduleManifest(kind, layers, annotations string) string {
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.%s+json","artifactType":%q,"config":{},"layers":[%s],"annotations":{%s}}`,
		kind, artifact.TypeModule, layers, annotations)
}

// withDigest adds the digest of other content to a response.
func withDigest(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Docker-Content-Digest", digest.FromString("other").String())
		next(w, r)
	}
}

// TestTagListOfModuleWithoutEnd shows that the gateway stops reading a list of tags whose pages never end, and does not
// redirect to the origin.
func TestTagListOfModuleWithoutEnd(t *testing.T) {
	b := newBench(t).modules()
	b.options.ModuleOrigin = func(context.Context, module.Address) (*url.URL, error) {
		return url.Parse("https://origin.example/v1/modules/")
	}
	b.lie("/tags/list", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", `<`+r.URL.Path+`>; rel="next"`)
		respond(200, "application/json", `{"tags":["1.0.0"]}`)(w, r)
	})
	b.limits.Metadata = time.Minute // long enough for the limit on pages to be reached first
	if a := b.serve().get(modulePrefix + "versions"); a.status != http.StatusBadGateway {
		t.Errorf("%+v", a)
	}
	if n := b.registry.Count(); n != artifact.MaxTagPages+1 {
		t.Errorf("%d requests", n)
	}
}

// TestModulesDirect shows that a direct download names the module's repository and the digest of its manifest, and that
// denied versions stay denied.
func TestModulesDirect(t *testing.T) {
	b := newBench(t).modules()
	b.publishModule(netModule, "1.0.0", "1.0.0")
	b.publishModule(netModule, "1.1.0", "v1.1.0")
	b.publishModule(otherModule, "1.0.0", "1.0.0")
	versions, err := provider.ParseConstraint("1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	b.options.Deny = []catalog.Deny{{Pattern: netModule.Pattern(), Versions: versions, Reason: "it opens port 22"}}
	repo, err := ociaddr.ParseRepository("registry.example.com/acme/net")
	if err != nil {
		t.Fatal(err)
	}
	b.options.ModuleRepository = func(a module.Address) (ociaddr.Repository, bool) { return repo, a == netModule }
	c := b.serve()
	manifest, err := b.moduleRepository(netModule).Resolve(t.Context(), "v1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	want := "oci://registry.example.com/acme/net?digest=" + manifest.Digest.String()
	a := c.get(modulePrefix + "1.1.0/download")
	if a.status != 200 || strings.TrimSpace(a.body) != `{"location":"`+want+`"}` || a.header.Get("X-Terraform-Get") != want {
		t.Errorf("%+v, want %s", a, want)
	}
	if a := c.get(modulePrefix + "1.0.0/download"); a.status != 451 {
		t.Errorf("a denied version: %+v", a)
	}
	c.location("/hosts/" + host + "/v1/modules/acme/other/aws/1.0.0/download")
}

// TestModuleInFolder shows that clients are led to the folder that the origin of a module named.
func TestModuleInFolder(t *testing.T) {
	b := newBench(t).modules()
	content := []byte("zip")
	m := artifact.Version{
		Owner: netModule, Version: provider.MustParseVersion("1.0.0"), Packages: []artifact.Package{{Digest: digest.FromBytes(content), Size: int64(len(content))}},
		Provenance: artifact.Provenance{Location: "git::https://git.acme.example/net//modules/a?ref=v1.0.0", Folder: "modules/a"},
	}
	manifest, err := artifact.EncodeZip(m)
	if err != nil {
		t.Fatal(err)
	}
	repo := b.moduleRepository(netModule)
	b.send(repo, artifact.Config(), artifact.Blob{Descriptor: m.Zip().Layer(), Data: content}, manifest)
	if err := repo.Tag(t.Context(), manifest.Descriptor, "1.0.0"); err != nil {
		t.Fatal(err)
	}
	c := b.serve()
	location := c.location(modulePrefix + "1.0.0/download")
	zip, found := strings.CutSuffix(location, "//modules/a?archive=zip")
	if !found {
		t.Fatalf("location %s", location)
	}
	if a := c.get(relative(modulePrefix+"1.0.0/download", zip)); a.status != http.StatusOK || a.body != "zip" {
		t.Errorf("%+v", a)
	}
	named, err := ociaddr.ParseRepository("registry.example.com/acme/net")
	if err != nil {
		t.Fatal(err)
	}
	b.options.ModuleRepository = func(module.Address) (ociaddr.Repository, bool) { return named, true }
	want := "oci://registry.example.com/acme/net//modules/a?digest=" + manifest.Descriptor.Digest.String()
	if a := b.serve().get(modulePrefix + "1.0.0/download"); a.header.Get("X-Terraform-Get") != want {
		t.Errorf("%+v, want %s", a, want)
	}
}

func TestAccessToModules(t *testing.T) {
	b := newBench(t).modules()
	content := b.publishModule(netModule, "1.0.0", "1.0.0")
	b.publishModule(otherModule, "1.0.0", "1.0.0")
	token := func(text string, providers []string, modules ...string) access.Token {
		out := access.Token{Name: text, SHA256: sha256.Sum256([]byte(text))}
		for _, p := range providers {
			out.Selector.Include = append(out.Selector.Include, provider.MustParsePattern(p))
		}
		for _, p := range modules {
			out.Selector.Include = append(out.Selector.Include, module.MustParsePattern(p))
		}
		return out
	}
	b.options.Access = access.New(access.Options{Tokens: []access.Token{
		token("net", nil, netModule.String()), token("both", nil, host+"/acme/*/*"), token("providers", []string{"*/*/*"}), token("all", nil),
	}})
	anybody := b.serve()
	other := "/hosts/" + host + "/v1/modules/acme/other/aws/"
	for name, tc := range map[string]struct {
		c           *client
		net, others int
	}{
		"no token":  {anybody, 401, 401},
		"nonsense":  {anybody.as("nonsense"), 401, 401},
		"net":       {anybody.as("net"), 200, 403},
		"both":      {anybody.as("both"), 200, 200},
		"providers": {anybody.as("providers"), 403, 403},
		"all":       {anybody.as("all"), 200, 200},
	} {
		for _, path := range []string{"versions", "1.0.0/download"} {
			if a := tc.c.get(modulePrefix + path); a.status != tc.net || a.header.Get("Cache-Control") != access.Private {
				t.Errorf("%s: %s: %+v, want %d", name, path, a, tc.net)
			}
			if a := tc.c.get(other + path); a.status != tc.others {
				t.Errorf("%s: %s of another module: %d, want %d", name, path, a.status, tc.others)
			}
		}
	}
	document := modulePrefix + "1.0.0/download"
	link := relative(document, anybody.as("net").location(document))
	if a := anybody.get(link); a.status != 200 || a.body != string(content) {
		t.Errorf("the archive by its link: %+v", a)
	}
	segments := strings.Split(link, "/")
	capability := segments[len(segments)-2]
	for _, path := range []string{
		modulePrefix + "1.0.0/net-1.0.0.zip", other + "1.0.0/" + capability + "/other-1.0.0.zip",
		strings.Replace(link, capability, capability[:len(capability)-4]+"AAAA", 1),
		modulePrefix + "1.0.0/" + capability + "/download",
	} {
		if a := anybody.get(path); a.status != 401 && a.status != 403 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

// TestModuleCapabilityIsForOneDigest shows that the link to a zip does not open the content that replaces it.
func TestModuleCapabilityIsForOneDigest(t *testing.T) {
	b := newBench(t).modules()
	b.publishModule(netModule, "1.0.0", "1.0.0")
	b.options.Log = slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b.options.Access = access.New(access.Options{Log: b.options.Log, Tokens: []access.Token{{Name: "all", SHA256: sha256.Sum256([]byte("all-token"))}}})
	c := b.serve()
	document := modulePrefix + "1.0.0/download"
	link := relative(document, c.as("all-token").location(document))
	if a := c.get(link); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	content, err := release.Zip(map[string][]byte{"main.tf": []byte("other content")})
	if err != nil {
		t.Fatal(err)
	}
	b.storeModule(netModule, "1.0.0", "1.0.0", content)
	replica := b.serve() // with empty caches
	if a := replica.get(link); a.status != 403 {
		t.Errorf("the link opens other content: %+v", a)
	}
	capability := strings.Split(link, "/")[len(strings.Split(link, "/"))-2]
	if log := b.log.String(); strings.Contains(log, capability) || strings.Contains(log, "all-token") || !strings.Contains(log, "REDACTED") {
		t.Errorf("the log has a capability or a token:\n%s", log)
	}
}

func TestDeniedModules(t *testing.T) {
	b := newBench(t).modules()
	b.publishModule(netModule, "1.0.0", "1.0.0")
	b.publishModule(netModule, "1.1.0", "v1.1.0")
	b.publishModule(otherModule, "1.0.0", "1.0.0")
	gone := module.MustParseAddress(host + "/acme/gone/aws")
	b.publishModule(gone, "1.0.0", "1.0.0")
	versions, err := provider.ParseConstraint("1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	b.options.Deny = []catalog.Deny{
		{Pattern: netModule.Pattern(), Versions: versions, Reason: "it opens port 22"},
		{Pattern: otherModule.Pattern(), Reason: "it is retired"},
		{Pattern: gone.Pattern()},
		{Pattern: provider.MustParsePattern("*/*/*")},
	}
	b.options.ModuleOrigin = func(context.Context, module.Address) (*url.URL, error) {
		return url.Parse("https://origin.example/v1/modules/")
	}
	b.options.Registry = b.registry.Truth
	c := b.serve()
	other := "/hosts/" + host + "/v1/modules/acme/other/aws/"
	for path, want := range map[string]string{
		modulePrefix + "versions":            `{"modules":[{"versions":[{"version":"1.0.0"}]}]}`,
		other + "versions":                   `{"modules":[{"versions":[{"version":"1.0.0"}]}]}`,
		modulePrefix + "1.1.0/download":      "it opens port 22",
		modulePrefix + "1.1.0/net-1.1.0.zip": "it opens port 22",
		other + "1.0.0/download":             "it is retired",
	} {
		status := 451
		if strings.HasSuffix(path, "versions") {
			status = 200
		}
		if a := c.get(path); a.status != status || !strings.Contains(a.body, want) {
			t.Errorf("%s: %+v, want %d %s", path, a, status, want)
		}
	}
	c.location(modulePrefix + "1.0.0/download")
	v2 := "/v2/modules/" + netModule.Path()
	for path, status := range map[string]int{
		v2 + "/manifests/v1.1.0": 451, v2 + "/manifests/v1%2e1.0": 451,
		"/v2/modules/" + otherModule.Path() + "/manifests/1.0.0": 451, modulePrefix + "9.9.9/download": 307, other + "9.9.9/download": 451,
	} {
		if a := c.get(path); a.status != status {
			t.Errorf("%s: %+v, want %d", path, a, status)
		}
	}
	if a := c.get(v2 + "/tags/list"); a.status != 200 || strings.Contains(a.body, "1.1.0") || !strings.Contains(a.body, "1.0.0") {
		t.Errorf("tags: %+v", a)
	}
	for path, status := range map[string]int{"versions": 404, "1.0.0/download": 451} {
		if a := c.get("/hosts/" + host + "/v1/modules/acme/gone/aws/" + path); a.status != status {
			t.Errorf("denied without a reason: %s: %+v", path, a)
		}
	}
}

// TestDeniedModulesInAnySpelling shows that a rule for a module holds for each spelling of its address, also in the
// embedded registry.
func TestDeniedModulesInAnySpelling(t *testing.T) {
	b := newBench(t).modules()
	for _, name := range []string{"Azure", "azure", "AZURE"} {
		b.publishModule(module.MustParseAddress(host+"/"+name+"/net/aws"), "1.0.0", "1.0.0")
	}
	b.options.Deny = []catalog.Deny{{Pattern: module.MustParsePattern(host + "/aZure/*/*"), Reason: "it is retired"}}
	b.options.Registry = b.registry.Truth
	c := b.serve()
	for name, component := range map[string]string{"Azure": "azure.1", "azure": "azure", "AZURE": "azure.1f"} {
		if a := c.get("/hosts/" + host + "/v1/modules/" + name + "/net/aws/1.0.0/download"); a.status != 451 {
			t.Errorf("%s: %+v", name, a)
		}
		if a := c.get("/v2/modules/" + host + "/" + component + "/net/aws/manifests/1.0.0"); a.status != 451 {
			t.Errorf("%s in the embedded registry: %+v", name, a)
		}
	}
}

// TestDeniedModulesInTheEmbeddedRegistry shows that the embedded registry hides the tags of a module's denied versions,
// also those with a leading v.
func TestDeniedModulesInTheEmbeddedRegistry(t *testing.T) {
	b := newBench(t).modules()
	for _, tag := range []string{"1.0.0", "1.1.0", "v1.1.0"} {
		b.publishModule(netModule, strings.TrimPrefix(tag, "v"), tag)
	}
	versions, err := provider.ParseConstraint("1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	b.catalog(catalog.Options{Repository: b.options.Repository, Deny: []catalog.Deny{{Pattern: netModule.Pattern(), Versions: versions}}})
	b.options.Registry = b.registry.Truth
	c := b.serve()
	c.http.Transport = withHeader{"Accept", ocispec.MediaTypeImageManifest, c.http.Transport}
	at := "/v2/modules/" + netModule.Path()
	for path, status := range map[string]int{"1.0.0": 200, "1.1.0": 451, "v1.1.0": 451, "v%31.1.0": 451} {
		if a := c.get(at + "/manifests/" + path); a.status != status {
			t.Errorf("%s: %d, want %d", path, a.status, status)
		}
	}
	if a := c.get(at + "/tags/list"); !strings.Contains(a.body, `"tags":["1.0.0"]`) {
		t.Errorf("%+v", a)
	}
}

// TestRefreshOfModules shows that an operator drops the cached answers about one module.
func TestRefreshOfModules(t *testing.T) {
	b := newBench(t).modules()
	b.publishModule(netModule, "1.0.0", "1.0.0")
	b.publishModule(otherModule, "1.0.0", "1.0.0")
	b.catalog(catalog.Options{Repository: b.options.Repository, TagTTL: time.Hour})
	b.options.Access = access.New(access.Options{Tokens: []access.Token{{Name: "ops", SHA256: sha256.Sum256([]byte("ops-token")), Operator: true}}})
	c := b.serve().as("ops-token")
	other := "/hosts/" + host + "/v1/modules/acme/other/aws/versions"
	c.get(modulePrefix + "versions")
	c.get(other)
	b.publishModule(netModule, "1.1.0", "1.1.0")
	b.publishModule(otherModule, "1.1.0", "1.1.0")
	if a := c.get(modulePrefix + "versions"); a.status != 200 || strings.Contains(a.body, "1.1.0") {
		t.Errorf("before: %+v", a)
	}
	if a := c.do(http.MethodPost, "/-/refresh?module="+netModule.String()); a.status != 200 || !strings.Contains(a.body, "dropped the cached answers about "+netModule.String()+" (1)") {
		t.Errorf("refresh: %+v", a)
	}
	if a := c.get(modulePrefix + "versions"); !strings.Contains(a.body, "1.1.0") {
		t.Errorf("after: %+v", a)
	}
	if a := c.get(other); a.status != 200 || strings.Contains(a.body, "1.1.0") {
		t.Errorf("another module: %+v", a)
	}
}

// TestModulesFallThrough shows the redirects to a module's origin: only if the registry lacks the module or the version,
// and never with the gateway's token.
func TestModulesFallThrough(t *testing.T) {
	b := newBench(t).modules()
	b.publishModule(netModule, "1.0.0", "1.0.0")
	at := "https://origin.example/v1/modules/"
	b.options.ModuleOrigin = func(_ context.Context, a module.Address) (*url.URL, error) {
		switch a.Name() {
		case "unknown":
			return nil, fmt.Errorf("no discovery document")
		case "private":
			return nil, nil
		}
		return url.Parse(at)
	}
	c := b.serve()
	const base = "/hosts/" + host + "/v1/modules/acme/"
	for path, want := range map[string]string{
		"absent/aws/versions":         "307 https://origin.example/v1/modules/acme/absent/aws/versions",
		"absent/aws/1.0.0/download":   "307 https://origin.example/v1/modules/acme/absent/aws/1.0.0/download",
		"net/aws/2.0.0/download":      "307 https://origin.example/v1/modules/acme/net/aws/2.0.0/download",
		"net/aws/2.0.0/net-2.0.0.zip": "404 ",
		"private/aws/versions":        "404 ",
		"unknown/aws/versions":        "502 ",
		"net/aws/versions":            "200 ",
	} {
		if a := c.get(base + path); fmt.Sprint(a.status, " ", a.header.Get("Location")) != want {
			t.Errorf("%s: %d %s, want %s", path, a.status, a.header.Get("Location"), want)
		}
	}
	at = "https://origin.example/v1/modules/?q=\u0085\u202e"
	if l := c.get(base + "absent/aws/versions").header.Get("Location"); l != "https://origin.example/v1/modules/acme/absent/aws/versions?q=%C2%85%E2%80%AE" {
		t.Errorf("a redirect with control characters: %q", l)
	}
	at = "https://sub.127.0.0.1/v1/modules/"
	if a := c.as("token").get(base + "absent/aws/versions"); a.status != 502 || a.header.Get("Location") != "" {
		t.Errorf("a client would keep its token: %+v", a)
	}
	at = "https://origin.example/v1/modules/"
	b.stopRegistry()
	if a := c.get(base + "absent/gcp/versions"); a.status != 502 {
		t.Errorf("the registry is unavailable: %+v", a)
	}
}
