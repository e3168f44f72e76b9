package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/svcauth"
)

// answers is a transport that answers a request by its URL.
type answers struct {
	by      map[string]answer
	private bool  // requests without the token of acme are refused
	failed  error // the error of every request; nil for none
	asked   atomic.Int32
}

type answer struct {
	status      int
	contentType string
	location    string
	body        string
}

// RoundTrip implements [http.RoundTripper]. A request with an unknown URL gets no response until its context ends.
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.asked.Add(1)
	if token := r.Header.Get("Authorization"); token != "" && (r.URL.Host != string(acme) || r.URL.Scheme != "https") {
		return nil, fmt.Errorf("%s gets the token %s", r.URL, token)
	} else if a.private && token != "Bearer acme-token" {
		return &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody, Request: r}, nil
	}
	found, ok := a.by[r.URL.String()]
	if a.failed != nil {
		return nil, a.failed
	}
	if !ok {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	header := http.Header{"Content-Type": {found.contentType}, "Location": {found.location}}
	return &http.Response{StatusCode: found.status, Header: header, Body: io.NopCloser(strings.NewReader(found.body)), Request: r}, nil
}

func jsonBody(body string) answer { return answer{http.StatusOK, "application/json", "", body} }

// newDiscovery returns a discovery with a cache, and with a clock that the test sets.
func newDiscovery(t *testing.T, a *answers, now *time.Time) *discovery {
	t.Helper()
	return &discovery{transport: a, folder: t.TempDir(), now: func() time.Time { return *now }, log: slog.New(slog.DiscardHandler)}
}

const acme = svchost.Hostname("acme.example")

func TestDiscovery(t *testing.T) {
	const at = "https://acme.example/.well-known/terraform.json"
	for name, tc := range map[string]struct {
		by   map[string]answer
		want string
	}{
		"relative": {map[string]answer{at: jsonBody(`{"modules.v1": "/v1/modules/", "tfe.v2": "api/", "state.v2": "https://state.example/"}`)},
			"map[modules.v1:https://acme.example/v1/modules/ state.v2:https://state.example/ tfe.v2:https://acme.example/.well-known/api/]"},
		"login": {map[string]answer{at: jsonBody(`{"login.v1": {"client": "cli", "authz": "/authorize", "token": "https://login.example/token", "ports": [1, 2]}}`)},
			"map[login.v1:map[authz:https://acme.example/authorize client:cli ports:[1 2] token:https://login.example/token]]"},
		"redirected": {map[string]answer{at: {302, "", "https://other.example/x/doc.json", ""}, "https://other.example/x/doc.json": jsonBody(`{"modules.v1": "modules/"}`)},
			"map[modules.v1:https://other.example/x/modules/]"},
		"media type with charset": {map[string]answer{at: {200, "application/json; charset=utf-8", "", `{"modules.v1": "/m/"}`}}, "map[modules.v1:https://acme.example/m/]"},
		"other kinds":             {map[string]answer{at: jsonBody(`{"modules.v1": 7, "x.v1": null, "y.v1": ["a"]}`)}, "map[]"},
		"plain HTTP":              {map[string]answer{at: {302, "", "http://acme.example/doc.json", ""}, "http://acme.example/doc.json": jsonBody(`{"modules.v1": "/m/"}`)}, "map[]"},
		"redirected for ever":     {map[string]answer{at: {302, "", at, ""}}, "map[]"},
		"absent":                  {map[string]answer{at: {404, "application/json", "", "{}"}}, "map[]"},
		"HTML":                    {map[string]answer{at: {200, "text/html", "", "{}"}}, "map[]"},
		"no object":               {map[string]answer{at: jsonBody(`[]`)}, "map[]"},
		"too large":               {map[string]answer{at: jsonBody(`{"modules.v1": "/m/", "x": "` + strings.Repeat("x", 1<<17) + `"}`)}, "map[]"},
		"too many values":         {map[string]answer{at: jsonBody(`{"modules.v1": "/m/", "x": [` + strings.Repeat("1,", 2000) + `1]}`)}, "map[]"},
	} {
		now := time.Now()
		d := newDiscovery(t, &answers{by: tc.by}, &now)
		if got := fmt.Sprint(d.services(t.Context(), acme)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestServicesOfAll shows which hosts are asked: neither public hosts nor hosts with a host block.
func TestServicesOfAll(t *testing.T) {
	now := time.Now()
	a := &answers{by: map[string]answer{"https://acme.example/.well-known/terraform.json": jsonBody(`{"modules.v1": "/m/"}`)}}
	configured := map[svchost.Hostname]services{"mine.example": {"providers.v1": "https://mine.example/p/"}, openTofuHost: {"modules.v1": "https://mirror.example/m/"}}
	got := newDiscovery(t, a, &now).all(t.Context(), []svchost.Hostname{acme, "mine.example", openTofuHost, terraformHost}, configured)
	want := "map[acme.example:map[modules.v1:https://acme.example/m/] mine.example:map[providers.v1:https://mine.example/p/] registry.opentofu.org:map[modules.v1:https://mirror.example/m/] registry.terraform.io:map[modules.v1:https://registry.terraform.io/v1/modules/ providers.v1:https://registry.terraform.io/v1/providers/]]"
	if fmt.Sprint(got) != want || a.asked.Load() != 1 {
		t.Errorf("%v with %d requests, want %s", got, a.asked.Load(), want)
	}
}

// TestDiscoveryIsCached shows for how long a document is used without a request, and that an old one serves while the
// host does not answer.
func TestDiscoveryIsCached(t *testing.T) {
	const at = "https://acme.example/.well-known/terraform.json"
	now := time.Now()
	a := &answers{by: map[string]answer{at: jsonBody(`{"modules.v1": "/old/"}`)}}
	d := newDiscovery(t, a, &now)
	want := func(services string, asked int32) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got := fmt.Sprint(d.services(ctx, acme)); got != services || a.asked.Load() != asked {
			t.Errorf("%s with %d requests, want %s with %d", got, a.asked.Load(), services, asked)
		}
	}
	want("map[modules.v1:https://acme.example/old/]", 1)
	now = now.Add(discoveryTTL - 1)
	want("map[modules.v1:https://acme.example/old/]", 1)
	now = now.Add(1)
	a.by[at] = answer{status: http.StatusServiceUnavailable}
	want("map[modules.v1:https://acme.example/old/]", 2)
	a.by[at] = jsonBody(`{"modules.v1": "/new/"}`) // it answers again, and is asked at once
	want("map[modules.v1:https://acme.example/new/]", 3)
	now = now.Add(-time.Minute) // the clock has gone back
	want("map[modules.v1:https://acme.example/new/]", 4)
	if err := os.WriteFile(d.path(acme), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("map[modules.v1:https://acme.example/new/]", 5)
	d.folder = ""
	want("map[modules.v1:https://acme.example/new/]", 6)
}

// TestHangingHost shows that a host without an answer costs at most discoveryTimeout, however many there are.
func TestHangingHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		d := newDiscovery(t, &answers{}, &now)
		var hosts []svchost.Hostname
		for i := range 20 {
			hosts = append(hosts, svchost.Hostname(fmt.Sprintf("h%d.example", i)))
		}
		got := d.all(t.Context(), hosts, nil)
		if took := time.Since(now); took > discoveryTimeout || len(got) != len(hosts) || got["h7.example"] != nil {
			t.Errorf("%v after %v", got, took)
		}
	})
}

// TestFailureIsCached shows that a host that does not answer in time is not asked again for a while, unless an
// interrupt ended the request.
func TestFailureIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{}
		d := &discovery{transport: a, folder: t.TempDir(), now: time.Now, log: slog.New(slog.DiscardHandler)}
		ctx, interrupt := context.WithCancel(t.Context())
		interrupt()
		d.all(ctx, []svchost.Hostname{acme}, nil)
		for i, want := range []time.Duration{discoveryTimeout, 0, 0, discoveryTimeout, 0} {
			if i == 3 {
				d.now = func() time.Time { return time.Now().Add(failureTTL) }
			}
			before := time.Now()
			d.all(t.Context(), []svchost.Hostname{acme}, nil)
			if took := time.Since(before); took != want {
				t.Errorf("run %d takes %s, want %s", i, took, want)
			}
		}
		if got := a.asked.Load(); got != 3 {
			t.Errorf("%d requests, want 3", got)
		}
	})
}

// tokens is the source of the token of acme and of a host with a broken helper.
type tokens struct{}

func (tokens) ForHost(_ context.Context, host svchost.Hostname) (svcauth.HostCredentials, error) {
	switch host {
	case acme:
		return svcauth.HostCredentialsToken("acme-token"), nil
	case "broken.example":
		return nil, errors.New("the helper fails")
	}
	return nil, nil
}

// TestHostThatDoesNotExist shows that a host without an address causes no warning, because hosts may only name
// providers. Other failures cause one.
func TestHostThatDoesNotExist(t *testing.T) {
	now := time.Now()
	for want, failed := range map[string]error{
		"level=INFO": &net.DNSError{Name: string(acme), IsNotFound: true},
		"level=WARN": &net.DNSError{Name: string(acme), IsTimeout: true},
	} {
		var log strings.Builder
		d := newDiscovery(t, &answers{failed: failed}, &now)
		d.log = slog.New(slog.NewTextHandler(&log, nil))
		if found := d.services(t.Context(), acme); found != nil || !strings.Contains(log.String(), want) {
			t.Errorf("%v: %v, %s", failed, found, &log)
		}
	}
}

// TestDiscoveryToken shows that discovery sends a host the user's token for it, and that no other host gets this token.
func TestDiscoveryToken(t *testing.T) {
	const at = "https://acme.example/.well-known/terraform.json"
	for name, tc := range map[string]struct {
		host    svchost.Hostname
		by      map[string]answer
		private bool
		want    string
	}{
		"private":                 {acme, map[string]answer{at: jsonBody(`{"modules.v1": "/m/"}`)}, true, "map[modules.v1:https://acme.example/m/]"},
		"redirected":              {acme, map[string]answer{at: {302, "", "/doc.json", ""}, "https://acme.example/doc.json": jsonBody(`{"modules.v1": "/m/"}`)}, true, "map[modules.v1:https://acme.example/m/]"},
		"redirected elsewhere":    {acme, map[string]answer{at: {302, "", "https://other.example/doc.json", ""}, "https://other.example/doc.json": jsonBody(`{"modules.v1": "/m/"}`)}, false, "map[modules.v1:https://other.example/m/]"},
		"redirected to subdomain": {acme, map[string]answer{at: {302, "", "https://x.acme.example/doc.json", ""}, "https://x.acme.example/doc.json": jsonBody(`{"modules.v1": "/m/"}`)}, false, "map[modules.v1:https://x.acme.example/m/]"},
		"redirected to port":      {acme, map[string]answer{at: {302, "", "https://acme.example:1/doc.json", ""}, "https://acme.example:1/doc.json": jsonBody(`{"modules.v1": "/m/"}`)}, false, "map[modules.v1:https://acme.example:1/m/]"},
		"another host":            {"other.example", map[string]answer{"https://other.example/.well-known/terraform.json": jsonBody(`{"modules.v1": "/m/"}`)}, false, "map[modules.v1:https://other.example/m/]"},
		"broken helper":           {"broken.example", map[string]answer{"https://broken.example/.well-known/terraform.json": jsonBody(`{"modules.v1": "/m/"}`)}, false, "map[modules.v1:https://broken.example/m/]"},
	} {
		now := time.Now()
		d := newDiscovery(t, &answers{by: tc.by, private: tc.private}, &now)
		d.credentials = tokens{}
		if got := fmt.Sprint(d.services(t.Context(), tc.host)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestOriginOf(t *testing.T) {
	for text, want := range map[string]string{
		"https://other.example/v1/": "https://other.example/v1/",
		"/v1/providers/":            "https://acme.example/v1/providers/",
		"http://127.0.0.1:1/v1/":    "http://127.0.0.1:1/v1/",
		"ftp://other.example/":      "<nil>",
		"%":                         "<nil>",
	} {
		if got := fmt.Sprint(originOf(acme, services{providersID: text}, providersID)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if got := originOf(acme, nil, providersID); got != nil {
		t.Errorf("without services: %v", got)
	}
}
