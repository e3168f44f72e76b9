package quirks_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/testkit/quirks"
	"github.com/ocibridge/ocibridge/provider"
)

func profile(t *testing.T, name string) quirks.Profile {
	t.Helper()
	for _, p := range quirks.Profiles() {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no profile %s", name)
	return quirks.Profile{}
}

// TestErrorsSayWhatToDo pushes to registries that refuse.
func TestErrorsSayWhatToDo(t *testing.T) {
	for _, tc := range []struct {
		name, profile string
		create        bool // what the profile wants made first
		change        func(*quirks.Settings)
		template      string // in place of the profile's
		err, hint     string
	}{
		{name: "repository not made", profile: "ecr", err: "does not exist", hint: "aws ecr create-repository --region eu-west-1 --repository-name providers/acme/widget"},
		{name: "repository not made", profile: "gar", err: "does not exist", hint: "gcloud artifacts repositories create providers --repository-format=docker --location=europe --project=acme-project"},
		{name: "project not made", profile: "harbor", err: "project providers not found", hint: `create the project "providers" on harbor.example.com, or correct the template`},
		{name: "project not made, 404", profile: "harbor", change: func(s *quirks.Settings) { s.Projects = false }, err: "does not exist", hint: `create "providers" on harbor.example.com, such as a Harbor project`},
		{name: "quota", profile: "harbor", create: true, change: func(s *quirks.Settings) { s.Full = http.StatusForbidden }, err: "upper limit of 12.0 MiB", hint: "harbor.example.com has no room for more in providers/"},
		{name: "quota, 412", profile: "harbor", create: true, change: func(s *quirks.Settings) { s.Full = http.StatusPreconditionFailed }, err: "upper limit of 12.0 MiB", hint: "have the quota raised (in Harbor, that of the project)"},
		{name: "repository not made", profile: "artifactory", err: "does not exist", hint: `create "providers-local" on acme.jfrog.io, such as`},
		{name: "names of many parts", profile: "dockerhub", template: "docker.io/acme/${hostname}/${namespace}/${type}", err: "name", hint: "docker.io/acme/${namespace}-${type}"},
		{name: "no right to push", profile: "ghcr", change: func(s *quirks.Settings) { s.ReadOnly = true }, err: "denied", hint: "write:packages"},
		{name: "no right to push", profile: "gitlab", change: func(s *quirks.Settings) { s.ReadOnly = true }, err: "", hint: "write_registry"},
		{name: "no right to push", profile: "acr", change: func(s *quirks.Settings) { s.ReadOnly = true }, err: "", hint: "AcrPush"},
		{name: "no right to push", profile: "harbor", create: true, change: func(s *quirks.Settings) { s.Lacks = []string{"push"} }, err: "unauthorized to access repository: providers/registry.acme.example/acme/widget, action: push", hint: "login"},
		{name: "wrong password", profile: "quay", change: func(s *quirks.Settings) { s.Password = "another" }, err: "401", hint: "docker login quay.io"},
		{name: "wrong password", profile: "dockerhub", change: func(s *quirks.Settings) { s.Password = "another"; s.EveryNth = 0 }, err: "401", hint: "docker login"},
		{name: "requests limited", profile: "dockerhub", change: func(s *quirks.Settings) { s.EveryNth = 1 }, err: "429", hint: "limits requests"},
		{name: "uploads limited", profile: "artifactory", create: true, change: func(s *quirks.Settings) { s.MaxBody = 16 }, err: "413", hint: "size of uploads"},
		{name: "a page in place of tags", profile: "gar", create: true, change: func(s *quirks.Settings) {
			s.HTML = func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/tags/list") }
		}, err: "answered with HTML", hint: "a web site, a proxy or a login page answers there"},
	} {
		t.Run(tc.profile+", "+tc.name, func(t *testing.T) {
			p := profile(t, tc.profile)
			if tc.template != "" {
				p.Template = tc.template
			}
			b := newBench(t, p)
			if tc.create {
				b.registry.Create(p.Create)
			}
			if tc.change != nil {
				b.registry.Set(tc.change)
			}
			_, err := b.push("1.0.0")
			if err == nil || !strings.Contains(err.Error(), tc.err) || !strings.Contains(hint.Of(err), tc.hint) {
				t.Errorf("%v\nhint: %s\nwant %q, %q", err, hint.Of(err), tc.err, tc.hint)
			}
			if err != nil && (strings.Contains(err.Error()+hint.Of(err), p.Password) && p.Password != "" || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%v (%s)", err, hint.Of(err))
			}
		})
	}
}

// TestTroubleIsNotAbsence lets every registry be in trouble once something is
// stored: index.json is never 404, nor shorter than it was.
func TestTroubleIsNotAbsence(t *testing.T) {
	for name, change := range map[string]func(*quirks.Settings){
		"requests limited": func(s *quirks.Settings) { s.EveryNth = 1 },
		"pages for people": func(s *quirks.Settings) { s.HTML = func(*http.Request) bool { return true } },
		"wrong password":   func(s *quirks.Settings) { s.Password = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, b *bench) {
				if _, err := b.push("1.0.0"); err != nil {
					t.Fatal(err)
				}
				b.registry.Set(change)
				get := b.serve()
				for _, path := range []string{"index.json", "1.0.0.json"} {
					status, body := get(host + "/acme/widget/" + path)
					if status < 500 && !(name == "wrong password" && status == 200 && b.needsNoPassword()) {
						t.Errorf("%s: %d %s", path, status, body)
					}
				}
			})
		})
	}
}

// needsNoPassword reports whether another password is no trouble: there is none, or
// a token that was given out before is good while it lasts.
func (b *bench) needsNoPassword() bool { return b.profile.User == "" || b.profile.Tokens }

// TestImmutableTags shows that a tag that does not move is no trouble while it need
// not, and that the registry's reason is told where it must.
func TestImmutableTags(t *testing.T) {
	for name, change := range map[string]func(*quirks.Settings){
		"harbor": func(s *quirks.Settings) { s.Immutable, s.ImmutableCode = http.StatusPreconditionFailed, "PRECONDITION" },
		"ecr":    func(s *quirks.Settings) { s.Immutable, s.ImmutableCode = http.StatusBadRequest, "TAG_INVALID" },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, profile(t, name))
			b.registry.Create(b.profile.Create)
			b.registry.Set(change)
			for range 2 {
				if _, err := b.push("1.0.0"); err != nil {
					t.Fatal(err)
				}
			}
			linux, darwin := provider.MustParsePlatform("linux_amd64"), provider.MustParsePlatform("darwin_amd64")
			if _, err := b.push("1.1.0", linux); err != nil {
				t.Fatal(err)
			}
			if _, err := b.push("1.1.0", darwin); err == nil || !strings.Contains(err.Error(), "immutable") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestHiddenBlobs pushes by platform to a registry that refuses each manifest once,
// because another push stores one of its blobs.
func TestHiddenBlobs(t *testing.T) {
	b := newBench(t, profile(t, "distribution"))
	b.registry.Set(func(s *quirks.Settings) { s.HidesOnce = true })
	b.publish("1.0.0")
	for _, p := range []provider.Platform{{OS: "linux", Arch: "amd64"}, {OS: "darwin", Arch: "amd64"}} {
		if _, err := b.push("1.0.0", p); err != nil {
			t.Fatalf("%s: %v", p, err)
		}
	}
	if status, body := b.serve()("registry.acme.example/acme/widget/1.0.0.json"); status != http.StatusOK || !strings.Contains(body, "darwin_amd64") {
		t.Errorf("status %d: %s", status, body)
	}
}
