package gateway

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/respond"
)

// answer is an encoded document with the values of its ETag and Content-Length headers. The values are slices,
// because net/http uses them without a copy. Nothing modifies them.
type answer struct {
	body         []byte
	etag, length []string
	kept         bool // the answer is cached with its item, so all responses hold the same bytes
}

var contentTypeJSON = []string{"application/json"}

// answerOverhead is the approximate size of an answer in memory without its body, in bytes.
const answerOverhead = 256

func newAnswer(document any) (*answer, error) {
	body, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	etag := `"` + base64.RawURLEncoding.EncodeToString(sum[:18]) + `"`
	return &answer{body: body, etag: []string{etag}, length: []string{strconv.Itoa(len(body))}}, nil
}

// write answers a GET or HEAD request, with 304 if the client has the current document. It returns the status and
// the size of the sent body, for the log.
func (a *answer) write(w http.ResponseWriter, r *http.Request) (status int, bytes int64) {
	h := w.Header()
	h["Etag"] = a.etag
	if known := r.Header["If-None-Match"]; len(known) > 0 && matches(known, a.etag[0]) {
		w.WriteHeader(http.StatusNotModified)
		return http.StatusNotModified, 0
	}
	h["Content-Type"] = contentTypeJSON
	h["Content-Length"] = a.length
	if r.Method == http.MethodHead {
		return http.StatusOK, 0
	}
	return http.StatusOK, int64(respond.Send(w, a.body, a.kept))
}

// matches reports whether an If-None-Match header matches an ETag (RFC 9110, section 13.1.2). The ETag must
// not contain a comma.
func matches(header []string, etag string) bool {
	for _, line := range header {
		for known := range strings.SplitSeq(line, ",") {
			known = strings.TrimPrefix(strings.TrimSpace(known), "W/")
			if known == etag || known == "*" {
				return true
			}
		}
	}
	return false
}

// answer sends the item's document of the given kind. The function document builds the document. If forAll is
// true, all clients get the same document, and answer caches it with the item.
func (g *gateway) answer(w http.ResponseWriter, r *http.Request, item *catalog.Item, kind catalog.Document, forAll bool, document func() any) error {
	var a *answer
	if forAll {
		a, _ = item.Document(kind).(*answer)
	}
	if a == nil {
		var err error
		if a, err = newAnswer(document()); err != nil {
			return err
		}
		if forAll {
			a = g.keep(item, kind, a)
		}
	}
	a.write(w, r)
	return nil
}

// keep caches an answer with an item, and returns the answer. If the item already has an answer with the same
// document, keep returns that answer. So all responses with the document hold the same bytes, however slowly
// their clients read.
func (g *gateway) keep(item *catalog.Item, kind catalog.Document, a *answer) *answer {
	if before, ok := item.Document(kind).(*answer); ok && before.etag[0] == a.etag[0] {
		return before
	}
	a.kept = true
	g.Catalog.CacheDocument(item, kind, a, len(a.body)+answerOverhead)
	return a
}

// ServeHTTP implements [http.Handler]. It first looks up the request's path in memory, and answers the
// hottest documents without the router. The router would cost a quarter of their throughput.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.serveWarm(w, r) {
		g.routes.ServeHTTP(w, r)
	}
}

// serveWarm answers from memory if it can, and reports whether it has.
func (g *gateway) serveWarm(w http.ResponseWriter, r *http.Request) bool {
	// With access control, the client must be authenticated first, and traces need the router.
	if g.Access != nil || g.Hooks.Tracer != nil {
		return false
	}
	path, ok := strings.CutPrefix(r.URL.Path, MirrorPath)
	// A path with an unusual encoding has a RawPath, which may contain an encoded slash.
	if !ok || r.URL.RawPath != "" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	now := time.Now()
	item, ok := g.View(r).Warm(path, now)
	if !ok {
		return false
	}
	kept, ok := item.Document(catalog.MirrorDocument).(*answer)
	if !ok {
		return false
	}
	line := g.begin(w, r, now)
	line.route = routeVersion
	switch {
	case item.IsListing():
		line.route = routeIndex
	case item.Found != nil:
		line.of, line.version = item.Address, item.Version
	}
	status, bytes := kept.write(w, r)
	g.ended(line, status, bytes)
	return true
}
