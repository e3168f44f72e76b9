package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/howto"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// TestGHCRHowTo runs docs/howto/ghcr.md.
func TestGHCRHowTo(t *testing.T) {
	s := newSite(t, "ghcr", nil)
	howto.Run{
		Page: "ghcr", Replace: []string{"ghcr.io", s.host, "localhost:8080", "127.0.0.1:" + freePort(t)},
		Fails: []string{"ocibridge list registry.opentofu.org/hashicorp/null", "ocibridge remove"},
		Dir:   s.home, Env: append(s.env, "GHCR_TOKEN="+profilePassword),
	}.Do(t)
}

// TestWithoutServerHowTo runs docs/howto/without-server.md with both clients.
func TestWithoutServerHowTo(t *testing.T) {
	s := newSite(t, "ghcr", nil)
	if err := os.WriteFile(filepath.Join(s.home, "secret-acme"), []byte(profilePassword), 0o600); err != nil {
		t.Fatal(err)
	}
	howto.Run{Page: "without-server", Replace: []string{"ghcr.io", s.host}, Dir: s.home, Env: s.env}.Do(t)
}

// TestECRHowTo runs docs/howto/ecr.md.
func TestECRHowTo(t *testing.T) {
	var s *site
	s = newSite(t, "ecr", func(w http.ResponseWriter, r *http.Request) { s.aws(w, r) })
	s.program("aws", awsShim)
	s.program("docker-credential-ecr-login", helperShim)
	howto.Run{
		Page: "ecr", Replace: []string{"123456789012.dkr.ecr.eu-west-1.amazonaws.com", s.host, "localhost:8080", "127.0.0.1:" + freePort(t)},
		After: "ocibridge sync",
		Fails: []string{"ocibridge push registry.opentofu.org/hashicorp/null"},
		Dir:   s.home, Env: append(s.env, s.path(), "AWS_SHIM=https://"+s.host+"/aws", "AWS_SHIM_PASSWORD="+profilePassword),
	}.Do(t)
}

// TestGitLabHowTo runs docs/howto/gitlab.md.
func TestGitLabHowTo(t *testing.T) {
	s := newSite(t, "gitlab", nil)
	s.registry.Set(func(s *quirks.Settings) { s.User = "gitlab+deploy-token-42" })
	howto.Run{
		Page: "gitlab", Replace: []string{"registry.gitlab.com", s.host, "localhost:8080", "127.0.0.1:" + freePort(t)},
		Fails: []string{"ocibridge exec"},
		Dir:   s.home, Env: append(s.env, "DEPLOY_TOKEN="+profilePassword),
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

// profilePassword is the password of the profiles.
const profilePassword = "pass-w0rd"

// site is a registry that imitates another one, an origin, and a home folder for the user who follows a page.
type site struct {
	t        *testing.T
	registry *quirks.Registry
	home     string
	host     string // of the registry
	env      []string
}

// newSite returns a site with the registry of a profile. extra, unless nil, answers requests for the path /aws.
func newSite(t *testing.T, profile string, extra http.HandlerFunc) *site {
	t.Helper()
	s := &site{t: t, registry: registryOf(t, profile), home: t.TempDir()}
	mux := http.NewServeMux()
	mux.Handle("/", s.registry)
	if extra != nil {
		mux.HandleFunc("/aws", extra)
	}
	ca := tlsca.For(t)
	file, err := ca.WriteFile(s.home)
	if err != nil {
		t.Fatal(err)
	}
	s.host = startTLS(t, ca, "127.0.0.1", mux)
	signer := pgp.For(t, "Acme")
	var releases []*release.Release
	for name, versions := range map[string][]string{"random": {"3.6.0", "3.7.1", "3.7.2"}, "null": {"3.2.3", "3.7.2"}} {
		for _, v := range versions {
			spec := release.Spec{Host: "registry.opentofu.org", Namespace: "hashicorp", Type: name, Version: v, Signer: signer}
			for _, os := range []string{"linux", "darwin"} {
				spec.Contents = append(spec.Contents, release.Content{OS: os, Arch: "amd64", Files: map[string][]byte{"terraform-provider-" + name + "_v" + v: []byte(os)}})
			}
			releases = append(releases, release.For(t, spec))
		}
	}
	origin := startTLS(t, ca, "127.0.0.1", testorigin.New(testorigin.Options{}, releases...))
	s.env = []string{"SSL_CERT_FILE=" + file, "TF_CLI_CONFIG_FILE=" + originConfig(t, origin)}
	return s
}

// program adds a program to the folder shims in the home folder.
func (s *site) program(name, script string) {
	s.t.Helper()
	folder := filepath.Join(s.home, "shims")
	err := os.MkdirAll(folder, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name), []byte(script), 0o700)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// path returns a PATH that begins with the folder shims and the tools that make tools installs.
func (s *site) path() string {
	s.t.Helper()
	root, err := clients.Root()
	if err != nil {
		s.t.Fatal(err)
	}
	list := string(os.PathListSeparator)
	return "PATH=" + filepath.Join(s.home, "shims") + list + filepath.Join(root, ".tools", "bin") + list + os.Getenv("PATH")
}
