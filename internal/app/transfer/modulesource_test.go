package transfer_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/origins/gitfiles"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/gitserver"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loopback"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// moduleBench is a module registry, the Git server to which it leads, and a repository.
type moduleBench struct {
	t         *testing.T
	git       *gitserver.Server
	at        string            // HOST:PORT
	locations map[string]string // by version; of the modules called/NAME/aws by NAME for 1.0.0, and by "NAME VERSION" for others
	registry  *origin.Registry
	transport *http.Transport // of registry
	dest      repo.Destination
	source    reconcile.ModuleSource
	archive   []byte // vpc.tar.gz
	etag      string // of the archive; "" if the server sends none
	sent      int    // bytes of the archive

	lock     sync.Mutex
	requests []string // the last parts of their paths
}

// counting counts the bytes of bodies.
type counting struct {
	http.ResponseWriter
	sent *int
}

func (c counting) Write(p []byte) (int, error) {
	*c.sent += len(p)
	return c.ResponseWriter.Write(p)
}

func newModuleBench(t *testing.T) *moduleBench {
	return newModuleBenchAt(t, gitserver.New(t, t.TempDir()))
}

func newModuleBenchAt(t *testing.T, git *gitserver.Server) *moduleBench {
	b := &moduleBench{t: t, git: git, locations: map[string]string{}}
	b.dest = repo.Destination{Repository: ociaddr.Repository{Registry: "registry.test", Name: "vpc"}, Store: registry.Repository{Repository: loopback.For(t).Repository("vpc")}}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/terraform.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"modules.v1":"/v1/modules/"}`)
	})
	mux.HandleFunc("/v1/modules/platform/vpc/aws/{version}/download", func(w http.ResponseWriter, r *http.Request) {
		location, ok := b.locations[r.PathValue("version")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if !strings.HasPrefix(location, "https:") {
			location = "git::https://HOST/git/" + location
		}
		w.Header().Set("X-Terraform-Get", strings.ReplaceAll(location, "HOST", b.at))
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("/v1/modules/called/{name}/aws/versions", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		listed := `{"version":"1.0.0"}`
		for key := range b.locations {
			if name, version, ok := strings.Cut(key, " "); ok && name == r.PathValue("name") {
				listed += fmt.Sprintf(`,{"version":%q}`, version)
			}
		}
		fmt.Fprintf(w, `{"modules":[{"versions":[%s]}]}`, listed)
	})
	mux.HandleFunc("/v1/modules/called/{name}/aws/{version}/download", func(w http.ResponseWriter, r *http.Request) {
		location, ok := b.locations[strings.TrimSuffix(r.PathValue("name")+" "+r.PathValue("version"), " 1.0.0")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("X-Terraform-Get", strings.ReplaceAll(location, "HOST", b.at))
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("/denied/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	mux.HandleFunc("/bad.tar.gz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "no archive") })
	mux.HandleFunc("/vpc.tar.gz", func(w http.ResponseWriter, r *http.Request) {
		if b.etag != "" {
			w.Header().Set("ETag", b.etag)
		}
		http.ServeContent(counting{w, &b.sent}, r, "", time.Time{}, bytes.NewReader(b.archive))
	})
	mux.Handle("/git/", http.StripPrefix("/git", b.git))
	ca := tlsca.For(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if last := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]; last != "terraform.json" {
			b.lock.Lock()
			b.requests = append(b.requests, last)
			b.lock.Unlock()
		}
		mux.ServeHTTP(w, r)
	}))
	var err error
	if server.TLS, err = ca.ServerConfig("127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	b.at = server.Listener.Addr().String()
	transport := ca.HTTPClient().Transport.(*http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	client := origin.NewRegistry(origin.RegistryOptions{Transport: transport})
	t.Cleanup(client.HTTP().CloseIdleConnections)
	b.registry, b.transport = client, transport
	c := &config.Config{Modules: []config.Module{{Address: b.module()}}}
	b.source = transfer.OpenWants(c, transfer.AllBlocks(c), client, t.TempDir()).Wants[0].Modules
	return b
}

func (b *moduleBench) module() module.Address {
	return module.MustParseAddress(b.at + "/platform/vpc/aws")
}

func (b *moduleBench) version(v string, spellings ...string) reconcile.ModuleVersion {
	return reconcile.ModuleVersion{Module: b.module(), Version: provider.MustParseVersion(v), Spellings: spellings, Pusher: pusher.New(pusher.Options{}), Destination: b.dest}
}

// push stores a version, and returns it.
func (b *moduleBench) push(v string) *artifact.Version {
	b.t.Helper()
	if _, err := b.source.Push(b.t.Context(), b.version(v)); err != nil {
		b.t.Fatal(err)
	}
	stored, err := artifact.ReadZip(b.t.Context(), b.dest.Store, b.module(), provider.MustParseVersion(v))
	if err != nil {
		b.t.Fatal(err)
	}
	return stored
}

// TestCheckOfStoredModules shows which requests the check of a stored version sends, and what it refuses.
func TestCheckOfStoredModules(t *testing.T) {
	b := newModuleBench(t)
	tree := gitserver.Tree{"a/main.tf": "# 1\n", "b/main.tf": "# b\n"}
	first := b.git.Commit(t, "vpc", tree)
	b.git.Git(t, "vpc", "tag", "v1.0.0", "main")
	b.git.Git(t, "vpc", "tag", "same", "main")
	tree["a/main.tf"] = "# 2\n"
	second := b.git.Commit(t, "vpc", tree)
	b.git.Git(t, "vpc", "tag", "other", "main")
	b.git.Commit(t, "copy", gitserver.Tree{"a/main.tf": "# 2\n", "b/main.tf": "# b\n"})
	b.git.Git(t, "vpc", "tag", "2.0.0", first)
	b.git.Git(t, "vpc", "tag", "v2.0.0", second)
	for name, tc := range map[string]struct {
		was, is   string
		spellings []string
		twin      string // the location of v1.0.0
		requests  string // after download
		err       error
		says      []string
	}{
		"same tag":              {was: "vpc//a?ref=v1.0.0", is: "vpc//a?ref=v1.0.0", requests: "refs"},
		"other tag":             {was: "vpc?ref=v1.0.0", is: "vpc?ref=same", requests: "refs"},
		"commit":                {was: "vpc?ref=" + first, is: "vpc?ref=" + first},
		"abbreviated commit":    {was: "vpc?ref=" + first[:10], is: "vpc?ref=" + first[:10]},
		"tag, now the commit":   {was: "vpc?ref=v1.0.0", is: "vpc?ref=" + first, requests: "refs"},
		"two forms":             {was: "vpc?ref=v1.0.0", is: "vpc?ref=v1.0.0", spellings: []string{"1.0.0", "v1.0.0"}, requests: "refs download"},
		"two forms that differ": {was: "vpc?ref=v1.0.0", is: "vpc?ref=v1.0.0", spellings: []string{"1.0.0", "v1.0.0"}, twin: "vpc?ref=other", requests: "refs download", err: moduleorigin.ErrTwins, says: []string{first, second}},
		"moved tag":             {was: "vpc?ref=v1.0.0", is: "vpc?ref=other", requests: "refs refs git-upload-pack", err: pusher.ErrMoved, says: []string{first, second}},
		"moved branch":          {was: "vpc?ref=v1.0.0", is: "vpc", requests: "refs refs git-upload-pack", err: pusher.ErrMoved, says: []string{first, second}},
		"other folder":          {was: "vpc//a?ref=v1.0.0", is: "vpc//b?ref=v1.0.0", requests: "refs refs git-upload-pack", err: pusher.ErrMoved, says: []string{"vpc//a?", "vpc//b?"}},
		"other repository":      {was: "vpc?ref=other", is: "copy", requests: "refs refs git-upload-pack", err: pusher.ErrMoved},
		"vanished tag":          {was: "vpc?ref=v1.0.0", is: "vpc?ref=gone", requests: "refs", err: gitfiles.ErrNoRef, says: []string{"gone"}},
		"vanished version":      {was: "vpc?ref=v1.0.0", err: origin.ErrVersionNotFound},
		"twin":                  {was: "vpc?ref=" + first, is: "vpc?ref=2.0.0", requests: "refs", err: moduleorigin.ErrTwins, says: []string{first, second}},
		"not stored":            {is: "vpc?ref=v1.0.0", requests: "refs"},
		"not stored, twin":      {is: "vpc?ref=v2.0.0", requests: "refs", err: moduleorigin.ErrTwins, says: []string{first, second}},
		"not stored, vanished":  {is: "vpc?ref=gone", requests: "refs", err: gitfiles.ErrNoRef},
	} {
		t.Run(name, func(t *testing.T) {
			b := newModuleBenchAt(t, b.git)
			var stored *artifact.Version
			if tc.was != "" {
				b.locations["1.0.0"] = tc.was
				stored = b.push("1.0.0")
			}
			delete(b.locations, "1.0.0")
			if tc.is != "" {
				b.locations["1.0.0"] = tc.is
			}
			if tc.twin != "" {
				b.locations["v1.0.0"] = tc.twin
			}
			b.requests = nil
			err := b.source.Check(t.Context(), b.version("1.0.0", tc.spellings...), stored)
			if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) || err != nil && hint.Of(err) == "" {
				t.Errorf("%v (%s), want %v", err, hint.Of(err), tc.err)
			}
			for _, want := range tc.says {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %s", err, want)
				}
			}
			if stored != nil && err != nil && !strings.Contains(strings.ToLower(hint.Of(err)), "the stored version stays") {
				t.Errorf("the hint %q does not say that the stored version stays", hint.Of(err))
			}
			if got := strings.TrimSpace(strings.TrimPrefix(strings.Join(b.requests, " "), "download")); got != tc.requests {
				t.Errorf("requests %s, want %s", got, tc.requests)
			}
		})
	}
}

// TestChecksReadReferencesOnce shows that the checks of all versions of a module read the references of a repository once.
func TestChecksReadReferencesOnce(t *testing.T) {
	b := newModuleBench(t)
	b.git.Commit(t, "vpc", gitserver.Tree{"main.tf": "# 1\n"})
	var checks sync.WaitGroup
	for _, v := range []string{"1.0.0", "1.1.0", "1.2.0", "1.3.0"} {
		b.git.Git(t, "vpc", "tag", "v"+v, "main")
		b.locations[v] = "vpc?ref=v" + v
	}
	for v := range b.locations {
		checks.Go(func() {
			if err := b.source.Check(t.Context(), b.version(v), nil); err != nil {
				t.Error(err)
			}
		})
	}
	checks.Wait()
	if n := strings.Count(strings.Join(b.requests, " "), "refs"); n != 1 {
		t.Errorf("%d requests for references: %v", n, b.requests)
	}
}

// TestChecksOfArchives shows when the check of a stored version fetches its archive again, and that a changed archive is refused.
func TestChecksOfArchives(t *testing.T) {
	b := newModuleBench(t)
	b.git.Commit(t, "vpc", gitserver.Tree{"main.tf": "# 1\n"})
	archive := func() []byte {
		return []byte(b.git.Git(t, "vpc", "archive", "--format=tar.gz", "main"))
	}
	b.locations["1.0.0"] = "https://HOST/vpc.tar.gz"
	b.archive, b.etag = archive(), `"1"`
	stored := b.push("1.0.0")
	b.git.Commit(t, "vpc", gitserver.Tree{"main.tf": "# 2\n"})
	first, second := b.archive, archive()
	for _, step := range []struct {
		name     string
		archive  []byte
		etag     string
		location string
		sent     bool
		err      error
	}{
		{"the ETag of the push", first, `"1"`, "", false, nil},
		{"again", first, `"1"`, "", false, nil},
		{"another ETag", first, `W/"2"`, "", true, nil},
		{"the other ETag again", first, `W/"2"`, "", false, nil},
		{"another archive", second, `"3"`, "", true, pusher.ErrConflict},
		{"the other archive again", second, `"3"`, "", true, pusher.ErrConflict},
		{"the first archive", first, `"1"`, "", true, nil},
		{"another location", first, `"1"`, "https://HOST/vpc.tar.gz?x=1", true, nil},
		{"no ETag", first, "", "", true, nil},
		{"no ETag, another archive", second, "", "", true, pusher.ErrConflict},
	} {
		b.archive, b.etag, b.locations["1.0.0"] = step.archive, step.etag, cmp.Or(step.location, "https://HOST/vpc.tar.gz")
		b.sent = 0
		if err := b.source.Check(t.Context(), b.version("1.0.0"), stored); !errors.Is(err, step.err) || (err == nil) != (step.err == nil) {
			t.Errorf("%s: %v, want %v", step.name, err, step.err)
		}
		if (b.sent > 0) != step.sent {
			t.Errorf("%s: the server sent %d bytes", step.name, b.sent)
		}
	}
}
