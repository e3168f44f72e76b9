package login

import (
	"slices"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/loginfiles"
)

// TestLoginsThatOpenTofuMisses shows for each kind of login why OpenTofu does not find
// it. The empty string means that OpenTofu finds the login.
func TestLoginsThatOpenTofuMisses(t *testing.T) {
	const repository = "ghcr.io/acme/null"
	ours := Login{Prefix: "ghcr.io", Username: NewSecret("u"), Password: NewSecret("p")}
	clients := ours
	clients.InCLIConfig = true
	login := loginfiles.JSON("ghcr.io=u:p")
	tests := []struct {
		name     string
		goos     string // "" means linux
		vars     map[string]string
		files    map[string]string
		blocks   []Login
		defaults *Defaults
		want     string
	}{
		{name: "block of the CLI configuration", blocks: []Login{clients}},
		{name: "block of ours", blocks: []Login{ours}, want: "OpenTofu does not read ocibridge.hcl"},
		{name: "helper for all of ours", defaults: &Defaults{Helper: "h"}, want: "OpenTofu does not read ocibridge.hcl"},
		{name: "helper for all of the CLI configuration", defaults: &Defaults{Helper: "h", InCLIConfig: true}},
		{name: "file that our block names", defaults: &Defaults{Discover: true, Files: []string{"/a.json"}}, files: map[string]string{"/a.json": login}, want: "OpenTofu does not look at /a.json"},
		{name: "file that the CLI configuration names", defaults: &Defaults{Discover: true, Files: []string{"/a.json"}, InCLIConfig: true}, files: map[string]string{"/a.json": login}},
		{name: "variables", vars: map[string]string{"OCIBRIDGE_REGISTRY": "ghcr.io", "OCIBRIDGE_REGISTRY_USERNAME": "u", "OCIBRIDGE_REGISTRY_PASSWORD": "p"},
			want: "OpenTofu does not know the variables OCIBRIDGE_REGISTRY_..."},
		{name: "docker", files: map[string]string{dockerConfig: login}},
		{name: "DOCKER_CONFIG", vars: map[string]string{"DOCKER_CONFIG": "/d"}, files: map[string]string{"/d/config.json": login}, want: "OpenTofu does not look at /d/config.json"},
		{name: "DOCKER_CONFIG names the usual folder", vars: map[string]string{"DOCKER_CONFIG": "/home/u/.docker"}, files: map[string]string{dockerConfig: login}},
		{name: "DOCKER_AUTH_CONFIG", vars: map[string]string{"DOCKER_AUTH_CONFIG": login}, want: "OpenTofu does not read the variable DOCKER_AUTH_CONFIG"},
		{name: "REGISTRY_AUTH_FILE", vars: map[string]string{"REGISTRY_AUTH_FILE": "/a.json"}, files: map[string]string{"/a.json": login}, want: "OpenTofu does not know the variable REGISTRY_AUTH_FILE"},
		{name: "REGISTRY_AUTH_FILE names docker's", vars: map[string]string{"REGISTRY_AUTH_FILE": dockerConfig}, files: map[string]string{dockerConfig: login}},
		{name: "helm", files: map[string]string{"/home/u/.config/helm/registry/config.json": login}, want: "OpenTofu does not look at /home/u/.config/helm/registry/config.json"},
		{name: "podman", vars: map[string]string{"XDG_RUNTIME_DIR": "/run/user/1"}, files: map[string]string{"/run/user/1/containers/auth.json": login}},
		{name: "podman without a session", files: map[string]string{"/run/containers/1000/auth.json": login}, want: "OpenTofu does not look at /run/containers/1000/auth.json"},
		{name: "podman's own configuration", files: map[string]string{"/home/u/.config/containers/auth.json": login}},
		{name: "XDG_CONFIG_HOME", vars: map[string]string{"XDG_CONFIG_HOME": "/x"}, files: map[string]string{"/x/containers/auth.json": login}},
		{name: "macOS", goos: "darwin", vars: map[string]string{"XDG_CONFIG_HOME": "/x"}, files: map[string]string{"/home/u/.config/containers/auth.json": login}},
		{name: "dockercfg in the new form", files: map[string]string{"/home/u/.dockercfg": login}},
		{name: "dockercfg", files: map[string]string{"/home/u/.dockercfg": `{"ghcr.io": {"auth": "dTpw"}}`}, want: `OpenTofu reads no file without "auths"`},
		{name: "identity token", files: map[string]string{dockerConfig: `{"auths": {"ghcr.io": {"identitytoken": "t"}}}`}, want: `OpenTofu reads no entry without "auth"`},
		{name: "user and password apart", files: map[string]string{dockerConfig: `{"auths": {"ghcr.io": {"username": "u", "password": "p"}}}`}, want: `OpenTofu reads no entry without "auth"`},
		{name: "URL", files: map[string]string{dockerConfig: loginfiles.JSON("https://ghcr.io=u:p")}, want: "OpenTofu compares registries letter by letter, and https://ghcr.io is not ghcr.io"},
		{name: "capitals", files: map[string]string{dockerConfig: loginfiles.JSON("GHCR.io=u:p")}, want: "OpenTofu compares registries letter by letter, and GHCR.io is not ghcr.io"},
		{name: "prefix", files: map[string]string{dockerConfig: loginfiles.JSON("ghcr.io/acme=u:p")}},
		{name: "helper of a registry", files: map[string]string{dockerConfig: `{"credHelpers": {"ghcr.io": "h"}}`}},
		{name: "helper of a URL", files: map[string]string{dockerConfig: `{"credHelpers": {"https://ghcr.io": "h"}}`}, want: "OpenTofu compares registries letter by letter, and https://ghcr.io is not ghcr.io"},
		{name: "credsStore", files: map[string]string{dockerConfig: `{"credsStore": "h"}`}},
		{name: "damaged file beside it", files: map[string]string{dockerConfig: login, "/home/u/.dockercfg": "{"}, want: "OpenTofu reads no login file while /home/u/.dockercfg does not parse"},
		{name: "empty file beside it", files: map[string]string{dockerConfig: login, "/home/u/.config/containers/auth.json": ""}, want: "OpenTofu reads no login file while /home/u/.config/containers/auth.json does not parse"},
		{name: "damaged file that it does not read", vars: map[string]string{"DOCKER_CONFIG": "/d"}, files: map[string]string{"/d/config.json": "{", "/home/u/.config/containers/auth.json": login}},
		{name: "credsStore elsewhere", vars: map[string]string{"DOCKER_CONFIG": "/d"}, files: map[string]string{"/d/config.json": `{"credsStore": "h"}`}, want: "OpenTofu does not look at /d/config.json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			goos := tt.goos
			if goos == "" {
				goos = "linux"
			}
			c := New(Options{Explicit: tt.blocks, Defaults: tt.defaults, Environment: environment(goos, tt.vars, tt.files)})
			all := c.Considered(t.Context(), mustRepository(t, repository))
			i := slices.IndexFunc(all, func(c Candidate) bool { return c.Login })
			if i < 0 {
				t.Fatalf("no login is found: %+v", all)
			}
			if all[i].Missed != tt.want {
				t.Errorf("%s: missed because %q, want %q", all[i].Source, all[i].Missed, tt.want)
			}
		})
	}
}
