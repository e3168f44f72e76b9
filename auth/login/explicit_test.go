package login

import (
	"strings"
	"testing"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// block returns a login for the prefix. credential is USER:PASSWORD, "helper:NAME", or
// a list such as "access:TOKEN refresh:TOKEN".
func block(prefix, credential string) Login {
	l := Login{Prefix: prefix, Origin: "/etc/x.hcl:7"}
	for part := range strings.FieldsSeq(credential) {
		kind, value, _ := strings.Cut(part, ":")
		switch kind {
		case "helper":
			l.Helper = value
		case "access":
			l.AccessToken = NewSecret(value)
		case "refresh":
			l.RefreshToken = NewSecret(value)
		default:
			l.Username, l.Password = NewSecret(kind), NewSecret(value)
		}
	}
	return l
}

func TestLoginValidation(t *testing.T) {
	tests := []struct {
		name, prefix, credential string
		want                     string // a part of the error; "" for a valid login
	}{
		{"password", "ghcr.io", "u:s3cr3t", ""},
		{"password with colons and a dollar", "ghcr.io/acme", "robot$acme+push:s3:cr3t", ""},
		{"port", "localhost:5000/a/b", "u:s3cr3t", ""},
		{"upper case host", "GHCR.io", "u:s3cr3t", ""},
		{"access token", "ghcr.io", "access:s3cr3t", ""},
		{"both tokens", "ghcr.io/acme", "access:s3cr3t refresh:s3cr3t", ""},
		{"helper", "ghcr.io", "helper:osxkeychain", ""},

		{"nothing", "ghcr.io", "", "holds no credential"},
		{"user alone", "ghcr.io", "u:", "only one of username and password"},
		{"password alone", "ghcr.io", ":s3cr3t", "only one of username and password"},
		{"refresh token alone", "ghcr.io", "refresh:s3cr3t", "a refresh_token without an access_token"},
		{"password and token", "ghcr.io", "u:s3cr3t access:s3cr3t", "more than one kind"},
		{"password and helper", "ghcr.io", "u:s3cr3t helper:x", "more than one kind"},
		{"token and helper", "ghcr.io", "refresh:s3cr3t helper:x", "more than one kind"},
		{"everything", "ghcr.io", "u:s3cr3t access:s3cr3t helper:x", "more than one kind"},
		{"helper with a path in its name", "ghcr.io", "helper:../x", `names the helper "../x", which holds a path`},
		{"helper with a path in its name, Windows", "ghcr.io", `helper:x\y`, "which holds a path"},
		{"helper for a path", "ghcr.io/acme", "helper:x", "has a path and docker_credentials_helper"},

		{"no label", "", "u:s3cr3t", "neither a registry nor a repository prefix"},
		{"URL", "https://ghcr.io", "u:s3cr3t", "neither a registry nor a repository prefix"},
		{"slash at the end", "ghcr.io/", "u:s3cr3t", "neither a registry nor a repository prefix"},
		{"slash at the end of a path", "ghcr.io/acme/", "u:s3cr3t", "neither a registry nor a repository prefix"},
		{"upper case path", "ghcr.io/Acme", "u:s3cr3t", "neither a registry nor a repository prefix"},
		{"tag", "ghcr.io/acme:1", "u:s3cr3t", "neither a registry nor a repository prefix"},
		{"digest", "ghcr.io/acme@sha256:0", "u:s3cr3t", "neither a registry nor a repository prefix"},
		{"port that is none", "ghcr.io:x", "u:s3cr3t", "neither a registry nor a repository prefix"},
		{"asterisk", "*.ghcr.io", "u:s3cr3t", "neither a registry nor a repository prefix"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := block(tt.prefix, tt.credential)
			err := l.Validate()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Validate: %v, want %q", err, tt.want)
			}
			c := New(Options{Explicit: []Login{l}})
			_, rerr := c.For(mustRepository(t, "elsewhere.test/a/b"))
			if (rerr == nil) != (err == nil) {
				t.Errorf("a client with it: %v", rerr)
			}
			if err == nil {
				return
			}
			if !strings.Contains(err.Error(), "at /etc/x.hcl:7") || hint.Of(err) == "" {
				t.Errorf("no place or no hint: %v (hint %q)", err, hint.Of(err))
			}
			if strings.Contains(err.Error()+hint.Of(err), "s3cr3t") {
				t.Errorf("the secret shows: %v", err)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	first, second := block("ghcr.io/acme", "u:p"), block("ghcr.io/acme", "access:x")
	first.Origin = "/home/u/.tofurc:3"
	err := Check([]Login{block("ghcr.io", "u:p"), first, second})
	if err == nil || !strings.Contains(err.Error(), `a second oci_credentials block "ghcr.io/acme" at /etc/x.hcl:7; the first is at /home/u/.tofurc:3`) || hint.Of(err) == "" {
		t.Errorf("%v", err)
	}
	if err := Check([]Login{block("ghcr.io", "u:p"), block("ghcr.io/acme", "u:p"), block("docker.io", "u:p"), block("index.docker.io", "u:p")}); err != nil {
		t.Error(err)
	}
	if err := Check([]Login{block("ghcr.io", "u:")}); err == nil {
		t.Error("an invalid login is accepted")
	}
}

func TestDefaultsValidation(t *testing.T) {
	tests := []struct {
		name     string
		defaults Defaults
		want     string
	}{
		{"discovery", Defaults{Discover: true}, ""},
		{"no discovery", Defaults{}, ""},
		{"files", Defaults{Discover: true, Files: []string{"/a"}, Helper: "x"}, ""},
		{"no files", Defaults{Discover: true, Files: []string{}}, ""},
		{"files without discovery", Defaults{Files: []string{"/a"}}, "names docker_style_config_files and forbids discovery"},
		{"no files without discovery", Defaults{Files: []string{}}, "names docker_style_config_files and forbids discovery"},
		{"file without a name", Defaults{Discover: true, Files: []string{"/a", ""}}, "an empty name"},
		{"helper with a path", Defaults{Helper: "a/b"}, "holds a path"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.defaults.Origin = "/f:1"
			err := Options{Defaults: &tt.defaults}.Validate()
			if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "at /f:1") || hint.Of(err) == "") {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestVariables(t *testing.T) {
	tests := []struct {
		name string
		vars string // the variables, without the common prefix of their names; REGISTRY is OCIBRIDGE_REGISTRY
		want auth.Credential
		err  string
	}{
		{"none", "", auth.EmptyCredential, ""},
		{"password", "REGISTRY=ghcr.io USERNAME=robot$acme+push PASSWORD=s3cr3t", auth.Credential{Username: "robot$acme+push", Password: "s3cr3t"}, ""},
		{"token for a prefix", "REGISTRY=ghcr.io/acme TOKEN=s3cr3t", auth.Credential{AccessToken: "s3cr3t"}, ""},
		{"identity token", "REGISTRY=ghcr.io IDENTITY_TOKEN=s3cr3t", auth.Credential{RefreshToken: "s3cr3t"}, ""},
		{"both tokens", "REGISTRY=ghcr.io TOKEN=s3cr3t IDENTITY_TOKEN=s3cr3t2", auth.Credential{AccessToken: "s3cr3t", RefreshToken: "s3cr3t2"}, ""},

		{"registry alone", "REGISTRY=ghcr.io", auth.EmptyCredential, "the login for ghcr.io in the variables OCIBRIDGE_REGISTRY_... holds no credential"},
		{"secret that a job may not see", "REGISTRY=ghcr.io TOKEN=", auth.EmptyCredential, "holds no credential"},
		{"token without a registry", "TOKEN=s3cr3t", auth.EmptyCredential, "OCIBRIDGE_REGISTRY_TOKEN is set and OCIBRIDGE_REGISTRY is not"},
		{"user alone", "REGISTRY=ghcr.io USERNAME=u", auth.EmptyCredential, "has only one of OCIBRIDGE_REGISTRY_USERNAME and OCIBRIDGE_REGISTRY_PASSWORD"},
		{"password alone", "REGISTRY=ghcr.io PASSWORD=s3cr3t", auth.EmptyCredential, "has only one of OCIBRIDGE_REGISTRY_USERNAME and OCIBRIDGE_REGISTRY_PASSWORD"},
		{"password and token", "REGISTRY=ghcr.io USERNAME=u PASSWORD=s3cr3t TOKEN=s3cr3t", auth.EmptyCredential, "holds credentials of more than one kind"},
		{"user and identity token", "REGISTRY=ghcr.io USERNAME=u IDENTITY_TOKEN=s3cr3t", auth.EmptyCredential, "holds credentials of more than one kind"},
		{"URL", "REGISTRY=https://ghcr.io TOKEN=s3cr3t", auth.EmptyCredential, "OCIBRIDGE_REGISTRY: invalid"},
		{"tag", "REGISTRY=ghcr.io/acme:1 TOKEN=s3cr3t", auth.EmptyCredential, "OCIBRIDGE_REGISTRY: invalid"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			vars := map[string]string{}
			for entry := range strings.FieldsSeq(tt.vars) {
				name, value, _ := strings.Cut(entry, "=")
				vars[strings.TrimSuffix("OCIBRIDGE_REGISTRY_"+name, "_REGISTRY")] = value
			}
			env := environment("linux", vars, nil)
			if err := (Options{Environment: env}).Validate(); (err == nil) != (tt.err == "") {
				t.Errorf("Validate: %v", err)
			}
			l, err := env.variableLogin()
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || hint.Of(err) == "" || strings.Contains(err.Error()+hint.Of(err), "s3cr3t") {
					t.Errorf("error %v (hint %q), want %q", err, hint.Of(err), tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if l == nil {
				if tt.want != auth.EmptyCredential {
					t.Error("no login")
				}
				return
			}
			if got := l.cred.reveal(); got != tt.want || strings.Contains(l.String(), "s3cr3t") {
				t.Errorf("%s: %+v, want %+v", l, got, tt.want)
			}
		})
	}
}

func FuzzLogin(f *testing.F) {
	for _, seed := range []string{"ghcr.io", "ghcr.io/acme/null", "https://ghcr.io", "[::1]:5000/a", "GHCR.io/a", "a//b", "index.docker.io", ":", "x/v2/"} {
		f.Add(seed, "ghcr.io/acme/null")
	}
	f.Fuzz(func(t *testing.T, prefix, repository string) {
		l := block(prefix, "u:marked-secret")
		if err := l.Validate(); err != nil {
			if strings.Contains(err.Error(), "marked-secret") && !strings.Contains(prefix, "marked-secret") || hint.Of(err) == "" {
				t.Errorf("%v (hint %q)", err, hint.Of(err))
			}
			return
		}
		r, err := ociaddr.ParseRepository(repository)
		if err != nil {
			return
		}
		// Compute the expected specificity of the prefix in the simplest way.
		host, path, _ := strings.Cut(prefix, "/")
		sameHost := ociaddr.Registry(host).Canonical() == r.Registry.Canonical()
		under := path == "" || strings.HasPrefix(r.Name+"/", path+"/")
		want := noMatch
		if sameHost && under {
			want = wholeHost
			if path != "" {
				want += strings.Count(path, "/") + 1
			}
		}
		if got := l.asSource().key.specificity(r); got != want {
			t.Errorf("%q for %s: specificity %d, want %d", prefix, r, got, want)
		}
	})
}
