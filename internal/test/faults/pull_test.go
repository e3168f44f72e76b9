package faults_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/test/testkit/faultproxy"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// maxStore is the maximum time from the end of a fault until a version is stored. It is this long because a
// gateway retries at growing intervals.
const maxStore = 30 * time.Minute

// refusedFor is the time after which a gateway tries again to store a refused version. The gateway tries again
// when a client requests a package of this version and the package is not in the cache.
const refusedFor = 11 * time.Minute

// rediscoverAfter is how long the discovery of a host's services is cached.
const rediscoverAfter = 10 * time.Minute

// renewed is an origin that discovers the services of its host again after a while. The origin of "ocibridge
// serve" does the same.
type renewed struct {
	*origin.Registry
	rig   *rig
	mu    sync.Mutex
	since time.Time
}

func (o *renewed) current() *origin.Registry {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.since) >= rediscoverAfter {
		o.rig.newSource()
		o.Registry, o.since = o.rig.source, time.Now()
	}
	return o.Registry
}

// Versions implements [origin.Source].
func (o *renewed) Versions(ctx context.Context, a provider.Address) (*origin.Listing, error) {
	return o.current().Versions(ctx, a)
}

// servePulling starts a gateway that pulls through, with its files in dir.
func (r *rig) servePulling(dir string) {
	r.t.Helper()
	r.servePullingWithin(dir, pull.Limits{})
}

// servePullingWithin is like [rig.servePulling], but with the given limits.
func (r *rig) servePullingWithin(dir string, limits pull.Limits) {
	r.t.Helper()
	puller, err := pull.New(pull.Options{
		Origin: &renewed{Registry: r.source, rig: r, since: time.Now()},
		Push: func(ctx context.Context, rel *origin.Release) (*pusher.Result, error) {
			result, err := r.pusher.Push(ctx, rel)
			return result, r.auth.Explain(err, r.repo)
		},
		Scope:     pull.Scope{Selector: subject.Selector{Include: []subject.Pattern{provider.MustParsePattern(originHost + "/acme/*")}}},
		Limits:    limits,
		Directory: filepath.Join(dir, "origins"), Spool: filepath.Join(dir, "pull"), Log: slog.New(slog.NewTextHandler(r.log, nil)),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.serveWith(dir, puller, func() { puller.Close() })
}

// TestPullThroughOrigin tests every fault at every step between a gateway that pulls through and the origin of
// an unpushed version. Each response must be correct, be an error, or break off. The gateway tags nothing
// incomplete. After the fault, it serves and stores everything.
func TestPullThroughOrigin(t *testing.T) {
	pullsThrough(t, originHost, originSteps, func(r *rig) *faultproxy.Server { return r.origin })
}

// TestPullThroughRegistry tests every fault at every step between a gateway that pulls through and the registry
// in which the gateway stores versions. The requirements are the same.
func TestPullThroughRegistry(t *testing.T) {
	pullsThrough(t, registryHost, registrySteps, func(r *rig) *faultproxy.Server { return r.registry })
}

func pullsThrough(t *testing.T, host string, steps []step, at func(*rig) *faultproxy.Server) {
	eachFault(host, steps, func(f fault, s step, times int, mode string) {
		for i, d := range documents(shared.release) {
			if i != 1 && i != 4 || !long() && (i == 1 || mode == "once") {
				continue // the long run tests a description and an archive, the short run only an archive
			}
			t.Run(f.name+"/"+s.name+"/"+mode+"/"+d.path[strings.LastIndex(d.path, "/")+1:], func(t *testing.T) {
				f.leave(t)
				t.Parallel()
				inRig(t, func(r *rig) { pulledThrough(r, f, s, at(r), times, d) })
			})
		}
	})
}

// eachFault calls a function for each fault that this run tests between a gateway that pulls through and a host: at each step,
// for as long as the test lasts (times is 0) and once.
func eachFault(host string, steps []step, test func(f fault, s step, times int, mode string)) {
	for _, f := range faultsFor(host) {
		if strings.HasPrefix(f.name, "token") && host == originHost {
			continue // an origin has no tokens
		}
		for _, s := range steps {
			if f.name == "reset in the request" && s.name != "upload" {
				continue // requests of this step have no body
			}
			if !long() && host == registryHost && !slices.Contains([]string{"read the tag", "list tags", "upload", "tag"}, s.name) {
				continue
			}
			for times, mode := range []string{"stays", "once"} {
				test(f, s, times, mode)
			}
		}
	}
}

// pulledThrough requests a document of a version that only the origin has, during a fault and after it.
func pulledThrough(r *rig, f fault, s step, at *faultproxy.Server, times int, first document) {
	dir := r.t.TempDir()
	end := f.begin(r, at, s, times)
	r.servePulling(dir)
	r.judgePulled(first, r.get(first.path))
	for _, d := range documents(shared.release)[:2] { // clients request both documents
		r.judgePulled(d, r.get(d.path))
	}
	time.Sleep(time.Minute)
	r.tagged()
	end()
	if s.name == "discovery" && f.name == "altered byte" {
		time.Sleep(rediscoverAfter) // the altered document might name other services
	}
	time.Sleep(time.Minute)
	for _, d := range documents(shared.release) {
		if a := r.get(d.path); strings.HasPrefix(d.path, "/providers/") && !r.judgePulled(d, a) || a.status != http.StatusOK {
			r.t.Errorf("after the fault: %s: %d, %v\n%s", d.path, a.status, a.err, r.log)
		}
	}
	r.wantStored()
	for _, secret := range []string{"secret", "_state="} {
		if strings.Contains(r.log.String(), secret) {
			r.t.Errorf("the log has %q: %s", secret, r.log)
		}
	}
	r.stopServing()
	if left := filesBelow(r.t, filepath.Join(dir, "pull"), ""); len(left) > 0 {
		r.t.Errorf("left over: %v", left)
	}
}

// wantStored waits until the pulled version is stored.
func (r *rig) wantStored() {
	r.t.Helper()
	for waited := time.Duration(0); !r.tagged(); waited += time.Minute {
		if waited > maxStore {
			r.t.Errorf("the version is not stored\n%s", r.log)
			break
		}
		time.Sleep(time.Minute)
		if waited == refusedFor {
			p := shared.release.Packages[1] // a package that is not in the cache
			r.get("/providers/" + originHost + "/acme/widget/" + version + "/" + p.OS + "_" + p.Arch + "/" + p.Filename)
		}
	}
}

// judgePulled reports whether a response is correct. It fails the test if the content of the response is wrong.
// An error is not correct, but does not fail the test.
func (r *rig) judgePulled(d document, a answer) bool {
	r.t.Helper()
	limit, archive := clientsWait, strings.HasSuffix(d.path, ".zip")
	if archive {
		limit = maxArchive
	}
	if a.took > limit {
		r.t.Errorf("%s took %s", d.path, a.took)
	}
	switch {
	case a.status == http.StatusBadGateway, a.status == http.StatusServiceUnavailable, a.status == http.StatusGatewayTimeout:
		if a.retryAfter == "" {
			r.t.Errorf("%s: %d without Retry-After", d.path, a.status)
		}
		return false
	case archive && a.err != nil && len(a.body) < len(shared.release.Packages[0].Data):
		return false // the response was aborted, so no client mistakes the response for complete
	case archive && a.status == http.StatusOK && bytes.Equal(a.body, shared.release.Packages[0].Data):
		return true
	case strings.HasSuffix(d.path, "/index.json") && a.status == http.StatusOK && string(a.body) == `{"versions":{"`+version+`":{}}}`:
		return true
	case strings.HasSuffix(d.path, "/"+version+".json") && a.status == http.StatusOK && offersAll(a.body):
		return true
	}
	r.t.Errorf("%s: %d with %d bytes, %v: %.200s\n%s", d.path, a.status, len(a.body), a.err, a.body, r.log)
	return false
}

// offersAll reports whether a version's description contains all packages.
func offersAll(body []byte) bool {
	var found struct {
		Archives map[string]struct{ Hashes []string } `json:"archives"`
	}
	return json.Unmarshal(body, &found) == nil && len(found.Archives) == len(shared.release.Packages) &&
		!slices.ContainsFunc(shared.release.Packages, func(p release.Package) bool {
			return !slices.Contains(found.Archives[p.OS+"_"+p.Arch].Hashes, "zh:"+p.SHA256)
		})
}

// filesBelow returns the files below a folder whose names end with suffix.
func filesBelow(t *testing.T, dir, suffix string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasSuffix(path, suffix) {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return out
}
