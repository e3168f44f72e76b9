package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

// Offer is what the gateway says about a package to a client that asks for it.
type Offer struct {
	Digest digest.Digest   // of the zip
	Size   int64           // of the zip in bytes
	H1     provider.Hash   // the zero hash if the gateway does not know it
	Signed []provider.Hash // the zh: hashes in the checksum document, which clients add to a lock file
	Listed []provider.Hash // the hashes of all packages of the version, which OpenTofu adds for its own registry

	path string // the path of the zip
}

// ZipHash returns the zh: hash of the zip.
func (o *Offer) ZipHash() provider.Hash {
	h, _ := provider.ParseHash("zh:" + o.Digest.Encoded()) // Offer checks the digest
	return h
}

// ErrNotOffered means that clients do not get a package from the gateway.
var ErrNotOffered = errors.New("the gateway does not offer it")

// maxOfferDocument is the maximum size in bytes of the documents about a package.
const maxOfferDocument = 4 << 20

// Offer asks the gateway for a package as a client would, within the process. The error wraps [ErrNotOffered] if the gateway
// refuses, lacks or cannot reach the package, and if no template selects the provider.
func (l *Local) Offer(ctx context.Context, a provider.Address, v provider.Version, p provider.Platform) (*Offer, error) {
	if l.excludes(a) {
		return nil, fmt.Errorf("%w: %w", ErrNotOffered, templates.ErrNotSelected)
	}
	var doc struct {
		SHASum      string `json:"shasum"`
		DownloadURL string `json:"download_url"`
		SHASumsURL  string `json:"shasums_url"`
		Packages    map[string]struct {
			Hashes []string `json:"hashes"`
			Size   int64    `json:"package_size"`
		} `json:"packages"`
	}
	text, err := l.get(ctx, fmt.Sprintf("%s%s/%s/%s/download/%s/%s", gateway.RegistryURL("", a.Hostname()), a.Namespace(), a.Type(), v, p.OS, p.Arch))
	if err == nil {
		err = json.Unmarshal(text, &doc)
	}
	if err != nil {
		return nil, err
	}
	own := doc.Packages[p.String()]
	o := &Offer{Digest: digest.NewDigestFromEncoded(digest.SHA256, doc.SHASum), Size: own.Size, path: l.pathOf(doc.DownloadURL)}
	if own.Size <= 0 || o.Digest.Validate() != nil {
		return nil, fmt.Errorf("%w: its size is unknown", ErrNotOffered)
	}
	for platform, other := range doc.Packages {
		for _, text := range other.Hashes {
			h, err := provider.ParseHash(text)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrNotOffered, err)
			}
			o.Listed = append(o.Listed, h)
			if platform == p.String() && !h.IsZip() {
				o.H1 = h
			}
		}
	}
	sums, err := l.get(ctx, l.pathOf(doc.SHASumsURL))
	if err != nil {
		return nil, err
	}
	// Clients lock the checksum of each line, whatever file it is for. The gateway serves only documents in which each line
	// is a checksum and a name.
	for line := range strings.Lines(string(sums)) {
		h, err := provider.ParseHash("zh:" + strings.ToLower(strings.Fields(line + " -")[0]))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotOffered, err)
		}
		o.Signed = append(o.Signed, h)
	}
	return o, nil
}

// Prefetch makes the gateway read the list of a provider's versions, which it then has when the client asks for it.
func (l *Local) Prefetch(ctx context.Context, a provider.Address) {
	if l.excludes(a) {
		return
	}
	_ = l.answer(ctx, gateway.RegistryURL("", a.Hostname())+a.Namespace()+"/"+a.Type()+"/versions", io.Discard) // the client's request gets the error
}

// Download reads an offered package from the gateway, so that the cache has it afterwards, if it can hold it.
func (l *Local) Download(ctx context.Context, o *Offer) error {
	return l.answer(ctx, o.path, io.Discard)
}

// Packages returns the cache of packages, or nil if there is none.
func (l *Local) Packages() *archives.Cache { return l.site.cache }

// Took tells the gateway that the command has got a package without a request.
func (l *Local) Took() { l.requested.Store(true) }

// pathOf returns the path in an absolute URL of the gateway.
func (l *Local) pathOf(url string) string {
	return "/" + strings.TrimPrefix(url, l.site.address.URL.String())
}

// get returns the gateway's document at a path.
func (l *Local) get(ctx context.Context, path string) ([]byte, error) {
	var body bytes.Buffer
	err := l.answer(ctx, path, &limited{&body, maxOfferDocument})
	return body.Bytes(), err
}

// answer writes the gateway's answer to a GET request to out.
func (l *Local) answer(ctx context.Context, path string, out io.Writer) (err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.site.address.URL.Scheme+"://"+l.site.address.URL.Host+path, nil)
	if err != nil {
		return err
	}
	r.RequestURI = r.URL.RequestURI()
	defer func() { // the gateway breaks off an answer whose bytes it cannot verify
		if p := recover(); p == http.ErrAbortHandler {
			err = fmt.Errorf("%w: its answer was broken off", ErrNotOffered)
		} else if p != nil {
			panic(p)
		}
	}()
	w := &innerWriter{header: http.Header{}, code: http.StatusOK, out: out}
	l.site.handler.ServeHTTP(w, r)
	if w.code != http.StatusOK {
		return fmt.Errorf("%w: status %d", ErrNotOffered, w.code)
	}
	return w.err
}

// innerWriter is the [http.ResponseWriter] of a request within the process.
type innerWriter struct {
	header http.Header
	code   int
	out    io.Writer
	err    error
}

func (w *innerWriter) Header() http.Header { return w.header }

func (w *innerWriter) WriteHeader(code int) { w.code = code }

func (w *innerWriter) Write(p []byte) (int, error) {
	if w.code != http.StatusOK {
		return len(p), nil
	}
	n, err := w.out.Write(p)
	if w.err == nil {
		w.err = err
	}
	return n, err
}

// limited is a buffer that fails at more than left bytes.
type limited struct {
	*bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, fmt.Errorf("%w: its documents are too large", ErrNotOffered)
	}
	return l.Buffer.Write(p)
}
