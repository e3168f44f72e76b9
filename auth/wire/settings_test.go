package wire

import (
	"crypto/tls"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/ociaddr"
)

func TestDerivedTransport(t *testing.T) {
	conns := New(Options{})
	derive := func(s Settings) *http.Transport {
		tr, ok := conns.derive(s).(*http.Transport)
		if !ok || tr.Proxy == nil || !tr.ForceAttemptHTTP2 {
			t.Fatalf("%+v: %+v", s, tr)
		}
		return tr
	}
	if derive(Settings{RequestsPerSecond: 1, MaxConcurrent: 1}) != conns.base {
		t.Error("limits alone must not create a separate transport")
	}
	if tr := derive(Settings{Timeout: 3 * time.Second}); tr.ResponseHeaderTimeout != 3*time.Second || tr.TLSHandshakeTimeout != 3*time.Second {
		t.Errorf("short: %+v", tr)
	}
	if tr := derive(Settings{Timeout: 5 * time.Minute}); tr.ResponseHeaderTimeout != 5*time.Minute || tr.TLSHandshakeTimeout != 10*time.Second {
		t.Errorf("long: %+v", tr)
	}
	if tr := derive(Settings{InsecureSkipVerify: true}); tr.ResponseHeaderTimeout != 60*time.Second || conns.base.(*http.Transport).TLSClientConfig != nil && conns.base.(*http.Transport).TLSClientConfig.InsecureSkipVerify {
		t.Errorf("insecure: %+v", tr)
	}
}

func TestRegistryValidation(t *testing.T) {
	tests := []struct {
		name     string
		registry ociaddr.Registry
		settings Settings
		want     string
	}{
		{"zero", "ghcr.io", Settings{}, ""},
		{"everything", "harbor.test:8443", Settings{PlainHTTP: true, RequestsPerSecond: 0.5, MaxConcurrent: 3, Timeout: time.Second, CAs: tlsca.For(t).CertPEM()}, ""},
		{"URL", "https://ghcr.io", Settings{}, "invalid registry"},
		{"repository", "ghcr.io/acme", Settings{}, "invalid registry"},
		{"CA file without a certificate", "ghcr.io", Settings{CAs: []byte("hello")}, "ca_file holds no certificate"},
		{"empty CA file", "ghcr.io", Settings{CAs: []byte{}}, "ca_file holds no certificate"},
		{"empty certificate", "ghcr.io", Settings{ClientCert: &tls.Certificate{}}, "client_cert_file holds no certificate"},
		{"negative rate", "ghcr.io", Settings{RequestsPerSecond: -1}, "negative"},
		{"rate that is no number", "ghcr.io", Settings{RequestsPerSecond: math.NaN()}, "no number"},
		{"infinite rate", "ghcr.io", Settings{RequestsPerSecond: math.Inf(1)}, "no number"},
		{"negative concurrency", "ghcr.io", Settings{MaxConcurrent: -1}, "negative"},
		{"negative timeout", "ghcr.io", Settings{Timeout: -1}, "negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.settings.Origin = "/f.hcl:9"
			opts := Options{Registries: map[ociaddr.Registry]Settings{tt.registry: tt.settings}}
			err := opts.Validate()
			if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "at /f.hcl:9") || hint.Of(err) == "") {
				t.Errorf("%v (hint %q), want %q", err, hint.Of(err), tt.want)
			}
		})
	}
	twice := Options{Registries: map[ociaddr.Registry]Settings{"docker.io": {}, "index.docker.io": {}}}
	if err := twice.Validate(); err == nil || !strings.Contains(err.Error(), "docker.io and index.docker.io, which are one registry") {
		t.Errorf("two for one: %v", err)
	}
	foreign := Options{Transport: &script{}, Registries: map[ociaddr.Registry]Settings{"ghcr.io": {Timeout: 1}}}
	if err := foreign.Validate(); err == nil || !strings.Contains(err.Error(), "*http.Transport") {
		t.Errorf("a transport that cannot be changed: %v", err)
	}
}

func TestDeniedMeansAbsent(t *testing.T) {
	c := New(Options{Registries: map[ociaddr.Registry]Settings{"ghcr.io": {DeniedMeansAbsent: true}, "quay.io": {}}})
	for repository, want := range map[string]bool{"ghcr.io/a/b": true, "GHCR.io/a/b": true, "quay.io/a/b": false, "docker.io/a/b": false} {
		if got := c.Settings(mustRepository(t, repository).Registry).DeniedMeansAbsent; got != want {
			t.Errorf("%s: %t", repository, got)
		}
	}
}

func TestDefaultTransport(t *testing.T) {
	tr, ok := defaultTransport().(*http.Transport)
	if !ok || tr.TLSHandshakeTimeout != 10*time.Second || tr.ResponseHeaderTimeout != 60*time.Second || tr.MaxIdleConnsPerHost != 16 || tr.Proxy == nil || !tr.ForceAttemptHTTP2 {
		t.Errorf("transport %+v", tr)
	}
	if tr == http.DefaultTransport {
		t.Error("the transport is net/http's default")
	}
}
