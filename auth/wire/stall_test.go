package wire

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestAnswerThatStalls shows that reading a response fails with ErrStalled if the
// server sends the beginning of the body and then nothing.
func TestAnswerThatStalls(t *testing.T) {
	done := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"name":`)
		_ = http.NewResponseController(w).Flush()
		<-done
	}))
	defer srv.Close()
	defer close(done)
	resp, err := (&http.Client{Transport: stallGuard{http.DefaultTransport, 50 * time.Millisecond}}).Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if data, err := io.ReadAll(resp.Body); !errors.Is(err, ErrStalled) {
		t.Errorf("read %q, %v", data, err)
	}
}
