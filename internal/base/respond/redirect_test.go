package respond_test

import (
	"net/http/httptest"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/respond"
)

// TestRedirect shows that the Location header has no control characters, and is otherwise the URL as it is.
func TestRedirect(t *testing.T) {
	for to, want := range map[string]string{
		"https://storage.example/b%20c?sig=a%2Fb&x=1":          "https://storage.example/b%20c?sig=a%2Fb&x=1",
		"https://storage.example/?q=\u0085\u202eb\r\n\x1b\x7f": "https://storage.example/?q=%C2%85%E2%80%AEb%0D%0A%1B%7F",
	} {
		w := httptest.NewRecorder()
		respond.Redirect(w, to)
		if got := w.Header().Get("Location"); w.Code != 307 || got != want || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%q: %d %v", to, w.Code, w.Header())
		}
	}
}
