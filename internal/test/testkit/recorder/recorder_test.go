package recorder_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
)

func request(t *testing.T, method, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestRecorder(t *testing.T) {
	rec := recorder.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/missing":
			http.NotFound(w, r)
		case "/text":
			io.WriteString(w, "text")
		}
	}))
	srv := httptest.NewServer(rec)
	defer srv.Close()

	request(t, http.MethodGet, srv.URL+"/missing")
	request(t, http.MethodPut, srv.URL+"/text?a=b")
	request(t, http.MethodGet, srv.URL+"/silent")

	want := []recorder.Request{
		{Method: "GET", Path: "/missing", Authorized: true, Status: 404},
		{Method: "PUT", Path: "/text", Query: "a=b", Authorized: true, Status: 200},
		{Method: "GET", Path: "/silent", Authorized: true, Status: 200},
	}
	got := rec.Requests()
	if len(got) != len(want) {
		t.Fatalf("recorded %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("request %d: %+v, want %+v", i, got[i], want[i])
		}
	}

	counts := []struct {
		name    string
		filters []recorder.Filter
		want    int
	}{
		{"all", nil, 3},
		{"writes", []recorder.Filter{recorder.Writes()}, 1},
		{"method and status", []recorder.Filter{recorder.Method("GET"), recorder.Status(200)}, 1},
		{"path", []recorder.Filter{recorder.Path("/text")}, 1},
		{"path part", []recorder.Filter{recorder.PathContains("s")}, 2},
		{"path end", []recorder.Filter{recorder.PathSuffix("t")}, 2},
		{"authorized", []recorder.Filter{recorder.Authorized()}, 3},
	}
	for _, tt := range counts {
		if got := rec.Count(tt.filters...); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}

	rec.Reset()
	if n := rec.Count(); n != 0 {
		t.Errorf("%d requests after Reset", n)
	}
}

func TestIntercept(t *testing.T) {
	rec := recorder.New(http.NotFoundHandler())
	srv := httptest.NewServer(rec)
	defer srv.Close()

	rec.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/cut" {
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path != "/lie" {
			return false
		}
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	if status, _ := request(t, http.MethodGet, srv.URL+"/lie"); status != http.StatusTooManyRequests {
		t.Errorf("intercepted request: %d", status)
	}
	if status, _ := request(t, http.MethodGet, srv.URL+"/truth"); status != http.StatusNotFound {
		t.Errorf("other request: %d", status)
	}
	if _, err := http.Post(srv.URL+"/cut", "", nil); err == nil {
		t.Error("the connection was not cut")
	}
	if n := rec.Count(recorder.Path("/cut"), recorder.Status(0)); n != 1 {
		t.Errorf("%d requests without a status, want 1", n)
	}

	rec.Intercept(nil)
	if status, _ := request(t, http.MethodGet, srv.URL+"/lie"); status != http.StatusNotFound {
		t.Errorf("after the intercept has ended: %d", status)
	}
}
