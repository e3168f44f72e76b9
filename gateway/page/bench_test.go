package page_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/page"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/accepted"
	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loopback"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

const host = "registry.acme.example"

var (
	widget = provider.MustParseAddress(host + "/acme/widget")
	linux  = provider.MustParsePlatform("linux_amd64")
	darwin = provider.MustParsePlatform("darwin_arm64")
)

// bench is a page in front of a real registry. Tests can replace some of the registry's
// responses.
type bench struct {
	t        *testing.T
	registry *loopback.Registry
	signer   *pgp.Signer
	origin   *origin.Origin
	source   *httptest.Server
	log      *collected.Text
	catalog  catalog.Options
	options  page.Options
	zips     string // if not "", the file name of each package before _OS_ARCH.zip
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, registry: loopback.For(t), signer: pgp.For(t, "Acme"), origin: origin.New(origin.Options{}), log: &collected.Text{}}
	b.source = httptest.NewServer(b.origin)
	t.Cleanup(b.source.Close)
	b.options.Log = slog.New(slog.NewTextHandler(b.log, nil))
	b.catalog = catalog.Options{
		TagTTL: -1, StaleIfError: -1,
		Repository: func(_ context.Context, a subject.Address) (catalog.Store, error) {
			if a.Hostname() == "elsewhere.example" || a.Kind() == subject.Module {
				return nil, fmt.Errorf("%w: no template is for it", gateway.ErrNotServed)
			}
			return b.repository(a), nil
		},
	}
	return b
}

func (b *bench) repository(a subject.Address) *remote.Repository {
	return b.registry.Repository(a.Path())
}

// push adds a release to the origin and pushes it to the registry. The release is signed if
// signed is true.
func (b *bench) push(a provider.Address, version string, signed bool) *release.Release {
	b.t.Helper()
	spec := release.Spec{Host: a.Hostname(), Namespace: a.Namespace(), Type: a.Type(), Version: version, Protocols: []string{"5.0", "6.1"}}
	if signed {
		spec.Signer = b.signer
	}
	for _, p := range []provider.Platform{linux, darwin} {
		name := ""
		if b.zips != "" {
			name = b.zips + "_" + p.String() + ".zip"
		}
		spec.Contents = append(spec.Contents, release.Content{OS: p.OS, Arch: p.Arch, Filename: name,
			Files: map[string][]byte{"terraform-provider-" + a.Type() + "_v" + version: []byte(version + p.String())}})
	}
	r := release.For(b.t, spec)
	b.origin.Add(r)
	b.registry.Push(origin.Fetch(b.t, origin.Client(a.Hostname(), b.source.URL), a, version), trust.Policy{AllowUnsigned: true})
	return r
}

// index pushes a version for one platform, without evidence. All other fields of the version
// come from v.
func (b *bench) index(a provider.Address, version string, v artifact.Version) {
	b.t.Helper()
	v.Owner, v.Version = a, provider.MustParseVersion(version)
	content := release.AsZip([]byte("a package of " + version))
	pkg, _ := accepted.Package(b.t, a, v.Version, linux, content)
	p, manifest, err := artifact.EncodePackage(pkg)
	b.must(err)
	v.Packages = []artifact.Package{p}
	index, err := artifact.EncodeIndex(v)
	b.must(err)
	repo := b.repository(a)
	for _, blob := range []artifact.Blob{artifact.Config(), {Descriptor: p.Layer(), Data: content}, manifest} {
		b.must(repo.Push(b.t.Context(), blob.Descriptor, bytes.NewReader(blob.Data)))
	}
	b.must(repo.PushReference(b.t.Context(), index.Descriptor, bytes.NewReader(index.Data), version))
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// lie makes h answer all requests to the registry whose path contains part.
func (b *bench) lie(part string, h http.HandlerFunc) {
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, part) {
			return false
		}
		h(w, r)
		return true
	})
}

// serve returns a client of a gateway that has the page and the given access control.
func (b *bench) serve(control *access.Control) *client {
	b.t.Helper()
	c, err := catalog.New(b.catalog)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	b.options.Catalog, b.options.Access = c, control
	return &client{b.t, gateway.New(gateway.Options{Catalog: c, Access: control, LastUses: b.options.LastUses, Page: page.New(b.options)}), ""}
}

// client sends requests to a gateway. If authorization is not "", every request has it as
// the Authorization header.
type client struct {
	t             *testing.T
	gateway       http.Handler
	authorization string
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (c *client) do(req *http.Request) answer {
	c.t.Helper()
	if c.authorization != "" {
		req.Header.Set("Authorization", c.authorization)
	}
	w := httptest.NewRecorder()
	c.gateway.ServeHTTP(w, req.WithContext(c.t.Context()))
	resp := w.Result()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

func (c *client) get(path string) answer {
	c.t.Helper()
	return c.do(httptest.NewRequest(http.MethodGet, "https://gateway.example"+path, nil))
}

// text returns the text of a page without its markup. Words are separated by single spaces,
// and addresses are not broken.
func (a answer) text() string {
	var out strings.Builder
	inTag := false
	for _, r := range strings.NewReplacer("<wbr>", "", `</span><span class="part">`, "").Replace(a.body) {
		switch {
		case r == '<':
			inTag = true
			out.WriteByte(' ')
		case r == '>':
			inTag = false
		case !inTag:
			out.WriteRune(r)
		}
	}
	return strings.ReplaceAll(strings.Join(strings.Fields(out.String()), " "), "/ ", "/")
}

func (a answer) has(text string) bool { return strings.Contains(a.text(), text) }

func (c *client) want(path string, status int, texts ...string) answer {
	c.t.Helper()
	a := c.get(path)
	if a.status != status {
		c.t.Errorf("%s: %d, want %d", path, a.status, status)
	}
	for _, text := range texts {
		if !strings.Contains(a.text(), text) {
			c.t.Errorf("%s: no %q in:\n%s", path, text, a.text())
		}
	}
	return a
}

func escaped(query string) string { return "/search?q=" + url.QueryEscape(query) }
