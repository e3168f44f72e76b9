// Package origin provides a provider's origin registry: service discovery, the provider registry protocol, and
// the files of releases.
//
// An origin describes its releases correctly. For wrong responses, a test changes a release before it adds the
// release, or intercepts requests.
package origin

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
)

// ServicePath is the path at which the provider registry protocol is served.
const ServicePath = "/v1/providers/"

// Options configure an origin registry. The zero value requires no token.
type Options struct {
	// Token is the bearer token that the JSON endpoints require. Discovery and files do not require it, because
	// clients send no credentials for them.
	Token string
}

// An Origin is the handler of an origin registry. Its methods are safe for concurrent use. The embedded
// [recorder.Recorder] records the requests, and lets tests intercept them.
type Origin struct {
	*recorder.Recorder

	mu       sync.Mutex
	token    string
	releases []*release.Release

	source, publishedAt string
}

var _ http.Handler = (*Origin)(nil)

// New returns an origin registry with the given releases.
func New(opts Options, releases ...*release.Release) *Origin {
	o := &Origin{token: opts.Token}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/terraform.json", discovery)
	mux.HandleFunc("GET "+ServicePath+"{namespace}/{type}/versions", o.authorized(o.versions))
	mux.HandleFunc("GET "+ServicePath+"{namespace}/{type}/{version}/download/{os}/{arch}", o.authorized(o.download))
	mux.HandleFunc("GET /files/{namespace}/{type}/{version}/{name}", o.file)
	o.Recorder = recorder.New(mux)
	for _, r := range releases {
		o.Add(r)
	}
	return o
}

// About sets the source and the publication time in the descriptions of all packages.
func (o *Origin) About(source, publishedAt string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.source, o.publishedAt = source, publishedAt
}

// RequireToken makes the JSON endpoints require the given bearer token.
func (o *Origin) RequireToken(token string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.token = token
}

// Add publishes a release. The release replaces an existing release of the same provider and version. The caller
// must not change the release afterwards. Add ignores the release's Host.
func (o *Origin) Add(r *release.Release) {
	o.Remove(r.Namespace, r.Type, r.Version)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.releases = append(o.releases, r)
}

// Remove removes a release. It does nothing if there is no such release.
func (o *Origin) Remove(namespace, typ, version string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.releases = slices.DeleteFunc(slices.Clone(o.releases), func(r *release.Release) bool {
		return r.Namespace == namespace && r.Type == typ && r.Version == version
	})
}

// list returns the releases of the provider in the request's path.
func (o *Origin) list(r *http.Request) []*release.Release {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []*release.Release
	for _, rel := range o.releases {
		if rel.Namespace == r.PathValue("namespace") && rel.Type == r.PathValue("type") {
			out = append(out, rel)
		}
	}
	return out
}

// find returns the release in the request's path, or nil.
func (o *Origin) find(r *http.Request) *release.Release {
	for _, rel := range o.list(r) {
		if rel.Version == r.PathValue("version") {
			return rel
		}
	}
	return nil
}

func (o *Origin) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		token := o.token
		o.mu.Unlock()
		if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
			w.Header().Set("WWW-Authenticate", "Bearer")
			fail(w, http.StatusUnauthorized)
			return
		}
		next(w, r)
	}
}

func discovery(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]string{"providers.v1": ServicePath})
}

type platformJSON struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
}

type versionJSON struct {
	Version   string         `json:"version"`
	Protocols []string       `json:"protocols"`
	Platforms []platformJSON `json:"platforms"`
}

type versionsJSON struct {
	ID       string        `json:"id"`
	Versions []versionJSON `json:"versions"`
	Warnings []string      `json:"warnings"`
}

// versions lists a provider's versions, in the order in which they were published.
func (o *Origin) versions(w http.ResponseWriter, r *http.Request) {
	releases := o.list(r)
	if len(releases) == 0 {
		fail(w, http.StatusNotFound)
		return
	}
	answer := versionsJSON{ID: releases[0].Namespace + "/" + releases[0].Type}
	for _, rel := range releases {
		v := versionJSON{Version: rel.Version, Protocols: rel.Protocols, Platforms: []platformJSON{}}
		for _, p := range rel.Packages {
			v.Platforms = append(v.Platforms, platformJSON{p.OS, p.Arch})
		}
		answer.Versions = append(answer.Versions, v)
	}
	reply(w, http.StatusOK, answer)
}

type keyJSON struct {
	KeyID          string  `json:"key_id"`
	ASCIIArmor     string  `json:"ascii_armor"`
	TrustSignature string  `json:"trust_signature"`
	Source         string  `json:"source"`
	SourceURL      *string `json:"source_url"`
}

type keysJSON struct {
	GPGPublicKeys []keyJSON `json:"gpg_public_keys"`
}

type downloadJSON struct {
	Protocols           []string `json:"protocols"`
	OS                  string   `json:"os"`
	Arch                string   `json:"arch"`
	Filename            string   `json:"filename"`
	DownloadURL         string   `json:"download_url"`
	SHASumsURL          string   `json:"shasums_url"`
	SHASumsSignatureURL string   `json:"shasums_signature_url,omitempty"`
	SHASum              string   `json:"shasum"`
	SigningKeys         keysJSON `json:"signing_keys"`
	Source              string   `json:"source,omitempty"`
	PublishedAt         string   `json:"published_at,omitempty"`
}

// download describes one package. The URLs in the description are relative to the request's URL.
func (o *Origin) download(w http.ResponseWriter, r *http.Request) {
	rel := o.find(r)
	if rel == nil {
		fail(w, http.StatusNotFound)
		return
	}
	p := rel.Package(r.PathValue("os"), r.PathValue("arch"))
	if p == nil {
		fail(w, http.StatusNotFound)
		return
	}
	o.mu.Lock()
	source, publishedAt := o.source, o.publishedAt
	o.mu.Unlock()
	// The request's path is /v1/providers/NAMESPACE/TYPE/VERSION/download/OS/ARCH.
	files := "../../../../../../../files/" + rel.Namespace + "/" + rel.Type + "/" + rel.Version + "/"
	answer := downloadJSON{
		Protocols: rel.Protocols, OS: p.OS, Arch: p.Arch,
		Filename: p.Filename, SHASum: p.SHA256,
		DownloadURL: files + p.Filename,
		SHASumsURL:  files + rel.SHA256SUMSName(),
		SigningKeys: keysJSON{keys(rel.Keys)},
		Source:      source, PublishedAt: publishedAt,
	}
	if rel.Signature != nil {
		answer.SHASumsSignatureURL = files + rel.SignatureName()
	}
	reply(w, http.StatusOK, answer)
}

func keys(keys []release.Key) []keyJSON {
	out := []keyJSON{}
	for _, k := range keys {
		j := keyJSON{KeyID: k.KeyID, ASCIIArmor: k.ASCIIArmor, TrustSignature: k.TrustSignature, Source: k.Source}
		if k.SourceURL != "" {
			j.SourceURL = &k.SourceURL
		}
		out = append(out, j)
	}
	return out
}

// file serves a package or document of a release. It supports range requests.
func (o *Origin) file(w http.ResponseWriter, r *http.Request) {
	rel := o.find(r)
	if rel == nil {
		fail(w, http.StatusNotFound)
		return
	}
	content, kind, err := open(rel, r.PathValue("name"))
	if err != nil {
		fail(w, http.StatusInternalServerError)
		return
	}
	if content == nil {
		fail(w, http.StatusNotFound)
		return
	}
	defer content.Close()
	w.Header().Set("Content-Type", kind)
	http.ServeContent(w, r, "", time.Time{}, content)
}

// open opens a file of a release, and returns its media type. It returns a nil reader if the file does not
// exist.
func open(rel *release.Release, name string) (io.ReadSeekCloser, string, error) {
	for _, p := range rel.Packages {
		if p.Filename == name {
			content, err := p.Content()
			return content, "application/zip", err
		}
	}
	doc, ok := rel.Documents()[name]
	if !ok {
		return nil, "", nil
	}
	return nopCloser{bytes.NewReader(doc)}, "application/octet-stream", nil
}

type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }

func fail(w http.ResponseWriter, status int) {
	reply(w, status, map[string][]string{"errors": {http.StatusText(status)}})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error means that the client has disconnected.
	_ = json.NewEncoder(w).Encode(body)
}
