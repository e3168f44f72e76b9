package embedded

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// TestFolderGone shows that an open registry returns errors and not 404 if its data
// folder is gone. It works again when the folder is back.
func TestFolderGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	r, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Repository("a/b"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Repository("a/b"); err == nil {
		t.Error("Repository succeeds without the folder")
	}
	w := httptest.NewRecorder()
	r.ReadOnly().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v2/a/b/tags/list", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Repository("a/b"); err != nil {
		t.Error(err)
	}
}
