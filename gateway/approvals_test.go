package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/approve"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// approving is a bench whose gateway requires the signatures of a platform team.
type approving struct {
	*bench
	team    *approvals.Key
	checker *approve.Checker
}

// requireApprovals makes the gateway require signatures from the versions that one of the patterns matches. The registry is asked
// each time.
func (b *bench) requireApprovals(pattern subject.Pattern, change func(*approval.Requirement), more ...subject.Pattern) *approving {
	b.t.Helper()
	a := &approving{bench: b, team: approvals.NewKey(b.t, approvals.P256)}
	key, err := approval.ParsePublicKey(a.team.PEM())
	if err != nil {
		b.t.Fatal(err)
	}
	r := approval.Requirement{Name: "platform team", Key: key}
	if change != nil {
		change(&r)
	}
	policy, err := approval.NewPolicy(r)
	if err != nil {
		b.t.Fatal(err)
	}
	var rules approval.Rules
	for _, p := range append(more, pattern) {
		rules = append(rules, approval.Rule{Pattern: p, Policy: policy})
	}
	a.checker = approve.New(approve.Options{
		Rules: rules,
		Store: func(_ context.Context, of subject.Address) (ociaddr.Registry, artifact.ReferrerStore, error) {
			return "", b.repositoryOf(of), nil
		},
		Log: b.options.Log,
	})
	b.catalog(catalog.Options{Repository: b.options.Repository, Approvals: a.checker, TagTTL: -1})
	return a
}

// signer is the description of the platform team's signatures in a summary.
func (a *approving) signer() approval.Signer {
	a.t.Helper()
	key, err := approval.ParsePublicKey(a.team.PEM())
	if err != nil {
		a.t.Fatal(err)
	}
	return approval.Signer{Key: key.Fingerprint()}
}

// repositoryOf returns a client of the repository of a provider or a module.
func (b *bench) repositoryOf(of subject.Address) *remote.Repository {
	if m, ok := of.(module.Address); ok {
		return b.moduleRepository(m)
	}
	return b.repository(of)
}

// approve signs the manifest under a tag, and returns the signature's manifest.
func (a *approving) approve(of subject.Address, tag string) ocispec.Descriptor {
	a.t.Helper()
	repo := a.repositoryOf(of)
	desc, err := artifact.Resolve(context.Background(), repo, tag)
	if err != nil {
		a.t.Fatal(err)
	}
	return approvals.Attach(a.t, repo, desc, a.team.Attest(approvals.Statement(a.t, desc.Digest, approval.PredicateCosign)))
}

const notApproved = `not approved: "platform team"`

// TestApprovals shows that every protocol leaves out versions that are not approved, and refuses requests for them with the
// reason. A removed signature counts no longer.
func TestApprovals(t *testing.T) {
	p := newPublisher(newBench(t))
	one := p.push(widget, "1.0.0")
	two := p.push(widget, "2.0.0")
	p.options.Registry = p.registry.Truth
	a := p.bench.requireApprovals(provider.MustParsePattern(host+"/acme/*"), nil)
	signature := a.approve(widget, "1.0.0")
	c := p.serve()
	mirror, v2 := "/providers/"+widget.Path()+"/", "/v2/"+widget.Path()+"/"
	zipOf := func(version, dir string) string { return version + "/linux_amd64/" + dir }
	approvedOnly := func() {
		t.Helper()
		for path, want := range map[string]string{
			mirror + "index.json": `{"versions":{"1.0.0":{}}}`,
			mirror + "1.0.0.json": `200 "linux_amd64"`,
			mirror + "2.0.0.json": "451 " + notApproved,
			mirror + zipOf("1.0.0", one.Package("linux", "amd64").Filename): "200",
			mirror + zipOf("2.0.0", two.Package("linux", "amd64").Filename): "451 " + notApproved,
			hostsPrefix + "versions":                                             `200 "version":"1.0.0"`,
			hostsPrefix + "1.0.0/download/linux/amd64":                           "200",
			hostsPrefix + "2.0.0/download/linux/amd64":                           "451 " + notApproved,
			hostsPrefix + "2.0.0":                                                "451 " + notApproved,
			hostsPrefix + "1.0.0/checksums/" + one.SHA256SUMSName():              "200",
			hostsPrefix + "2.0.0/checksums/" + two.SHA256SUMSName():              "451 " + notApproved,
			hostsPrefix + zipOf("1.0.0", one.Package("linux", "amd64").Filename): "200",
			hostsPrefix + zipOf("2.0.0", two.Package("linux", "amd64").Filename): "451 " + notApproved,
			v2 + "manifests/1.0.0":                                               "200",
			v2 + "manifests/2.0.0":                                               `451 not approved: \"platform team\"`,
			v2 + "tags/list":                                                     `200 "tags":["1.0.0"`,
		} {
			got := c.get(path)
			status, text, _ := strings.Cut(want, " ")
			if status != "200" && status != "451" {
				status, text = "200", want
			}
			if fmt.Sprint(got.status) != status || !strings.Contains(got.body, text) || status == "200" && strings.Contains(got.body, `"2.0.0"`) && !strings.Contains(got.body, "warnings") {
				t.Errorf("%s: %d %s, want %s", path, got.status, got.body, want)
			}
		}
	}
	approvedOnly()
	if got, want := a.usageOf(c, "GET", v2+"manifests/1.0.0", "Accept", ""), "provider="+widget.String()+" version=1.0.0"; got != want {
		t.Errorf("the log names %q, want %q", got, want)
	}
	if got := c.get(hostsPrefix + "versions"); !strings.Contains(got.body, `"warnings":["2.0.0 is denied here: not approved: \"platform team\""]`) {
		t.Errorf("no warning: %s", got.body)
	}
	if log := a.log.String(); strings.Count(log, "version not approved") != 1 || !strings.Contains(log, "2.0.0") || !strings.Contains(log, "it has no signature") {
		t.Errorf("log:\n%s", log)
	}
	// A signature of another version, of a platform's manifest and by another key approve nothing.
	repo := a.repository(widget)
	first, err := artifact.Resolve(t.Context(), repo, "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	second, err := artifact.Resolve(t.Context(), repo, "2.0.0")
	if err != nil {
		t.Fatal(err)
	}
	approvals.Attach(t, repo, second, a.team.Attest(approvals.Statement(t, first.Digest, approval.PredicateCosign)))
	approvals.Attach(t, repo, second, approvals.NewKey(t, approvals.P256).Attest(approvals.Statement(t, second.Digest, approval.PredicateCosign)))
	approvals.Attach(t, repo, second, a.team.Attest(approvals.Statement(t, second.Digest, "https://slsa.dev/provenance/v1")))
	approvedOnly()
	if err := repo.Delete(t.Context(), signature); err != nil {
		t.Fatal(err)
	}
	a.approve(widget, "2.0.0")
	if got := c.get(mirror + "1.0.0.json"); got.status != 451 {
		t.Errorf("revoked: %+v", got)
	}
	if got := c.get(mirror + "index.json"); got.body != `{"versions":{"2.0.0":{}}}` {
		t.Errorf("index.json: %s", got.body)
	}
	if got := c.get(mirror + "2.0.0.json"); got.status != 200 {
		t.Errorf("approved since: %+v", got)
	}
}

// TestApprovedManifestWhileTheTagMoves shows that /v2/ answers a request for an approved tag with the approved manifest, although the
// tag moves between the check and the answer.
func TestApprovedManifestWhileTheTagMoves(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	a := b.requireApprovals(widget.Pattern(), nil)
	a.approve(widget, "1.0.0")
	approved, err := artifact.Resolve(t.Context(), b.repo, "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	b.options.Registry = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.publish(widget, "1.0.0", map[provider.Platform][]byte{darwin: zip(t, darwin)})
		b.registry.Truth.ServeHTTP(w, r)
	})
	c := b.serve()
	c.http.Transport = withHeader{"Accept", ocispec.MediaTypeImageIndex, c.http.Transport}
	if got := c.get("/v2/" + widget.Path() + "/manifests/1.0.0"); got.status != 200 || digest.FromString(got.body) != approved.Digest {
		t.Errorf("%+v, want %s", got, approved.Digest)
	}
	if got := c.get("/v2/" + widget.Path() + "/manifests/1.0.0"); got.status != 451 {
		t.Errorf("after the tag has moved: %+v", got)
	}
}

// TestListsOfVersionsWithoutNames shows that a list omits a signed version whose index or manifest names no version, although nobody has asked
// for the version before.
func TestListsOfVersionsWithoutNames(t *testing.T) {
	for name, of := range map[string]subject.Address{"provider": widget, "module": netModule} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t).modules()
			path := "/providers/" + widget.Path() + "/index.json"
			if of == subject.Address(widget) {
				b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
			} else {
				b.publishModule(netModule, "1.0.0", "1.0.0")
				path = modulePrefix + "versions"
			}
			a := b.requireApprovals(of.Pattern(), nil)
			repo := b.repositoryOf(of)
			desc, data, err := oras.FetchBytes(t.Context(), repo, "1.0.0", oras.DefaultFetchBytesOptions)
			if err != nil {
				t.Fatal(err)
			}
			var manifest map[string]any
			if err := json.Unmarshal(data, &manifest); err != nil {
				t.Fatal(err)
			}
			delete(manifest, "annotations")
			if data, err = json.Marshal(manifest); err != nil {
				t.Fatal(err)
			}
			if _, err := oras.TagBytes(t.Context(), repo, desc.MediaType, data, "2.0.0"); err != nil {
				t.Fatal(err)
			}
			a.approve(of, "1.0.0")
			a.approve(of, "2.0.0")
			c := b.serve()
			for range 2 {
				if got := c.get(path); got.status != 200 || !strings.Contains(got.body, `"1.0.0"`) || strings.Contains(got.body, `{"version":"2.0.0"`) || strings.Contains(got.body, `"2.0.0":`) {
					t.Errorf("%+v", got)
				}
			}
		})
	}
}

// TestApprovedDigestsElsewhere shows that an approved digest under the tag of another version, in the repository of another provider or
// module, or of the other kind is not approved there: lists omit it, and requests get 451, whichever comes first.
func TestApprovedDigestsElsewhere(t *testing.T) {
	gadget, other := provider.MustParseAddress(host+"/acme/gadget"), module.MustParseAddress(host+"/acme/other/aws")
	gadgetV2, otherV2 := "/v2/"+gadget.Path(), "/v2/modules/"+other.Path()
	denied := "451 " + notApproved
	rows := []struct{ path, want string }{
		{"/providers/" + widget.Path() + "/index.json", `200 {"versions":{"1.0.0":{}}}`},
		{hostsPrefix + "versions", `200 {"versions":[{"version":"1.0.0"`},
		{"/v2/" + widget.Path() + "/tags/list", `200 "tags":["1.0.0"`},
		{"/providers/" + gadget.Path() + "/index.json", `200 {"versions":{}}`},
		{modulePrefix + "versions", `200 {"modules":[{"versions":[{"version":"1.0.0"}]}]}`},
		{"/v2/modules/" + netModule.Path() + "/tags/list", `200 "tags":["1.0.0"`},
		{"/providers/" + widget.Path() + "/1.0.0.json", "200"},
		{"/providers/" + widget.Path() + "/1.5.0.json", denied},
		{"/providers/" + widget.Path() + "/1.6.0.json", denied},
		{archivePath("1.5.0", linux), denied},
		{hostsPrefix + "1.5.0/download/linux/amd64", denied},
		{"/v2/" + widget.Path() + "/manifests/1.5.0", "451"},
		{"/providers/" + gadget.Path() + "/1.0.0.json", denied},
		{gadgetV2 + "/manifests/1.0.0", "451"},
		{modulePrefix + "1.0.0/download", "200"},
		{modulePrefix + "1.5.0/download", denied},
		{modulePrefix + "1.6.0/download", denied},
		{modulePrefix + "1.5.0/net-1.5.0.zip", denied},
		{"/hosts/" + host + "/v1/modules/acme/other/aws/1.0.0/download", denied},
		{otherV2 + "/manifests/1.0.0", "451"},
	}
	for name, order := range map[string]func([]struct{ path, want string }){
		"lists first": func([]struct{ path, want string }) {}, "versions first": slices.Reverse[[]struct{ path, want string }],
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(newBench(t).modules())
			b := p.bench
			p.push(widget, "1.0.0")
			b.publishModule(netModule, "1.0.0", "1.0.0")
			b.options.Registry = b.registry.Truth
			a := b.requireApprovals(provider.MustParsePattern(host+"/*/*"), nil, module.MustParsePattern(host+"/*/*/*"))
			a.approve(widget, "1.0.0")
			a.approve(netModule, "1.0.0")
			copied := func(from, to subject.Address, tag string) {
				t.Helper()
				if _, err := oras.ExtendedCopy(t.Context(), b.repositoryOf(from), "1.0.0", b.repositoryOf(to), tag, oras.DefaultExtendedCopyOptions); err != nil {
					t.Fatal(err)
				}
			}
			copied(widget, widget, "1.5.0")
			copied(widget, gadget, "1.0.0")
			copied(netModule, netModule, "1.5.0")
			copied(netModule, other, "1.0.0")
			copied(netModule, widget, "1.6.0")
			copied(widget, netModule, "1.6.0")
			c := b.serve()
			c.http.Transport = withHeader{"Accept", ocispec.MediaTypeImageManifest + "," + ocispec.MediaTypeImageIndex, c.http.Transport}
			rows := slices.Clone(rows)
			order(rows)
			for range 2 {
				for _, row := range rows {
					status, text, _ := strings.Cut(row.want, " ")
					if got := c.get(row.path); fmt.Sprint(got.status) != status || !strings.Contains(got.body, text) || status == "200" && strings.Contains(got.body, `"1.5.0"`) {
						t.Errorf("%s: %d %s, want %s", row.path, got.status, got.body, row.want)
					}
				}
			}
		})
	}
}

// TestNothingApproved shows that clients get the reason if no version is approved, and not the answer for an absent provider.
func TestNothingApproved(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	p.bench.requireApprovals(widget.Pattern(), nil)
	c := p.serve()
	if a := c.get(hostsPrefix + "versions"); a.status != 200 || !strings.Contains(a.body, `"version":"1.0.0"`) {
		t.Errorf("registry protocol: %+v", a)
	}
	if a := c.get("/providers/" + widget.Path() + "/index.json"); a.status != 200 || a.body != `{"versions":{}}` {
		t.Errorf("index.json: %+v", a)
	}
}

// TestApprovalsOfModules shows the same for modules, in any spelling of their addresses. Clients are not redirected to an origin,
// which would serve versions that are not approved.
func TestApprovalsOfModules(t *testing.T) {
	b := newBench(t).modules()
	b.publishModule(netModule, "1.0.0", "1.0.0")
	b.publishModule(netModule, "1.1.0", "v1.1.0")
	upper := module.MustParseAddress(host + "/ACME/net/aws")
	b.publishModule(upper, "1.0.0", "1.0.0")
	b.options.ModuleOrigin = func(context.Context, module.Address) (*url.URL, error) {
		return url.Parse("https://origin.example/v1/modules/")
	}
	b.options.Registry = b.registry.Truth
	a := b.requireApprovals(module.MustParsePattern(host+"/Acme/*/*"), nil)
	a.approve(netModule, "1.0.0")
	c := b.serve()
	c.http.Transport = withHeader{"Accept", ocispec.MediaTypeImageManifest, c.http.Transport}
	upperPrefix := "/hosts/" + host + "/v1/modules/ACME/net/aws/"
	v2 := "/v2/modules/" + netModule.Path()
	for path, want := range map[string]string{
		modulePrefix + "versions":                                 `200 {"modules":[{"versions":[{"version":"1.0.0"}]}]}`,
		modulePrefix + "1.0.0/download":                           "200",
		modulePrefix + "1.0.0/net-1.0.0.zip":                      "200",
		modulePrefix + "1.1.0/download":                           "451 " + notApproved,
		modulePrefix + "1.1.0/net-1.1.0.zip":                      "451 " + notApproved,
		modulePrefix + "9.9.9/download":                           "451 " + notApproved,
		upperPrefix + "1.0.0/download":                            "451 " + notApproved,
		"/hosts/" + host + "/v1/modules/acme/absent/aws/versions": "451 " + notApproved,
		v2 + "/manifests/1.0.0":                                   "200",
		v2 + "/manifests/v1.0.0":                                  "200",
		v2 + "/manifests/v1.1.0":                                  "451",
		v2 + "/tags/list":                                         `200 "tags":["1.0.0"`,
	} {
		status, text, _ := strings.Cut(want, " ")
		if got := c.get(path); fmt.Sprint(got.status) != status || !strings.Contains(got.body, text) {
			t.Errorf("%s: %+v, want %s", path, got, want)
		}
	}
}

// TestSignaturesCannotBeRead shows that clients get 502 or 503, and never 404 or 451, if the registry does not answer for a
// version's signatures, and that lists keep the version.
func TestSignaturesCannotBeRead(t *testing.T) {
	for name, status := range map[string]int{"429": 429, "503": 503, "500": 500, "403": 403} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(newBench(t))
			p.push(widget, "1.0.0")
			p.options.Registry = p.registry.Truth
			a := p.bench.requireApprovals(widget.Pattern(), nil)
			a.approve(widget, "1.0.0")
			index, err := artifact.Resolve(t.Context(), a.repo, "1.0.0")
			if err != nil {
				t.Fatal(err)
			}
			a.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, "/referrers/") && !strings.Contains(r.URL.Path, string(ociaddr.ReferrersTag(index.Digest))) {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				fmt.Fprint(w, `{"errors":[{"code":"UNKNOWN","message":"no"}]}`)
				return true
			})
			c := p.serve()
			for _, path := range []string{"/providers/" + widget.Path() + "/1.0.0.json", hostsPrefix + "1.0.0/download/linux/amd64", "/v2/" + widget.Path() + "/manifests/1.0.0"} {
				if got := c.get(path); got.status != 502 && got.status != 503 {
					t.Errorf("%s: %+v", path, got)
				}
			}
			if got := c.get("/providers/" + widget.Path() + "/index.json"); got.body != `{"versions":{"1.0.0":{}}}` {
				t.Errorf("index.json: %+v", got)
			}
			if got := c.get(hostsPrefix + "versions"); got.status != 200 || !strings.Contains(got.body, `"1.0.0"`) {
				t.Errorf("versions: %+v", got)
			}
		})
	}
}

// TestApprovalsInTheSummary shows that a list of versions whose signers are in the summary costs no look-up for each version.
func TestApprovalsInTheSummary(t *testing.T) {
	p := newPublisher(newBench(t))
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("1.%d.0", i))
		p.push(widget, names[i])
	}
	a := p.bench.requireApprovals(widget.Pattern(), nil)
	p.bench.catalog(catalog.Options{Repository: p.options.Repository, Approvals: a.checker})
	s := a.summarize(names...)
	for v, e := range s {
		e.Signers = []approval.Signer{a.signer()}
		s[v] = e
	}
	a.state(widget, s)
	c := p.serve()
	var list struct{ Versions map[string]struct{} }
	got := c.get("/providers/" + widget.Path() + "/index.json")
	if err := json.Unmarshal([]byte(got.body), &list); err != nil || len(list.Versions) != 40 {
		t.Errorf("%+v, %v", got, err)
	}
	if n := a.registry.Count(); n > 4 { // the tags, the state and its end
		t.Errorf("%d requests: %v", n, a.registry.Requests())
	}
	// The summary decides nothing.
	if got := c.get("/providers/" + widget.Path() + "/1.0.0.json"); got.status != 451 {
		t.Errorf("a version that only the summary calls signed: %+v", got)
	}
}

// TestPulledModulesOfOthers shows that the gateway's own signature vouches only for what its origin stores. A manifest that somebody
// else has stored under an announced version's tag is served only if it is signed, and not if a rule denies its digest.
func TestPulledModulesOfOthers(t *testing.T) {
	team := approvals.NewKey(t, approvals.P256)
	key, err := approval.ParsePublicKey(team.PEM())
	if err != nil {
		t.Fatal(err)
	}
	policy, err := approval.NewPolicy(approval.Requirement{Name: "platform team", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		signed, denied, meanwhile bool
		says                      string
	}{
		"stored since the last answer":                    {says: notApproved},
		"stored and signed since the last answer":         {signed: true},
		"stored, signed and denied since the last answer": {signed: true, denied: true, says: "it opens port 22"},
		"stored meanwhile":                                {meanwhile: true, says: notApproved},
		"stored and signed meanwhile":                     {meanwhile: true, signed: true},
		"stored, signed and denied meanwhile":             {meanwhile: true, signed: true, denied: true, says: "it opens port 22"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t).modules()
			b.publishModule(netModule, "1.0.0", "other")
			manifest, err := artifact.Resolve(t.Context(), b.moduleRepository(netModule), "other")
			if err != nil {
				t.Fatal(err)
			}
			o := &moduleOrigin{b: b}
			options := catalog.Options{Repository: b.options.Repository, Origin: o, TagTTL: time.Hour, Approvals: approve.New(approve.Options{
				Rules: approval.Rules{{Pattern: netModule.Pattern(), Policy: policy}}, Signer: key,
				Store: func(_ context.Context, of subject.Address) (ociaddr.Registry, artifact.ReferrerStore, error) {
					return "", b.repositoryOf(of), nil
				},
			})}
			if tc.denied {
				options.Deny = []catalog.Deny{{Pattern: netModule.Pattern(), Digest: manifest.Digest, Reason: "it opens port 22"}}
			}
			b.catalog(options)
			c := b.serve()
			if got := c.get(moduleDownload); got.status != http.StatusOK && got.status != http.StatusNoContent {
				t.Fatalf("announced: %+v", got)
			}
			store := func() {
				b.publishModule(netModule, "1.0.0", "1.0.0")
				if tc.signed {
					approvals.Attach(t, b.moduleRepository(netModule), manifest, team.Attest(approvals.Statement(t, manifest.Digest, approval.PredicateCosign)))
				}
			}
			if tc.meanwhile {
				o.before, o.storeErr = store, errors.New("another writer has stored it")
			} else {
				store()
			}
			got := c.get(moduleArchive)
			switch {
			case tc.says == "" && got.status != http.StatusOK:
				t.Errorf("%+v", got)
			case tc.says != "" && (got.status != http.StatusUnavailableForLegalReasons || !strings.Contains(got.body, tc.says)):
				t.Errorf("%+v, want %s", got, tc.says)
			}
		})
	}
}

// TestPushedAfterItWasAbsent shows that /v2/ does not serve a version that is not approved because an older answer says that the
// version is absent.
func TestPushedAfterItWasAbsent(t *testing.T) {
	for name, of := range map[string]subject.Address{"provider": widget, "module": netModule} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t).modules()
			b.options.Registry = b.registry.Truth
			a := b.requireApprovals(of.Pattern(), nil)
			b.catalog(catalog.Options{Approvals: a.checker, TagTTL: time.Hour})
			c := b.serve()
			path, mediaType, push := "/v2/"+widget.Path()+"/manifests/", ocispec.MediaTypeImageIndex, func(version string) {
				b.publish(widget, version, map[provider.Platform][]byte{linux: zip(t, linux)})
			}
			if of == subject.Address(netModule) {
				path, mediaType, push = "/v2/modules/"+netModule.Path()+"/manifests/", ocispec.MediaTypeImageManifest, func(version string) {
					b.publishModule(netModule, version, version)
				}
			}
			c.http.Transport = withHeader{"Accept", mediaType, c.http.Transport}
			push("1.0.0")
			a.approve(of, "1.0.0")
			for version, want := range map[string]int{"1.0.0": 200, "2.0.0": 404, "3.0.0": 404} {
				if got := c.get(path + version); got.status != want {
					t.Errorf("%s before the push: %+v", version, got)
				}
			}
			push("2.0.0")
			push("3.0.0")
			a.approve(of, "3.0.0")
			for version, want := range map[string]int{"1.0.0": 200, "2.0.0": 451, "3.0.0": 200} {
				if got := c.get(path + version); got.status != want {
					t.Errorf("%s after the push: %+v", version, got)
				}
			}
		})
	}
}
