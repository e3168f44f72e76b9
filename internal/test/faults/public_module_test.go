package faults_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/origins/gitfiles"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/gitserver"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// The public modules of the origin: one is in a Git repository, the other in an archive.
var (
	fromGit     = module.MustParseAddress(originHost + "/acme/git/aws")
	fromArchive = module.MustParseAddress(originHost + "/acme/zip/aws")
)

// moduleText is the content of main.tf in both.
var moduleText = strings.Repeat("# The module.\n", 100)

// publicModules is the module registry of the origin, with what its locations lead to. The answers of the Git server are those of
// a real one, recorded before the first test, because no process can run in a bubble.
type publicModules struct {
	answers map[string]recorded // by method and path
	next    http.Handler        // the origin of providers
}

type recorded struct {
	contentType string
	body        []byte
}

// ServeHTTP implements [http.Handler].
func (p publicModules) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, ok := p.answers[r.Method+" "+r.URL.Path]
	if !ok {
		p.next.ServeHTTP(w, r)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	if location, isLocation := strings.CutPrefix(answer.contentType, "location "); isLocation {
		w.Header().Set("X-Terraform-Get", location)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", answer.contentType)
	if strings.HasPrefix(r.URL.Path, "/files/") {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(answer.body))
		return
	}
	_, _ = w.Write(answer.body)
}

// recordModules returns the answers of the module registry.
func recordModules(dir string) (map[string]recorded, error) {
	answers := map[string]recorded{
		"GET /.well-known/terraform.json": {"application/json", []byte(`{"providers.v1":"` + testorigin.ServicePath + `","modules.v1":"/v1/modules/"}`)},
	}
	for m, location := range map[module.Address]string{
		fromGit: "git::https://" + originHost + "/git/vpc?ref=v" + version, fromArchive: "https://" + originHost + "/files/vpc.zip?token=secret",
	} {
		base := "GET /v1/modules/" + m.Namespace() + "/" + m.Name() + "/" + m.System() + "/"
		answers[base+"versions"] = recorded{"application/json", []byte(`{"modules":[{"versions":[{"version":"` + version + `"}]}]}`)}
		answers[base+version+"/download"] = recorded{contentType: "location " + location}
	}
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	f, err := w.Create("main.tf")
	if err == nil {
		_, err = io.WriteString(f, moduleText)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	answers["GET /files/vpc.zip"] = recorded{"application/zip", archive.Bytes()}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	git, err := gitserver.Open(dir)
	if err != nil {
		return nil, err
	}
	stream := gitserver.Stream(1500000000, "", gitserver.Tree{"main.tf": moduleText, "README.md": "# vpc\n"}) + "reset refs/tags/v" + version + "\nfrom refs/heads/main\n\n"
	if err := errors.Join(git.Init("vpc"), git.Import("vpc", strings.NewReader(stream))); err != nil {
		return nil, err
	}
	client := &http.Client{Transport: recordingTransport{handlerTransport{http.StripPrefix("/git", git)}, answers}}
	_, err = gitfiles.Fetch(context.Background(), gitfiles.Options{HTTP: client, Check: func(_, _ *url.URL) error { return nil }},
		gitfiles.Request{URL: "https://" + originHost + "/git/vpc", Ref: "v" + version}, filepath.Join(dir, "fetched"))
	return answers, err
}

// recordingTransport records the answers of a server.
type recordingTransport struct {
	http.RoundTripper
	answers map[string]recorded
}

// RoundTrip implements [http.RoundTripper].
func (t recordingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	t.answers[r.Method+" "+r.URL.Path] = recorded{resp.Header.Get("Content-Type"), body}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// syncModule does what a sync does for the version of a public module: it lists the versions, checks the version at the origin and,
// if it is not stored, fetches and stores it.
func (r *rig) syncModule(ctx context.Context, m module.Address) error {
	c := &config.Config{Modules: []config.Module{{Address: m}}}
	source := transfer.OpenWants(c, transfer.AllBlocks(c), r.source, "").Wants[0].Modules
	store, err := r.auth.Repository(ctx, r.repo)
	if err != nil {
		return err
	}
	dest := repo.Destination{Repository: r.repo, Store: registry.Repository{Repository: store}}
	listing, err := source.Versions(ctx, m)
	if err != nil {
		return err
	}
	v := reconcile.ModuleVersion{Module: m, Version: listing.Versions[0], Spellings: listing.Spellings[listing.Versions[0]], Pusher: r.pusher, Destination: dest}
	stored, err := artifact.ReadZip(ctx, dest.Store, m, v.Version)
	if repo.IsNotFound(err) {
		stored, err = nil, nil
	}
	if err == nil {
		err = source.Check(ctx, v, stored)
	}
	if err == nil && stored == nil {
		_, err = source.Push(ctx, v)
	}
	return r.auth.Explain(err, r.repo)
}

// storedModule returns the digest of the stored manifest of a public module, or "". It reports an error if the version is not
// complete.
func (r *rig) storedModule(m module.Address) string {
	r.t.Helper()
	if r.truth("manifests", version).Code == http.StatusNotFound {
		return ""
	}
	stored, err := artifact.ReadZip(r.t.Context(), r.direct(), m, provider.MustParseVersion(version))
	if err != nil {
		r.t.Errorf("the tagged version cannot be read: %v", err)
		return "?"
	}
	blob := r.truth("blobs", stored.Zip().Digest.String())
	data := blob.Body.Bytes()
	files, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err == nil {
		var text []byte
		if text, err = fs.ReadFile(files, "main.tf"); err == nil && string(text) != moduleText {
			err = fmt.Errorf("main.tf is %.100q", text)
		}
	}
	if err != nil {
		r.t.Errorf("the version is tagged, but its zip is not that of the module: %v", err)
	}
	return stored.Index.Digest.String()
}

// TestPublicModules tests every fault at every step between a sync of a public module and its origin, for one request and
// permanently. A sync that fails says what to do, and stores nothing. If the version is stored already, it stays as it is. The sync
// after the fault succeeds.
func TestPublicModules(t *testing.T) {
	lists := []step{{"discovery", to("GET", "/.well-known/terraform.json")}, {"versions", to("GET", "/versions")}, {"location", to("GET", "/download")}}
	for m, steps := range map[module.Address][]step{
		fromGit:     append(slices.Clone(lists), step{"references", to("GET", "/info/refs")}, step{"pack", to("POST", "/git-upload-pack")}),
		fromArchive: append(slices.Clone(lists), step{"archive", to("GET", "/files/")}),
	} {
		for _, f := range faultsFor(originHost) {
			for _, s := range steps {
				if f.name == "reset in the request" {
					continue // the requests have no large bodies
				}
				t.Run(m.Name()+"/"+f.name+"/"+s.name, func(t *testing.T) {
					f.leave(t)
					t.Parallel()
					for times := range 2 {
						inRig(t, func(r *rig) { r.syncFaulty(m, f, s, times) })
					}
				})
			}
		}
	}
}

// syncFaulty syncs with a fault, which affects the given number of requests; 0: all.
func (r *rig) syncFaulty(m module.Address, f fault, s step, times int) {
	sync := func() error {
		r.newSource() // like a new process
		start := time.Now()
		err := r.syncModule(r.t.Context(), m)
		if took := time.Since(start); took > maxPush {
			r.t.Errorf("the sync took %s: %v", took, err)
		}
		return err
	}
	mayPass := times == 1 || f.harmless() || strings.HasPrefix(f.name, "token") || // origins have no tokens
		f.inAnswer() && !f.breaks() && s.name == "location" || // the answer has no body
		f.name == "more announced than sent" && (s.name == "references" || s.name == "pack") || // Git announces the end itself
		f.name == "altered byte" && s.name != "archive" && s.name != "pack" // the altered byte might be unused
	// 1. Nothing is stored yet.
	end := f.begin(r, r.origin, s, times)
	err := sync()
	if r.origin.Hits() == 0 {
		r.t.Error("the fault affected no request")
	}
	if stored := r.storedModule(m); (err == nil) != (stored != "") || err == nil && !mayPass {
		r.t.Errorf("the sync: %v; stored: %q", err, stored)
	}
	r.checkError(err)
	end()
	if err := sync(); err != nil {
		r.t.Errorf("after the fault: %v", err)
	}
	// 2. The version is stored.
	before := r.storedModule(m)
	end = f.begin(r, r.origin, s, times)
	r.checkError(sync())
	end()
	if after := r.storedModule(m); after != before || before == "" {
		r.t.Errorf("stored %q, before %q", after, before)
	}
	if err := sync(); err != nil {
		r.t.Errorf("after the second fault: %v", err)
	}
}
