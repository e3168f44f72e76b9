package auth

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// sentLog records the requests that a client reports.
type sentLog struct {
	mu  sync.Mutex
	all []telemetry.RegistryRequest
}

func (s *sentLog) record(one telemetry.RegistryRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, one)
}

// TestSent shows that a client reports each attempt of a request separately. It does so
// with a registry's own transport and with the shared transport.
func TestSent(t *testing.T) {
	ca := tlsca.For(t)
	var asked atomic.Int32
	srv := tlsServer(t, ca, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		noTags(w, r)
	}, nil, "registry.test")
	for name, registries := range map[string]map[ociaddr.Registry]wire.Settings{
		"its own connections": {"registry.test": {CAs: ca.CertPEM(), MaxConcurrent: 2}},
		"shared ones":         nil,
	} {
		asked.Store(0)
		var seen sentLog
		transport := dialAll(map[string]*httptest.Server{"registry.test:443": srv})
		if registries == nil {
			transport.TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig
			transport.TLSClientConfig.InsecureSkipVerify = true
		}
		c := New(Options{Wire: wire.Options{Transport: transport, Registries: registries, Sent: seen.record, RetryDelay: time.Millisecond}})
		repo, err := c.Repository(t.Context(), ociaddr.Repository{Registry: "registry.test", Name: "a/b"})
		if err != nil {
			t.Fatal(err)
		}
		if err := repo.Tags(t.Context(), "", func([]string) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if len(seen.all) != 2 || seen.all[0].Status != 503 || seen.all[1].Status != 200 || seen.all[1].Host != "registry.test" || seen.all[1].Took <= 0 || seen.all[1].Authorized {
			t.Errorf("%s: reported %+v", name, seen.all)
		}
		transport.CloseIdleConnections()
	}
}

func TestReachable(t *testing.T) {
	ca := tlsca.For(t)
	status := atomic.Int32{}
	var asked atomic.Pointer[http.Request]
	srv := tlsServer(t, ca, func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r)
		if status.Load() == 0 {
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // a normal return would send status 200
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="https://elsewhere.test/token"`)
		w.WriteHeader(int(status.Load()))
	}, nil, "registry.test")
	var seen sentLog
	c := New(Options{
		Login: login.Options{
			Explicit: []login.Login{{Prefix: "registry.test", Username: login.NewSecret("u"), Password: login.NewSecret("p")}},
		},
		Wire: wire.Options{
			Transport:  dialAll(map[string]*httptest.Server{"registry.test:443": srv}),
			Sent:       seen.record,
			Registries: map[ociaddr.Registry]wire.Settings{"registry.test": {CAs: ca.CertPEM()}},
		},
	})
	for s, ok := range map[int32]bool{200: true, 401: true, 403: true, 404: true, 429: true, 500: false, 503: false} {
		status.Store(s)
		seen.all = nil
		err := c.Connections.Reachable(t.Context(), "registry.test")
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "registry.test") {
			t.Errorf("%d: %v", s, err)
		}
		if r := asked.Load(); r.Method != http.MethodGet || r.URL.Path != "/v2/" || r.Header.Get("Authorization") != "" || r.UserAgent() != "ocibridge" {
			t.Errorf("the request was %s %s with the header %v", r.Method, r.URL, r.Header)
		}
		if len(seen.all) != 1 {
			t.Errorf("%d: %d requests", s, len(seen.all))
		}
	}
	status.Store(0)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Connections.Reachable(ctx, "registry.test"); err == nil {
		t.Error("a registry that hangs is reachable")
	}
	srv.CloseClientConnections()
	if err := c.Connections.Reachable(t.Context(), "absent.localhost:1"); err == nil {
		t.Error("a registry is reachable although no server listens")
	}
	if wire.HostOf("docker.io") != "registry-1.docker.io" || wire.HostOf("registry.test:5000") != "registry.test:5000" {
		t.Errorf("hosts %s, %s", wire.HostOf("docker.io"), wire.HostOf("registry.test:5000"))
	}
}
