package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// state stores a state of a provider with the given summary in widget's repository.
func (b *bench) state(of provider.Address, s artifact.Summary) {
	b.t.Helper()
	blob, err := artifact.EncodeState(artifact.State{Owner: of, Summary: s})
	if err != nil {
		b.t.Fatal(err)
	}
	b.send(b.repo, artifact.Config())
	b.tag(b.repo, blob, string(ociaddr.StateTag))
	b.registry.Reset()
}

// rawState stores a state whose summary is the given text.
func (b *bench) rawState(text string) {
	b.t.Helper()
	b.send(b.repo, artifact.Config())
	config := artifact.Config().Descriptor
	data, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifact.TypeState, Config: config, Layers: []ocispec.Descriptor{config},
		Annotations: map[string]string{"io.github.ocibridge.provider": widget.Path(), "io.github.ocibridge.state": "{}", "io.github.ocibridge.versions": text},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.tag(b.repo, blobOf(ocispec.MediaTypeImageManifest, data), string(ociaddr.StateTag))
	b.registry.Reset()
}

// summarize returns the summary of stored versions.
func (b *bench) summarize(versions ...string) artifact.Summary {
	b.t.Helper()
	out := artifact.Summary{}
	for _, name := range versions {
		v := provider.MustParseVersion(name)
		found, err := artifact.Read(b.t.Context(), b.repo, widget, v)
		if err != nil {
			b.t.Fatal(err)
		}
		out[v], _ = found.Summary()
	}
	b.registry.Reset()
	return out
}

// listedIn returns the versions in an answer, each with its platforms.
func listedIn(t *testing.T, a answer) string {
	t.Helper()
	var body struct {
		Versions []struct {
			Version   string
			Platforms []struct{ OS string }
		}
	}
	if err := json.Unmarshal([]byte(a.body), &body); a.status != http.StatusOK || err != nil {
		return fmt.Sprint(a.status)
	}
	var out []string
	for _, v := range body.Versions {
		text := v.Version
		for _, p := range v.Platforms {
			text += "/" + p.OS
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// isManifest matches the requests for manifests.
func isManifest() recorder.Filter { return recorder.PathContains("/manifests/") }

// TestListCostsNoRequestPerVersion counts the requests of a cold list of versions. Beside the pages of tags, it needs at
// most 3, however many versions there are.
func TestListCostsNoRequestPerVersion(t *testing.T) {
	for _, n := range []int{300, 3_000} {
		for name, set := range map[string]func(r *required) []approval.Signer{
			"no checks":         func(r *required) []approval.Signer { r.options.Check = nil; return nil },
			"required evidence": func(*required) []approval.Signer { return nil },
			"required approvals": func(r *required) []approval.Signer {
				a := r.requireApprovals(widget.Pattern(), nil)
				r.catalog(catalog.Options{Approvals: a.checker})
				return []approval.Signer{a.signer()}
			},
		} {
			t.Run(fmt.Sprintf("%d versions, %s", n, name), func(t *testing.T) {
				r := newRequired(t)
				signers := set(r)
				s := artifact.Summary{}
				var tags []string
				for i := range n {
					v := provider.MustParseVersion(fmt.Sprintf("5.%d.0", i))
					s[v] = artifact.VersionSummary{Index: digest.FromString(v.String()), Platforms: []provider.Platform{darwin, linux}, Protocols: []string{"5.0"}, Verdict: trust.Signed, Signers: signers}
					tags = append(tags, v.String())
				}
				r.state(widget, s)
				pages := 0
				r.registry.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
					if !strings.HasSuffix(req.URL.Path, "/tags/list") {
						return false
					}
					pages++
					first := 0
					if last := req.URL.Query().Get("last"); last != "" {
						first = slices.Index(tags, last) + 1
					}
					end := min(first+1000, len(tags))
					if end < len(tags) {
						w.Header().Set("Link", fmt.Sprintf(`<%s?last=%s>; rel="next"`, req.URL.Path, tags[end-1]))
					}
					page, _ := json.Marshal(map[string]any{"tags": tags[first:end]})
					respond(200, "application/json", string(page))(w, req)
					return true
				})
				a := r.serve().get(hostsPrefix + "versions")
				if got := strings.Count(a.body, `"protocols":["5.0"],"platforms":[{"os":"darwin","arch":"arm64"},{"os":"linux","arch":"amd64"}]`); a.status != http.StatusOK || got != n {
					t.Fatalf("%d, %d versions with platforms, want %d", a.status, got, n)
				}
				if beside := r.registry.Count() - pages; beside > 3 || pages != (n+999)/1000 {
					t.Errorf("%d requests beside %d pages of tags", beside, pages)
				}
			})
		}
	}
}

// TestSummaries shows what a list says, and which versions it reads, for all kinds of states. The repository has the
// signed versions 1.0.0 and 1.1.0, and the unsigned version 0.9.0.
func TestSummaries(t *testing.T) {
	testkit.LeaveToMake(t)
	const right = "1.0.0/darwin/linux 1.1.0/darwin/linux"
	v := provider.MustParseVersion
	all := []string{"0.9.0", "1.0.0", "1.1.0"}
	for _, tc := range []struct {
		name  string
		state func(p *publisher)
		want  string
		reads int // of versions
		lines int // in the log
	}{
		{"a complete summary", func(p *publisher) { p.state(widget, p.summarize(all...)) }, right, 0, 0},
		{"no state: made without ocibridge", func(*publisher) {}, right, 3, 0},
		{"an older state", func(p *publisher) { p.state(widget, nil) }, right, 3, 0},
		{"one that lags", func(p *publisher) { p.state(widget, p.summarize("1.0.0")) }, right, 2, 0},
		{"a version that is gone", func(p *publisher) {
			s := p.summarize(all...)
			s[v("0.8.0")] = s[v("1.0.0")]
			p.state(widget, s)
		}, right, 0, 0},
		{"damaged", func(p *publisher) { p.rawState(`{"format":1,"groups":[{]}`) }, right, 3, 1},
		{"an older format", func(p *publisher) { p.rawState(`{}`) }, right, 3, 1},
		{"a newer format", func(p *publisher) { p.rawState(`{"format":2}`) }, right, 3, 1},
		{"oversize summary", func(p *publisher) { p.rawState(strings.Repeat(" ", 2<<20)) }, right, 3, 1},
		{"oversize state", func(p *publisher) {
			p.lie("/manifests/ocibridge-state", respond(200, ocispec.MediaTypeImageManifest, strings.Repeat(" ", artifact.MaxManifestBytes+1)))
		}, right, 3, 1},
		{"another provider's", func(p *publisher) {
			p.state(provider.MustParseAddress(host+"/acme/gadget"), p.summarize(all...))
		}, right, 3, 1},
		{"a version under the tag", func(p *publisher) {
			desc, err := p.repo.Resolve(p.t.Context(), "1.0.0")
			if err == nil {
				err = p.repo.Tag(p.t.Context(), desc, string(ociaddr.StateTag))
			}
			if err != nil {
				p.t.Fatal(err)
			}
			p.registry.Reset()
		}, right, 3, 1},
		{"a registry that hides it", func(p *publisher) { p.lie("/manifests/ocibridge-state", respond(412, "application/json", `{}`)) }, right, 3, 0},
		{"a registry that fails for it", func(p *publisher) { p.lie("/manifests/ocibridge-state", respond(500, "text/plain", "x")) }, right, 3, 0},
		{"a registry that hangs for it", func(p *publisher) { p.lie("/manifests/ocibridge-state", hang) }, right, 3, 0},
		{"a lie: nothing is signed", func(p *publisher) { p.state(widget, lie(p.summarize(all...), trust.ChecksumOnly, all...)) }, right, 3, 0},
		{"a lie: one version is not signed", func(p *publisher) {
			p.state(widget, lie(p.summarize(all...), artifact.NoEvidence, "1.1.0"))
		}, "1.0.0/darwin/linux", 0, 0},
		{"a lie: all are signed", func(p *publisher) { p.state(widget, lie(p.summarize(all...), trust.Signed, "0.9.0")) }, "0.9.0/darwin/linux " + right, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPublisher(newBench(t))
			p.pushUnsigned("0.9.0")
			p.push(widget, "1.0.0")
			p.push(widget, "1.1.0")
			tc.state(p)
			first := p.catalog(catalog.Options{TagTTL: -1})
			c := p.serve()
			if got := listedIn(t, c.get(hostsPrefix+"versions")); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			n := p.registry.Count(isManifest()) - p.registry.Count(isManifest(), recorder.PathSuffix(string(ociaddr.StateTag)))
			if n != tc.reads {
				t.Errorf("%d versions are read, want %d: %v", n, tc.reads, p.registry.Requests())
			}
			first.Close() // on a busy machine, it may still be reading the summary
			second := p.catalog(catalog.Options{TagTTL: time.Hour})
			c = p.serve()
			before := len(p.log.String())
			warnings := func() int { return strings.Count(p.log.String()[before:], "level=WARN") }
			for range 2 {
				c.get(hostsPrefix + "versions")
			}
			// A list does not wait longer than clients do. The catalog then reads the summary to its end in the background.
			for end := time.Now().Add(time.Minute); warnings() < tc.lines && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			second.Close()
			if got := warnings(); got != tc.lines {
				t.Errorf("%d warnings, want %d:\n%s", got, tc.lines, p.log.String())
			}
		})
	}
}

// lie changes the verdict of versions in a summary.
func lie(s artifact.Summary, verdict trust.Verdict, versions ...string) artifact.Summary {
	for _, name := range versions {
		v := provider.MustParseVersion(name)
		e := s[v]
		e.Verdict = verdict
		s[v] = e
	}
	return s
}

// TestSummaryDecidesNothing shows that a version is read and checked before it is served, whatever the summary says. Once
// it was read, the list says what the version says.
func TestSummaryDecidesNothing(t *testing.T) {
	p := newPublisher(newBench(t))
	p.pushUnsigned("0.9.0")
	p.push(widget, "1.0.0")
	p.push(widget, "1.1.0")
	s := lie(p.summarize("0.9.0", "1.0.0", "1.1.0"), trust.Signed, "0.9.0")
	e := s[provider.MustParseVersion("1.0.0")]
	e.Index, e.Platforms = digest.FromString("older"), []provider.Platform{provider.MustParsePlatform("plan9_amd64")}
	s[provider.MustParseVersion("1.0.0")] = e
	p.state(widget, s)
	c := p.serve()
	if got, want := listedIn(t, c.get(hostsPrefix+"versions")), "0.9.0/darwin/linux 1.0.0/plan9 1.1.0/darwin/linux"; got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	for path, status := range map[string]int{"0.9.0/download/linux/amd64": 404, "1.0.0/download/plan9/amd64": 404, "1.0.0/download/linux/amd64": 200} {
		if a := c.get(hostsPrefix + path); a.status != status {
			t.Errorf("%s: %d, want %d", path, a.status, status)
		}
	}
	if got, want := listedIn(t, c.get(hostsPrefix+"versions")), "1.0.0/darwin/linux 1.1.0/darwin/linux"; got != want {
		t.Errorf("got %q once the versions were read, want %q", got, want)
	}
}

// TestSummaryOfRefusedVersions shows that verify = "required" refuses a version that the summary calls signed, and that
// the list then says so. The list then reads 1.0.0, because a summary of one version saves no request.
func TestSummaryOfRefusedVersions(t *testing.T) {
	r := newRequired(t)
	r.put(r.honest(), "1.0.0")
	forged := r.honest()
	forged.signed.version = "1.1.0"
	forged.signed.packages[linux] = evil(t)
	r.put(forged, "1.1.0")
	s := artifact.Summary{}
	for _, v := range []string{"1.0.0", "1.1.0"} {
		s[provider.MustParseVersion(v)] = artifact.VersionSummary{Index: digest.FromString(v), Platforms: []provider.Platform{linux}, Verdict: trust.Signed}
	}
	r.state(widget, s)
	c := r.serve()
	if got, want := listedIn(t, c.get(hostsPrefix+"versions")), "1.0.0/linux 1.1.0/linux"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := r.counts(); got != (counts{}) {
		t.Errorf("the list checks versions: %+v", got)
	}
	if a := c.get(hostsPrefix + "1.1.0/download/linux/amd64"); a.status != http.StatusBadGateway {
		t.Errorf("a forged version: %d", a.status)
	}
	if got, want := listedIn(t, c.get(hostsPrefix+"versions")), "1.0.0/darwin/linux 1.1.0"; got != want {
		t.Errorf("got %q once it was refused, want %q", got, want)
	}
}

// TestSummaryIsRevalidated shows that a list whose tags and state have not changed costs two requests, and that a new
// summary is read.
func TestSummaryIsRevalidated(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	p.push(widget, "1.1.0")
	p.state(widget, p.summarize("1.0.0", "1.1.0"))
	p.catalog(catalog.Options{TagTTL: -1})
	c := p.serve()
	c.get(hostsPrefix + "versions")
	p.registry.Reset()
	c.get(hostsPrefix + "versions")
	if n := p.registry.Count(recorder.Method(http.MethodHead), recorder.PathSuffix(string(ociaddr.StateTag))); n != 1 || p.registry.Count() != 2 {
		t.Errorf("requests %v", p.registry.Requests())
	}
	p.push(widget, "1.2.0")
	p.state(widget, p.summarize("1.0.0", "1.1.0", "1.2.0"))
	if got, want := listedIn(t, c.get(hostsPrefix+"versions")), "1.0.0/darwin/linux 1.1.0/darwin/linux 1.2.0/darwin/linux"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if n := p.registry.Count(isManifest(), recorder.PathSuffix("/1.2.0")); n != 0 {
		t.Errorf("%d requests for the new version", n)
	}
}

// TestSummaryOutlivesTheRegistry shows that a list from a summary survives an outage of the registry and a restart.
func TestSummaryOutlivesTheRegistry(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	p.push(widget, "1.1.0")
	p.state(widget, p.summarize("1.0.0", "1.1.0"))
	dir := t.TempDir()
	first := p.catalog(catalog.Options{Directory: dir})
	const want = "1.0.0/darwin/linux 1.1.0/darwin/linux"
	if got := listedIn(t, p.serve().get(hostsPrefix+"versions")); got != want {
		t.Fatalf("got %q", got)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	p.stopRegistry()
	p.catalog(catalog.Options{Directory: dir})
	if got := listedIn(t, p.serve().get(hostsPrefix+"versions")); got != want {
		t.Errorf("after a restart without the registry: %q, want %q", got, want)
	}
}
