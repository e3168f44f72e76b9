package serve

import (
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/module"
)

// moduleSite returns a site with the given configuration, or the error why there is none. It trusts the CA.
func moduleSite(t *testing.T, ca *tlsca.CA, config string) (*site, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "ocibridge.hcl")
	write(t, file, []byte(config))
	write(t, filepath.Join(dir, ".terraformrc"), nil)
	s, err := loadSettings(dir, file, &files.Snapshot{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Repositories.Templates = append(s.Repositories.Templates, s.Config.Templates().Of(subject.Module)...)
	s.Repositories.Auth.Wire.Registries = s.Config.RegistrySettings()
	s.Origins.CAs = ca.CertPEM()
	out, err := testProcess(t, slog.New(slog.DiscardHandler)).newSite(s, nil)
	if err == nil {
		t.Cleanup(func() { out.Close() })
	}
	return out, err
}

// TestModuleOrigin shows which modules have an origin. A module has none if the discovery document of its host says
// that the host has no module registry, but it is unknown if there is no such document.
func TestModuleOrigin(t *testing.T) {
	ca := tlsca.For(t)
	origin := func(contentType, document string) (string, *recorder.Recorder) {
		rec := recorder.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if document == "" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", contentType)
			fmt.Fprint(w, document)
		}))
		server := httptest.NewUnstartedServer(rec)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		var err error
		if server.TLS, err = ca.ServerConfig("127.0.0.1"); err != nil {
			t.Fatal(err)
		}
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.Listener.Addr().String(), rec
	}
	const json = "application/json"
	modules, asked := origin(json, `{"modules.v1":"/v1/modules/"}`)
	other, _ := origin(json, `{"providers.v1":"/v1/providers/"}`)
	without, _ := origin("", "")
	page, _ := origin("text/html", "<html>")
	unnamed, unasked := origin(json, `{"modules.v1":"/v1/modules/"}`)
	s, err := moduleSite(t, ca, fmt.Sprintf(`
oci_mirror {
  repository_template = "localhost:1/${hostname}/${namespace}/${type}"
}
module_mirror {
  repository_template = "localhost:1/${hostname}/${namespace}/${name}/${system}"
  include             = ["%[1]s/private/*/*"]
}
module_mirror {
  repository_template = "localhost:1/${hostname}/${namespace}/${name}/${system}"
  include             = ["%[1]s/*/*/*", "%[2]s/*/*/*", "%[3]s/*/*/*", "%[4]s/*/*/*", "*/*/*/*"]
  exclude             = ["%[1]s/private/*/*", "registry.acme.example/*/*/*"]
  fall_through        = true
}
gateway {
  public_url = "https://own.example/"
  token "ci" {
    sha256 = "%[5]s"
  }
}
`, modules, other, without, page, testTokenSum))
	if err != nil {
		t.Fatal(err)
	}
	find := s.moduleOrigin()
	for name, tc := range map[string]struct{ module, want, says string }{
		"a module registry":          {modules + "/acme/net/aws", "https://" + modules + "/v1/modules/", ""},
		"a host without modules":     {other + "/acme/net/aws", "<nil>", ""},
		"no discovery document":      {without + "/acme/net/aws", "<nil>", "does not provide a modules service"},
		"a page for people":          {page + "/acme/net/aws", "<nil>", "Content-Type"},
		"no fall_through":            {modules + "/private/net/aws", "<nil>", ""},
		"the gateway's own host":     {"own.example/public/net/aws", "<nil>", ""},
		"a private host, not named":  {unnamed + "/public/net/aws", "<nil>", "not public"},
		"a host that is not there":   {"127.0.0.1:1/public/net/aws", "<nil>", "127.0.0.1:1"},
		"a module that no block has": {"registry.acme.example/acme/net/aws", "<nil>", ""},
	} {
		at, err := find(t.Context(), module.MustParseAddress(tc.module))
		if got := fmt.Sprint(at); got != tc.want || (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %s, %v, want %s and an error with %q", name, got, err, tc.want, tc.says)
		}
	}
	if asked.Count() != 1 || unasked.Count() != 0 {
		t.Errorf("%d requests to the origin, %d to the private host", asked.Count(), unasked.Count())
	}
	s, err = moduleSite(t, ca, strings.ReplaceAll(plainModules, "direct", "fall_through = false #"))
	if err != nil || s.moduleOrigin() != nil {
		t.Errorf("without fall_through: %v", err)
	}
}

// plainModules is a configuration for modules that clients download from a registry with plain HTTP.
const plainModules = `
oci_mirror {
  repository_template = "registry.example:5000/${hostname}/${namespace}/${type}"
}
module_mirror {
  repository_template = "registry.example:5000/${hostname}/${namespace}/${name}/${system}"
  direct = true
}
registry "registry.example:5000" {
  plain_http = true
}
`

// TestDirectNeedsTLS shows that a gateway does not send clients to a registry that speaks plain HTTP.
func TestDirectNeedsTLS(t *testing.T) {
	for name, tc := range map[string]struct {
		config  string
		refused bool
	}{
		"plain HTTP":                    {plainModules, true},
		"plain HTTP, through the proxy": {strings.ReplaceAll(plainModules, "direct = true", "direct = false"), false},
		"TLS":                           {strings.ReplaceAll(plainModules, "plain_http = true", "plain_http = false"), false},
		"plain HTTP elsewhere":          {strings.ReplaceAll(plainModules, `registry "registry.example:5000"`, `registry "other.example:5000"`), false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := moduleSite(t, tlsca.For(t), tc.config)
			if tc.refused != errors.As(err, new(UsageError)) || !tc.refused && err != nil ||
				tc.refused && (!strings.Contains(err.Error(), "registry.example:5000") || !strings.Contains(hint.Of(err), "leave out direct")) {
				t.Errorf("%v (%s)", err, hint.Of(err))
			}
		})
	}
}

// TestPulledModulesDoNotFallThrough shows that a module that may be pulled through has no origin to which clients are redirected,
// although its module_mirror block has fall_through. Its origin could have versions that a cooldown hides.
func TestPulledModulesDoNotFallThrough(t *testing.T) {
	ca := tlsca.For(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"modules.v1":"/v1/modules/"}`)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	var err error
	if server.TLS, err = ca.ServerConfig("127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	at := server.Listener.Addr().String()
	s, err := moduleSite(t, ca, fmt.Sprintf(`
module_mirror {
  repository_template = "localhost:1/${hostname}/${namespace}/${name}/${system}"
  include             = ["%[1]s/*/*/*"]
  fall_through        = true
}
pull_through {
  include = ["%[1]s/acme/*/*"]
  exclude = ["%[1]s/acme/left/*"]
}
`, at))
	if err != nil {
		t.Fatal(err)
	}
	for address, falls := range map[string]bool{"/acme/net/aws": false, "/acme/left/aws": true, "/other/net/aws": true} {
		if to, err := s.moduleOrigin()(t.Context(), module.MustParseAddress(at+address)); err != nil || (to != nil) != falls {
			t.Errorf("%s: %v, %v", address, to, err)
		}
	}
}
