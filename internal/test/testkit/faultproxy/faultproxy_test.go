package faultproxy_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/faultproxy"
	"github.com/ocibridge/ocibridge/internal/test/testkit/memnet"
)

const (
	content = `{"content":"0123456789"}`
	place   = "server.test:80"
)

// truth is the handler behind the proxy. Its responses are correct.
func truth(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	if r.URL.Path == "/private" && r.Header.Get("Authorization") == "" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	w.Header().Set("Docker-Content-Digest", "sha256:a0")
	if r.Method != http.MethodHead {
		io.WriteString(w, content)
	}
}

// scene consists of a client and of a server behind a proxy.
type scene struct {
	*faultproxy.Server
	net    *memnet.Network
	client *http.Client
}

// inMemory runs f with a scene in virtual time, and then checks that every connection is closed.
func inMemory(t *testing.T, f func(*testing.T, *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		server, err := faultproxy.Serve(faultproxy.New(http.HandlerFunc(truth)), nil, func() (net.Listener, error) { return n.Listen(place) })
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{DialContext: n.Dial, MaxIdleConns: 0}
		f(t, &scene{server, n, &http.Client{Transport: transport, Timeout: time.Hour}})
		transport.CloseIdleConnections()
		server.Close()
		time.Sleep(time.Hour)
		if open := n.Open(); len(open) > 0 {
			t.Errorf("open: %v", open)
		}
	})
}

// outcome is the result of a request as the client sees it.
type outcome struct {
	resp *http.Response
	body string
	err  error
	took time.Duration
}

func (s *scene) do(method, path string) outcome {
	start := time.Now()
	req, err := http.NewRequest(method, "http://"+place+path, strings.NewReader(""))
	if err != nil {
		return outcome{err: err}
	}
	req.Header.Set("Authorization", "Bearer first")
	resp, err := s.client.Do(req)
	if err != nil {
		return outcome{err: err, took: time.Since(start)}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return outcome{resp, string(body), err, time.Since(start)}
}

func (o outcome) String() string {
	switch {
	case errors.Is(o.err, syscall.ECONNRESET):
		return fmt.Sprintf("reset after %q", o.body)
	case errors.Is(o.err, io.ErrUnexpectedEOF):
		return fmt.Sprintf("ended after %q", o.body)
	case o.err != nil && o.took == time.Hour:
		return fmt.Sprintf("silence after %q", o.body)
	case o.err != nil:
		return o.err.Error()
	}
	return fmt.Sprintf("%d %s", o.resp.StatusCode, o.body)
}

func TestFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		fault faultproxy.Fault
		want  string
	}{
		"status":           {faultproxy.Status(503, "7"), `503 {"message":"there is trouble"}`},
		"page":             {faultproxy.HTML(), "200 <!DOCTYPE html><html><body>Please log in</body></html>"},
		"cut":              {faultproxy.Cut(), `reset after ""`},
		"cut in the body":  {faultproxy.CutAt(5), `reset after "{\"con"`},
		"stall":            {faultproxy.Stall(), `silence after ""`},
		"stall in it":      {faultproxy.StallAt(5), `silence after "{\"con"`},
		"altered":          {faultproxy.Alter(0), "200 \x84" + content[1:]},
		"half":             {faultproxy.Half(), "200 " + content[:len(content)/2]},
		"longer announced": {faultproxy.Length(5), fmt.Sprintf("ended after %q", content)},
		"shorter":          {faultproxy.Length(-5), "200 " + content[:len(content)-5]},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, s *scene) {
				end := s.Begin(faultproxy.Rule{Fault: tc.fault, Match: func(r *http.Request) bool { return r.URL.Path == "/here" }})
				if got := s.do(http.MethodGet, "/here").String(); got != tc.want {
					t.Errorf("got  %s\nwant %s", got, tc.want)
				}
				for _, path := range []string{"/elsewhere", "/here"} {
					if got := s.do(http.MethodGet, path).String(); got != "200 "+content {
						t.Errorf("%s: %s", path, got)
					}
					end()
				}
				if n := s.Hits(); n < 1 {
					t.Errorf("%d hits", n)
				}
			})
		})
	}
}

func TestFaultsOfTime(t *testing.T) {
	inMemory(t, func(t *testing.T, s *scene) {
		for name, tc := range map[string]struct {
			fault faultproxy.Fault
			want  time.Duration
		}{
			"drip": {faultproxy.Drip(time.Second), time.Duration(len(content)) * time.Second},
			"late": {faultproxy.Late(time.Minute), time.Minute},
		} {
			end := s.Begin(faultproxy.Rule{Fault: tc.fault})
			if o := s.do(http.MethodGet, "/"); o.took != tc.want || o.body != content {
				t.Errorf("%s: %s after %s", name, o, o.took)
			}
			end()
		}
	})
}

func TestRules(t *testing.T) {
	inMemory(t, func(t *testing.T, s *scene) {
		end := s.Begin(faultproxy.Rule{Fault: faultproxy.Status(500, ""), Skip: 1, Times: 2})
		defer end()
		got := ""
		for range 4 {
			got += fmt.Sprint(s.do(http.MethodGet, "/").resp.StatusCode, " ")
		}
		if got != "200 500 500 200 " {
			t.Error(got)
		}
	})
}

func TestHeaders(t *testing.T) {
	inMemory(t, func(t *testing.T, s *scene) {
		end := s.Begin(faultproxy.Rule{Fault: faultproxy.Date(time.Hour)})
		if at, err := http.ParseTime(s.do(http.MethodGet, "/").resp.Header.Get("Date")); err != nil || time.Until(at) != time.Hour {
			t.Errorf("dated %s, %v", at, err)
		}
		end()
		end = s.Begin(faultproxy.Rule{Fault: faultproxy.Alter(0)})
		if got := s.do(http.MethodHead, "/").resp.Header.Get("Docker-Content-Digest"); got != "sha256:a1" {
			t.Error(got)
		}
		end()
		defer s.Begin(faultproxy.Rule{Fault: faultproxy.Expire()})()
		if got := s.do(http.MethodGet, "/private").String(); got != "401 " {
			t.Error(got)
		}
	})
}

func TestConnections(t *testing.T) {
	for name, tc := range map[string]struct {
		fault faultproxy.ConnFault
		want  string
	}{
		"reset": {faultproxy.ConnFault{Reset: 100}, `reset after ""`},
		"stall": {faultproxy.ConnFault{Stall: 100}, `silence after ""`},
		"slow":  {faultproxy.ConnFault{Pause: time.Second, Piece: 10}, "200 " + content},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, s *scene) {
				s.Conns(tc.fault)
				if got := s.do(http.MethodGet, "/").String(); got != tc.want {
					t.Errorf("got  %s\nwant %s", got, tc.want)
				}
				s.Conns(faultproxy.ConnFault{})
				s.client.CloseIdleConnections()
				if got := s.do(http.MethodGet, "/").String(); got != "200 "+content {
					t.Error(got)
				}
			})
		})
	}
}

// TestLoopback shows that a proxy on the loopback interface can reset and refuse connections, and can accept
// connections again.
func TestLoopback(t *testing.T) {
	s := faultproxy.For(t, http.HandlerFunc(truth), nil)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func() error {
		resp, err := client.Get("http://" + s.Addr)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		return err
	}
	if err := get(); err != nil {
		t.Errorf("at first: %v", err)
	}
	s.Refuse()
	if err := get(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refused: %v", err)
	}
	if err := s.Accept(); err != nil {
		t.Fatal(err)
	}
	end := s.Begin(faultproxy.Rule{Fault: faultproxy.Cut()})
	if err := get(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("cut: %v", err)
	}
	end()
	if err := get(); err != nil {
		t.Errorf("in the end: %v", err)
	}
}
