package gateway

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/respond"
)

// answer is an encoded document with the values of its ETag and Content-Length headers. The values are slices,
// so that net/http can use them directly. They are never modified.
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
	return &answer{
		body:   body,
		etag:   []string{`"` + base64.RawURLEncoding.EncodeToString(sum[:18]) + `"`},
		length: []string{strconv.Itoa(len(body))},
	}, nil
}

// write answers a GET or HEAD request. The status is 304 if the client already has the current document. write
// returns the status and the size of the sent body, for the log.
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

// answer answers with the item's document of a kind. If forAll is true, all clients get the same document, and
// answer caches it with the item. Otherwise answer builds the document for this client alone. document builds the
// document.
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

// keep caches an answer with an item, and returns it. If the item's document has not changed, keep returns the
// earlier answer. So all responses with the document hold the same bytes, however slowly their clients read.
func (g *gateway) keep(item *catalog.Item, kind catalog.Document, a *answer) *answer {
	if before, ok := item.Document(kind).(*answer); ok && before.etag[0] == a.etag[0] {
		return before
	}
	a.kept = true
	g.Catalog.CacheDocument(item, kind, a, len(a.body)+answerOverhead)
	return a
}
