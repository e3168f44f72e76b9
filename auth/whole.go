package auth

import (
	"bytes"
	"io"
	"net/http"
)

// maxWhole is how much of an answer is read before it is handed out. Tags, tokens
// and most manifests are smaller.
const maxWhole = 64 << 10

// wholeReader reads small answers that are no blobs to their end, so that one that
// breaks off is repeated as one is that never came.
type wholeReader struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t wholeReader) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || req.Method != http.MethodGet || resp.ContentLength > maxWhole || !wantsJSON(req) && !wantsToken(req) {
		return resp, err
	}
	start, err := io.ReadAll(io.LimitReader(resp.Body, maxWhole+1))
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), resp.Body), resp.Body}
	return resp, nil
}

// wantsToken reports whether the request is for a token.
func wantsToken(req *http.Request) bool { return req.Context().Value(tokenLifeKey{}) != nil }
