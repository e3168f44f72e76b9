package quirks_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/templates"
	"github.com/ocibridge/ocibridge/trust"
)

const host = "registry.acme.example"

var (
	widget   = provider.MustParseAddress(host + "/acme/widget")
	versions = []string{"1.0.0", "1.1.0", "1.10.0", "2.0.0", "2.1.0-beta.1"}
)

// bench consists of a registry with the settings of a profile, a user's client for this registry, a template,
// and an origin with releases to push.
type bench struct {
	t        *testing.T
	profile  quirks.Profile
	registry *quirks.Registry
	requests *recorder.Recorder
	server   *httptest.Server
	client   *auth.Client
	set      templates.Set
	origin   *origin.Registry
	releases map[string]*release.Release
	// publish makes the origin offer a new version, or an existing version with the current content.
	publish func(version string)
	content string // part of each published package; a test can change it
}

func newBench(t *testing.T, p quirks.Profile) *bench {
	testkit.LeaveToMake(t)
	p.PageSize = min(2, p.PageSize) // so that a few tags fill several pages
	b := &bench{t: t, profile: p, registry: quirks.For(t, p.Settings), releases: map[string]*release.Release{}}
	b.requests = recorder.New(b.registry)
	server := httptest.NewUnstartedServer(b.requests)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	b.server = server
	b.login(p.Access)
	tmpl, err := templates.Parse(p.Template, provider.Selector{Include: []provider.Pattern{provider.MustParsePattern(host + "/*/*")}})
	if err != nil {
		t.Fatal(err)
	}
	b.set = templates.Set{tmpl}
	b.offer()
	return b
}

// login makes the user's client use the login of the given Access from now on.
func (b *bench) login(a quirks.Access) { b.useLogins(a.DockerConfig(b.profile.Registry)) }

// useLogins makes the user's client use another login file, in docker's format, from now on.
func (b *bench) useLogins(config string) {
	b.client = auth.New(auth.Options{
		Login: login.Options{
			Environment: login.Environment{Home: "/home/u", GOOS: "linux", ReadFile: func(name string) ([]byte, error) {
				if name == "/home/u/.docker/config.json" {
					return []byte(config), nil
				}
				return nil, fs.ErrNotExist
			}},
		},
		Wire: wire.Options{
			Transport: &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
				DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, network, b.server.Listener.Addr().String())
				},
			},
			RetryDelay: time.Millisecond,
		},
	})
}

// offer starts an origin with all versions.
func (b *bench) offer() {
	signer := pgp.For(b.t, "Acme")
	o := testorigin.New(testorigin.Options{})
	b.publish = func(v string) {
		spec := release.Spec{Host: host, Namespace: "acme", Type: "widget", Version: v, Signer: signer}
		for _, os := range []string{"linux", "darwin"} {
			spec.Contents = append(spec.Contents, release.Content{OS: os, Arch: "amd64", Files: map[string][]byte{"terraform-provider-widget_v" + v: []byte(b.content + os)}})
		}
		b.releases[v] = release.For(b.t, spec)
		o.Add(b.releases[v])
	}
	for _, v := range versions {
		b.publish(v)
	}
	server := httptest.NewServer(o)
	b.t.Cleanup(server.Close)
	b.origin = testorigin.Client(host, server.URL)
}

func (b *bench) repository(ctx context.Context, a subject.Address) (repo.Destination, *remote.Repository, error) {
	addr, err := b.set.Repository(a.(provider.Address))
	if err != nil {
		return repo.Destination{}, nil, err
	}
	store, err := b.client.Repository(ctx, addr)
	return repo.Destination{Repository: addr, Store: registry.Repository{Repository: store}}, store, err
}

// pushOptions are the options of every push.
func (b *bench) pushOptions() pusher.Options {
	return pusher.Options{
		RetryPause: time.Millisecond,
		Destination: func(ctx context.Context, a subject.Address) (repo.Destination, error) {
			d, _, err := b.repository(ctx, a)
			return d, err
		},
	}
}

// push pushes one version, or only the given platforms of the version. Its error includes the hint that users
// see.
func (b *bench) push(version string, platforms ...provider.Platform) (*pusher.Result, error) {
	b.t.Helper()
	listing, err := b.origin.Versions(b.t.Context(), widget)
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := b.origin.Release(b.t.Context(), widget, listing, provider.MustParseVersion(version), platforms)
	if err != nil {
		b.t.Fatal(err)
	}
	result, err := pusher.New(b.pushOptions()).Push(b.t.Context(), r)
	if err != nil {
		return nil, b.explain(err)
	}
	return result, nil
}

// explain adds a hint to an error of the repository, as the commands do.
func (b *bench) explain(err error) error {
	addr, _ := b.set.Repository(widget)
	return b.client.Explain(err, addr)
}

// serve starts a gateway, and returns a function that sends a GET request to its mirror.
func (b *bench) serve() func(path string) (status int, body string) {
	b.t.Helper()
	return b.serveWith(catalog.Options{})
}

// serveWith is [bench.serve] with more options.
func (b *bench) serveWith(o catalog.Options) func(path string) (status int, body string) {
	b.t.Helper()
	o.Repository = func(ctx context.Context, a subject.Address) (catalog.Store, error) {
		_, repo, err := b.repository(ctx, a)
		return repo, err
	}
	known, err := catalog.New(o)
	if err != nil {
		b.t.Fatal(err)
	}
	server := httptest.NewServer(gateway.New(gateway.Options{Catalog: known}))
	b.t.Cleanup(server.Close)
	return func(path string) (int, string) {
		b.t.Helper()
		resp, err := server.Client().Get(server.URL + gateway.MirrorPath + path)
		if err != nil {
			b.t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			b.t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
}

// unlike are the profiles that differ most: one that does all that ocibridge asks for, one that deletes nothing, and one that
// accepts no state.
var unlike = []string{"harbor", "ghcr", "gitlab"}

// forEach runs a test with every profile, or only with the profiles that have the given names. It first creates the
// repositories that must exist. It leaves the tests with most of the profiles to "make test-all".
func forEach(t *testing.T, f func(t *testing.T, b *bench), names ...string) {
	for _, p := range quirks.Profiles() {
		if len(names) > 0 && !slices.Contains(names, p.Name) {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			if len(names) == 0 && !slices.Contains(unlike, p.Name) {
				testkit.LeaveToAll(t)
			}
			b := newBench(t, p)
			if p.Create != "" {
				b.registry.Create(p.Create)
			}
			f(t, b)
		})
	}
}

// TestPushListServePrune shows that push, list, serve and prune work with every registry.
func TestPushListServePrune(t *testing.T) {
	forEach(t, func(t *testing.T, b *bench) {
		b.checkPush()
		b.checkList()
		b.checkServe()
		b.checkPrune()
	})
}

// TestCooldown shows that in every registry that can store the state, a new version waits for an hour. For any
// other registry, the hint of the error suggests omitting the cooldown.
func TestCooldown(t *testing.T) {
	forEach(t, func(t *testing.T, b *bench) {
		only, err := provider.ParseConstraint("~> 1.0")
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
		sync := func() (plan *reconcile.Plan, out *reconcile.Outcome) {
			t.Helper()
			options := b.pushOptions()
			options.Now = func() time.Time { return now }
			syncer := reconcile.NewSyncer(reconcile.Options{Push: options})
			plan, err := syncer.Plan(t.Context(), []reconcile.Want{{Subject: widget, Source: b.origin, Versions: only, Cooldown: time.Hour}})
			if err == nil {
				out, err = syncer.Apply(t.Context(), plan, func(*pusher.Result) {})
			}
			if err != nil {
				t.Fatal(err)
			}
			return plan, out
		}
		_, out := sync()
		if b.profile.Allowed != nil {
			if err := failure(out); err == nil || !strings.Contains(hint.Of(err), "leave cooldown out") {
				t.Errorf("sync with a cooldown: %v (%s)", err, hint.Of(err))
			}
			return
		}
		if err := failure(out); err != nil || len(out.Results) != 3 {
			t.Fatalf("first sync: %v (%s), %d results", err, hint.Of(err), len(out.Results))
		}
		b.publish("1.11.0")
		plan, out := sync()
		if n, _ := plan.Count(pusher.ActionWait); n != 1 || failure(out) != nil {
			t.Errorf("%d versions wait, %v", n, failure(out))
		}
		now = now.Add(time.Hour)
		if _, out = sync(); failure(out) != nil || len(out.Results) != 1 {
			t.Errorf("an hour later: %v, %d results", failure(out), len(out.Results))
		}
	})
}

// checkPush pushes every version, and checks that a second push of a version uploads nothing.
func (b *bench) checkPush() {
	b.t.Helper()
	for _, v := range versions {
		r, err := b.push(v)
		if err != nil {
			b.t.Fatalf("push %s: %v (%s)", v, err, hint.Of(err))
		}
		want := trust.Signed
		if b.profile.Allowed != nil {
			want = artifact.NoEvidence // the registry refuses evidence
		}
		if r.Status != pusher.Pushed || r.Verdict != want {
			b.t.Errorf("push %s: %+v", v, r)
		}
		if refused := b.profile.Allowed != nil; refused != (len(r.Warnings) > 0) {
			b.t.Errorf("warnings %q", r.Warnings)
		}
	}
	b.requests.Reset()
	r, err := b.push(versions[0])
	if err != nil || r.Status != pusher.Unchanged {
		b.t.Errorf("second push: %+v, %v", r, err)
	}
	isUpload := func(r recorder.Request) bool { return !strings.HasSuffix(r.Path, "/token") }
	if n := b.requests.Count(recorder.Writes(), isUpload); n != 0 && b.profile.Allowed == nil {
		b.t.Errorf("%d writes: %+v", n, b.requests.Requests(recorder.Writes()))
	}
	// A push of one platform must also work.
	if _, err := b.push(versions[1], provider.MustParsePlatform("linux_amd64")); err != nil {
		b.t.Errorf("push one platform: %v", err)
	}
}

// checkList checks that there is a tag for each version and for no other version, and that lint finds no
// errors.
func (b *bench) checkList() {
	b.t.Helper()
	_, repo, err := b.repository(b.t.Context(), widget)
	if err != nil {
		b.t.Fatal(err)
	}
	tags, err := artifact.ListTags(b.t.Context(), repo)
	var got []string
	for _, tag := range tags {
		if v, ok := tag.Version(); ok {
			got = append(got, v.String())
		}
	}
	slices.Sort(got)
	if err != nil || !slices.Equal(got, versions) {
		b.t.Errorf("tags %v, %v; want %v", got, err, versions)
	}
	linted, err := artifact.Lint(b.t.Context(), repo, widget, provider.MustParseVersion(versions[0]))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range linted.Findings {
		if f.Severity == artifact.SeverityError {
			b.t.Errorf("lint: %+v", f)
		}
	}
}

// checkServe checks the gateway's responses for stored versions, for absent versions and for an absent
// provider.
func (b *bench) checkServe() {
	b.t.Helper()
	get := b.serve()
	status, body := get(host + "/acme/widget/index.json")
	var index struct{ Versions map[string]any }
	if err := json.Unmarshal([]byte(body), &index); err != nil || status != 200 || len(index.Versions) != len(versions) {
		b.t.Errorf("index.json: %d %s", status, body)
	}
	pkg := b.releases["1.10.0"].Package("linux", "amd64")
	if status, body = get(host + "/acme/widget/1.10.0.json"); status != 200 || !strings.Contains(body, "zh:"+pkg.SHA256) {
		b.t.Errorf("1.10.0.json: %d %s", status, body)
	}
	if status, body = get(host + "/acme/widget/1.10.0/linux_amd64/" + pkg.Filename); status != 200 || body != string(pkg.Data) {
		b.t.Errorf("archive: %d, %d bytes", status, len(body))
	}
	if status, _ = get(host + "/acme/widget/9.9.9.json"); status != 200 {
		b.t.Errorf("9.9.9.json: %d", status)
	}
	// If the registry denies access, the gateway cannot know that the repository is absent.
	want := http.StatusNotFound
	if b.profile.DeniedForAbsent {
		want = http.StatusBadGateway
	}
	if status, _ = get(host + "/acme/absent/index.json"); status != want {
		b.t.Errorf("index.json of a provider that is not there: %d, want %d", status, want)
	}
}

// checkPrune runs a sync with --prune that selects only versions 1.x. It checks that the sync removes all
// other versions, or no version if the registry cannot delete.
func (b *bench) checkPrune() {
	b.t.Helper()
	only, err := provider.ParseConstraint("~> 1.0")
	if err != nil {
		b.t.Fatal(err)
	}
	syncer := reconcile.NewSyncer(reconcile.Options{Push: b.pushOptions(), Prune: true})
	plan, err := syncer.Plan(b.t.Context(), []reconcile.Want{{Subject: widget, Source: b.origin, Versions: only}})
	if err != nil || len(plan.Failures) != 0 {
		b.t.Fatalf("plan of the prune: %v, %+v", err, plan)
	}
	out, err := syncer.Apply(b.t.Context(), plan, func(*pusher.Result) {})
	if err == nil {
		err = failure(out)
	}
	want := []string{"1.0.0", "1.1.0", "1.10.0"}
	if b.profile.NoDelete || b.profile.NoDeleteTag != nil && b.profile.NoDeleteTagged != nil {
		if err == nil || hint.Of(err) == "" {
			b.t.Errorf("pruned %+v, %v (%s)", out.Pruned, err, hint.Of(err))
		}
		want = versions // no version is partly removed
	} else if err != nil || len(out.Warnings) != 0 {
		b.t.Errorf("prune: %v (%s), %q", err, hint.Of(err), out.Warnings)
	}
	status, body := b.serve()(host + "/acme/widget/index.json")
	var index struct{ Versions map[string]any }
	if err := json.Unmarshal([]byte(body), &index); err != nil || status != 200 || len(index.Versions) != len(want) {
		b.t.Errorf("after prune: %d %s, want %v", status, body, want)
	}
	_, repo, err := b.repository(b.t.Context(), widget)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, v := range want {
		linted, err := artifact.Lint(b.t.Context(), repo, widget, provider.MustParseVersion(v))
		if err != nil {
			b.t.Fatal(err)
		}
		if slices.ContainsFunc(linted.Findings, func(f artifact.Finding) bool { return f.Severity == artifact.SeverityError }) {
			b.t.Errorf("%s after prune: %+v", v, linted.Findings)
		}
	}
}

// failure joins the failures of a sync into one error. It returns nil if there are none.
func failure(out *reconcile.Outcome) error {
	var all []error
	for _, f := range out.Failures {
		all = append(all, f.Err)
	}
	return errors.Join(all...)
}
