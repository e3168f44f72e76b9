package pull_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/test/testkit/traces"
)

// TestObserved shows that, if a client causes requests to the origin, these requests are logged with the client's
// request ID and are part of the client's trace. Background requests have neither a request ID nor a trace.
func TestObserved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0")
	seen := &traces.Recorder{}
	s := b.serve(siteOptions{tracer: seen})
	get := func(path, id string) int {
		req, err := http.NewRequest(http.MethodGet, s.server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Request-Id", id)
		resp, err := s.server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		return resp.StatusCode
	}
	if status := get(archivePath("1.0.0", "linux_amd64"), "asks"); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	s.await(pull.Stored, 1)
	b.origin.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		io.WriteString(w, "<html>")
		return true
	})
	s.puller.Forget(widget)
	if status := get(mirror+"3.0.0.json", "troubled"); status != http.StatusBadGateway {
		t.Errorf("while the origin fails: status %d", status)
	}
	s.close() // completes the log
	for message, id := range map[string]string{
		"pulled through: checksums accepted":                                   "asks",
		"platform=linux_amd64":                                                 "asks",
		"the origin is unavailable: serving its last list of versions, if any": "troubled",
		"pulled through: a version is stored":                                  "",
		"platform=darwin_arm64":                                                "",
	} {
		found := 0
		for line := range strings.Lines(s.log.String()) {
			if !strings.Contains(line, message) {
				continue
			}
			if found++; strings.Contains(line, "request_id=") != (id != "") || !strings.Contains(line, id) {
				t.Errorf("want the id %q in: %s", id, line)
			}
		}
		if found == 0 {
			t.Errorf("the log lacks %q", message)
		}
	}
	for _, want := range []string{"origin versions", "origin version", "origin package"} {
		if !slices.ContainsFunc(seen.Spans(), func(name string) bool {
			return strings.HasPrefix(name, "request > ") && strings.HasSuffix(name, " > "+want)
		}) {
			t.Errorf("no span %q within the span of a request: %q", want, seen.Spans())
		}
	}
}
