package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/howto"
	testorigin "github.com/ocibridge/ocibridge/internal/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/testkit/quirks"
	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/internal/testkit/tlsca"
)

// TestGHCRHowTo runs docs/howto/ghcr.md.
func TestGHCRHowTo(t *testing.T) {
	s := newSite(t, "ghcr", nil)
	howto.Run{
		Page: "ghcr", Replace: []string{"ghcr.io", s.host, "localhost:8080", freeAddress(t)},
		Fails: []string{"ocibridge list registry.opentofu.org/hashicorp/null", "ocibridge remove"},
		Dir:   s.home, Env: append(s.env, "GHCR_TOKEN="+s.password),
	}.Do(t)
}

// TestECRHowTo runs docs/howto/ecr.md.
func TestECRHowTo(t *testing.T) {
	var s *site
	s = newSite(t, "ecr", func(w http.ResponseWriter, r *http.Request) { s.aws(w, r) })
	s.program("aws", awsShim)
	s.program("docker-credential-ecr-login", helperShim)
	howto.Run{
		Page: "ecr", Replace: []string{"123456789012.dkr.ecr.eu-west-1.amazonaws.com", s.host, "localhost:8080", freeAddress(t)},
		Before: map[string]string{"put-image-tag-mutability": "ocibridge push " + howToProvider + "@3.6.0"},
		After:  "ocibridge sync",
		Fails:  []string{"ocibridge push registry.opentofu.org/hashicorp/null"},
		Dir:    s.home, Env: append(s.env, "AWS_SHIM=https://"+s.host+"/aws", "AWS_SHIM_PASSWORD="+s.password),
	}.Do(t)
}

// TestGitLabHowTo runs docs/howto/gitlab.md.
func TestGitLabHowTo(t *testing.T) {
	s := newSite(t, "gitlab", nil)
	s.registry.Set(func(s *quirks.Settings) { s.User = "gitlab+deploy-token-42" })
	howto.Run{
		Page: "gitlab", Replace: []string{"registry.gitlab.com", s.host, "localhost:8080", freeAddress(t)},
		Fails: []string{"ocibridge exec"},
		Dir:   s.home, Env: append(s.env, "DEPLOY_TOKEN="+s.password),
	}.Do(t)
}

// TestPushingHowTo runs docs/howto/pushing.md.
func TestPushingHowTo(t *testing.T) {
	s := newSite(t, "distribution", nil)
	howto.Run{Page: "pushing", Replace: []string{"registry.example.com", s.host}, Dir: s.home, Env: s.env}.Do(t)
}

// TestSyncingHowTo runs docs/howto/syncing.md.
func TestSyncingHowTo(t *testing.T) {
	s := newSite(t, "distribution", nil)
	howto.Run{Page: "syncing", Replace: []string{"registry.example.com", s.host}, Dir: s.home, Env: s.env}.Do(t)
}

// site is a registry that imitates another one, an origin, and a home folder for the user who follows a page.
type site struct {
	t        *testing.T
	registry *quirks.Registry
	password string
	home     string
	host     string // of the registry
	env      []string
}

// newSite returns a site with the registry of a profile. extra, unless nil, answers requests for paths below /aws.
func newSite(t *testing.T, profile string, extra http.HandlerFunc) *site {
	i := slices.IndexFunc(quirks.Profiles(), func(p quirks.Profile) bool { return p.Name == profile })
	p := quirks.Profiles()[i]
	s := &site{t: t, registry: quirks.For(t, p.Settings), password: p.Password, home: t.TempDir()}
	mux := http.NewServeMux()
	mux.Handle("/", s.registry)
	if extra != nil {
		mux.HandleFunc("/aws", extra)
	}
	ca := tlsca.For(t)
	config, err := ca.ServerConfig()
	if err != nil {
		t.Fatal(err)
	}
	file, err := ca.WriteFile(s.home)
	if err != nil {
		t.Fatal(err)
	}
	start := func(handler http.Handler) string {
		server := httptest.NewUnstartedServer(handler)
		server.TLS = config
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	s.host = start(mux)
	signer := pgp.For(t, "Acme")
	var releases []*release.Release
	for _, name := range []string{"random", "null"} {
		for _, v := range []string{"3.6.0", "3.7.1", "3.7.2"} {
			spec := release.Spec{Host: "registry.opentofu.org", Namespace: "hashicorp", Type: name, Version: v, Signer: signer}
			for _, os := range []string{"linux", "darwin"} {
				spec.Contents = append(spec.Contents, release.Content{OS: os, Arch: "amd64", Files: map[string][]byte{"terraform-provider-" + name + "_v" + v: []byte(os)}})
			}
			releases = append(releases, release.For(t, spec))
		}
	}
	origin := start(testorigin.New(testorigin.Options{}, releases...))
	cli := filepath.Join(s.home, "cli.tfrc")
	s.write(cli, fmt.Sprintf("host %q {\n  services = {\n    \"providers.v1\" = \"https://%s%s\"\n  }\n}\n", "registry.opentofu.org", origin, testorigin.ServicePath), 0o600)
	s.env = []string{"SSL_CERT_FILE=" + file, "TF_CLI_CONFIG_FILE=" + cli}
	return s
}

func (s *site) write(file, text string, mode os.FileMode) {
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		s.t.Fatal(err)
	}
}

// program adds a program to the PATH of the page.
func (s *site) program(name, script string) {
	folder := filepath.Join(s.home, "shims")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		s.t.Fatal(err)
	}
	s.write(filepath.Join(folder, name), script, 0o700)
	if len(s.env) == 2 {
		s.env = append(s.env, "PATH="+folder+string(os.PathListSeparator)+tools(s.t)+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
}

// freeAddress returns an address that no server listens on.
func freeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
