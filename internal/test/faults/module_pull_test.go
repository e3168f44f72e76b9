package faults_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/faultproxy"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// moduleSteps are the requests of a pull-through to the origin of a module whose location is an archive.
var moduleSteps = []step{
	{"versions", to("GET", "/versions")},
	{"location", to("GET", "/"+version+"/download")},
	{"archive", to("GET", "/vpc.tar.gz")},
}

// withModules adds the module of the tests to an origin: its registry, and the archive with its files.
func withModules(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	answer := func(path, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, body)
		})
	}
	const base = "/v1/modules/acme/vpc/aws/"
	answer(base+"versions", `{"modules":[{"versions":[{"version":"`+version+`"}]}]}`)
	answer(base+version+"/download", `{"location":"https://`+originHost+`/files/vpc.tar.gz"}`)
	mux.HandleFunc("/files/vpc.tar.gz", func(w http.ResponseWriter, r *http.Request) { w.Write(shared.module.archive) })
	return mux
}

// archiveOf returns a tar.gz with one file. Its zip has the mode of the file that a push of a folder stores.
func archiveOf(name string, content []byte) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	err := z.Close()
	return out.Bytes(), err
}

// pulledModules is the origin of modules of a gateway that pulls through, as in "ocibridge serve".
type pulledModules struct {
	rig    *rig
	source *origin.Registry
}

func (m *pulledModules) Versions(ctx context.Context, a module.Address) (*origin.ModuleListing, error) {
	return m.source.ModuleVersions(ctx, a)
}

func (m *pulledModules) Locate(ctx context.Context, a module.Address, v provider.Version) (moduleorigin.Location, error) {
	return (&moduleorigin.Origin{Registry: m.source}).Locate(ctx, a, v.String())
}

func (m *pulledModules) Store(ctx context.Context, f pull.ModuleFetch) (*pusher.Result, error) {
	store, err := m.rig.auth.Repository(ctx, m.rig.repo)
	if err != nil {
		return nil, err
	}
	from := &moduleorigin.Origin{Registry: m.source, Temp: f.Temp, Meter: f.Meter}
	result, err := transfer.PullModule(ctx, from, f.At, reconcile.ModuleVersion{
		Module: f.Module, Version: f.Version, Spellings: f.Spellings, Pusher: m.rig.pusher,
		Destination: repo.Destination{Repository: m.rig.repo, Store: registry.Repository{Repository: store}},
	})
	return result, m.rig.auth.Explain(err, m.rig.repo)
}

// servePullingModules starts a gateway that pulls modules through, with its files in dir.
func (r *rig) servePullingModules(dir string) {
	r.t.Helper()
	services := origin.NewDiscovery(r.transport)
	services.ForceHostServices(svchost.Hostname(originHost), map[string]any{"modules.v1": "https://" + originHost + "/v1/modules/"})
	puller, err := pull.New(pull.Options{
		Modules:   &pulledModules{r, origin.NewRegistry(origin.RegistryOptions{Transport: r.transport, Services: services})},
		Scope:     pull.Scope{Selector: subject.Selector{Include: []subject.Pattern{module.MustParsePattern(originHost + "/acme/*/*")}}},
		Directory: filepath.Join(dir, "origins"), Spool: filepath.Join(dir, "pull"), Log: slog.New(slog.NewTextHandler(r.log, nil)),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.serveWith(dir, puller, func() { puller.Close() })
}

// TestPullThroughModuleOrigin tests every fault at every step between a gateway that pulls through and the origin of a module that
// nobody pushed. Each response must be correct, or an error that is no 404. The gateway tags nothing incomplete. After the fault,
// it stores and serves the module.
func TestPullThroughModuleOrigin(t *testing.T) {
	pullsModules(t, originHost, moduleSteps, func(r *rig) *faultproxy.Server { return r.origin })
}

// TestPullThroughModuleRegistry tests every fault at every step between a gateway that pulls through and the registry in which it
// stores a module. The requirements are the same.
func TestPullThroughModuleRegistry(t *testing.T) {
	pullsModules(t, registryHost, registrySteps, func(r *rig) *faultproxy.Server { return r.registry })
}

func pullsModules(t *testing.T, host string, steps []step, at func(*rig) *faultproxy.Server) {
	eachFault(host, steps, func(f fault, s step, times int, mode string) {
		if !long() && mode == "once" {
			return
		}
		t.Run(f.name+"/"+s.name+"/"+mode, func(t *testing.T) {
			f.leave(t)
			t.Parallel()
			inRig(t, func(r *rig) { pulledModule(r, f, s, at(r), times) })
		})
	})
}

// pulledModule requests the documents of a module that only the origin has, during a fault and after it.
func pulledModule(r *rig, f fault, s step, at *faultproxy.Server, times int) {
	dir := r.t.TempDir()
	end := f.begin(r, at, s, times)
	r.servePullingModules(dir)
	for _, d := range moduleDocuments() {
		r.judgeModule(d, r.get(d.path))
	}
	time.Sleep(time.Minute)
	r.moduleTagged()
	end()
	time.Sleep(time.Minute)
	for _, d := range moduleDocuments() {
		if a := r.get(d.path); !r.judgeModule(d, a) {
			r.t.Errorf("after the fault: %s: %d, %v\n%s", d.path, a.status, a.err, r.log)
		}
	}
	if !r.moduleTagged() {
		r.t.Errorf("the version is not stored\n%s", r.log)
	}
	r.stopServing()
	if left := filesBelow(r.t, filepath.Join(dir, "pull"), ""); len(left) > 0 {
		r.t.Errorf("left over: %v", left)
	}
}

// judgeModule is like [rig.judgePulled], for a document of a module.
func (r *rig) judgeModule(d document, a answer) bool {
	r.t.Helper()
	limit, archive := clientsWait, strings.HasSuffix(d.path, ".zip")
	if archive {
		limit = 5 * time.Minute
	}
	if a.took > limit {
		r.t.Errorf("%s took %s", d.path, a.took)
	}
	zip, err := io.ReadAll(shared.module.open())
	if err != nil {
		r.t.Fatal(err)
	}
	switch {
	case a.status == http.StatusBadGateway, a.status == http.StatusServiceUnavailable, a.status == http.StatusGatewayTimeout:
		if a.retryAfter == "" {
			r.t.Errorf("%s: %d without Retry-After", d.path, a.status)
		}
		return false
	case archive && a.err != nil && len(a.body) < len(zip):
		return false // the response was aborted, so no client mistakes the response for complete
	case archive && a.status == http.StatusOK && bytes.Equal(a.body, zip):
		return true
	case strings.HasSuffix(d.path, "/versions") && a.status == http.StatusOK && string(a.body) == `{"modules":[{"versions":[{"version":"`+version+`"}]}]}`:
		return true
	case strings.HasSuffix(d.path, "/download") && a.status == http.StatusOK && strings.Contains(string(a.body), "/vpc-"+version+".zip?archive=zip"):
		return true
	}
	r.t.Errorf("%s: %d with %d bytes, %v: %.200s\n%s", d.path, a.status, len(a.body), a.err, a.body, r.log)
	return false
}
