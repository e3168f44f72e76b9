package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	storedkit "github.com/ocibridge/ocibridge/internal/test/testkit/stored"
	"github.com/ocibridge/ocibridge/ociaddr"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// tofuWidget is a provider of the registry from which OpenTofu installs providers without a key.
var tofuWidget = provider.MustParseAddress("registry.opentofu.org/acme/widget")

// pushKeyless makes the registry of a provider's host offer a release without a key, and pushes the release. Change
// changes the release before it is pushed, and may be nil.
func (p *publisher) pushKeyless(a provider.Address, version string, change func(*realorigin.Release)) *release.Release {
	p.t.Helper()
	r := release.For(p.t, p.spec(version))
	r.Keys = nil
	p.origin.Add(r)
	got := origin.Fetch(p.t, origin.Client(a.Hostname(), p.server.URL), a, version)
	if change != nil {
		change(got)
	}
	p.pushRelease(got, trust.Policy{AllowUnsigned: true})
	return r
}

// registryPath is the path of a provider in the registry protocol.
func registryPath(a provider.Address) string {
	return "/hosts/" + a.Hostname() + "/v1/providers/" + a.Namespace() + "/" + a.Type() + "/"
}

// TestKeyless shows which versions without a key the registry protocol serves: only those that OpenTofu installs, and
// only if no signed version of the provider is stored.
func TestKeyless(t *testing.T) {
	terraform := provider.MustParseAddress("registry.terraform.io/acme/widget")
	denied, err := provider.ParseConstraint("0.9.0")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		provider provider.Address // zero for tofuWidget
		change   func(*realorigin.Release)
		prepare  func(*publisher)
		listed   string // the listed versions, or a status
		status   int    // of the download document
	}{
		"OpenTofu's registry": {listed: "1.0.0/darwin/linux", status: 200},
		"without a signature": {change: func(r *realorigin.Release) { r.Claims.Signature = nil }, listed: "1.0.0/darwin/linux", status: 200},
		"another host":        {provider: widget, listed: "404", status: 404},
		"Terraform's host":    {provider: terraform, listed: "404", status: 404},
		"from a folder":       {change: func(r *realorigin.Release) { r.Origin = "release folder" }, listed: "404", status: 404},
		"evidence required":   {prepare: func(p *publisher) { p.options.Keyless = false }, listed: "404", status: 404},
		"its record says signed": {prepare: func(p *publisher) {
			storedkit.ReplaceEvidence(p.t, p.repository(tofuWidget), tofuWidget.String(), "1.0.0", func(e *artifact.Evidence) { e.Record.Verdict = trust.Signed })
		}, listed: "404", status: 404},
		"a signed version is stored": {prepare: func(p *publisher) { p.push(tofuWidget, "0.9.0") }, listed: "0.9.0/darwin/linux", status: 404},
		"a signed version is denied": {prepare: func(p *publisher) {
			p.push(tofuWidget, "0.9.0")
			p.bench.catalog(catalog.Options{Deny: []catalog.Deny{{Pattern: provider.MustParsePattern("*/*/*"), Versions: denied}}})
		}, listed: "404", status: 404},
		"a summary calls the signed version unsigned": {prepare: func(p *publisher) {
			p.push(tofuWidget, "0.9.0")
			p.misstate(tofuWidget, "0.9.0", "1.0.0")
		}, listed: "0.9.0/darwin/linux", status: 404},
		"a signed version cannot be read": {prepare: func(p *publisher) {
			p.push(tofuWidget, "0.9.0")
			p.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "/manifests/0.9.0") {
					w.WriteHeader(http.StatusForbidden)
					return true
				}
				return false
			})
		}, listed: "502", status: 502},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(newBench(t))
			p.options.Keyless = true
			a := tofuWidget
			if !tc.provider.IsZero() {
				a = tc.provider
			}
			p.pushKeyless(a, "1.0.0", tc.change)
			if tc.prepare != nil {
				tc.prepare(p)
			}
			c := p.serve()
			if got := listedIn(t, c.get(registryPath(a)+"versions")); got != tc.listed {
				t.Errorf("listed: %s, want %s", got, tc.listed)
			}
			for _, path := range []string{"1.0.0/download/linux/amd64", "1.0.0", "1.0.0/checksums/terraform-provider-widget_1.0.0_SHA256SUMS", "1.0.0/checksums/terraform-provider-widget_1.0.0_SHA256SUMS.sig"} {
				if got := p.serve().get(registryPath(a) + path); got.status != tc.status {
					t.Errorf("%s: %d, want %d", path, got.status, tc.status)
				}
			}
		})
	}
}

// misstate stores a summary that calls versions unsigned.
func (p *publisher) misstate(a provider.Address, versions ...string) {
	p.t.Helper()
	s := artifact.Summary{}
	for _, v := range versions {
		s[provider.MustParseVersion(v)] = artifact.VersionSummary{Index: digest.FromString(v), Platforms: []provider.Platform{linux}, Verdict: trust.ChecksumOnly}
	}
	blob, err := artifact.EncodeState(artifact.State{Owner: a, Summary: s})
	if err != nil {
		p.t.Fatal(err)
	}
	p.tag(p.repository(a), blob, string(ociaddr.StateTag))
	p.registry.Reset()
}

// TestKeylessDocuments shows that a client gets the documents of a version without a key as its origin sent them.
func TestKeylessDocuments(t *testing.T) {
	p := newPublisher(newBench(t))
	p.options.Keyless = true
	r := p.pushKeyless(tofuWidget, "1.0.0", nil)
	c := p.serve()
	body, ok := decode(t, c.get(registryPath(tofuWidget)+"1.0.0/download/linux/amd64").body).(map[string]any)
	if !ok {
		t.Fatal("no document")
	}
	if got := fmt.Sprint(body["signing_keys"]); got != "map[gpg_public_keys:[]]" {
		t.Errorf("signing_keys: %s", got)
	}
	for member, want := range map[string][]byte{"shasums_url": r.SHA256SUMS, "shasums_signature_url": r.Signature, "download_url": r.Package("linux", "amd64").Data} {
		u := parseURL(t, c.s.URL+registryPath(tofuWidget)+"1.0.0/download/linux/amd64").ResolveReference(parseURL(t, body[member].(string)))
		if got := c.get(u.Path); got.status != http.StatusOK || got.body != string(want) {
			t.Errorf("%s: %d, %d bytes, want %d", member, got.status, len(got.body), len(want))
		}
	}
}
