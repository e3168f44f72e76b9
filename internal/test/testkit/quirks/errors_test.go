package quirks_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
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

// TestErrorsSayWhatToDo shows that when a registry refuses a push, the error contains the reason of the
// registry. The hint says what to do.
func TestErrorsSayWhatToDo(t *testing.T) {
	for _, tc := range []struct {
		name, profile string
		create        bool // create the profile's project or repository first
		change        func(*quirks.Settings)
		template      string // replaces the profile's template
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
		{name: "no right to push", profile: "harbor", create: true, change: func(s *quirks.Settings) { s.Lacks = []string{"push"} }, err: "unauthorized to access repository: providers/registry.acme.example/acme/widget, action: push",
			hint: `was accepted, but lacks the right to push in the project "providers": in Harbor, a robot needs the permission Repository: Push, and a user the role Developer`},
		{name: "no right to read", profile: "harbor", create: true, change: func(s *quirks.Settings) { s.Lacks = []string{"pull", "push"} }, err: "action: pull", hint: `lacks the right to pull in the project "providers"`},
		{name: "wrong password", profile: "harbor", create: true, change: func(s *quirks.Settings) { s.Password = "another" }, err: "unauthorized to access repository: providers/registry.acme.example/acme/widget, action: pull", hint: "docker login harbor.example.com"},
		{name: "name without a project", profile: "harbor", template: "harbor.example.com/${namespace}-${type}", err: "invalid repository name: acme-widget", hint: "a repository name begins with its project: correct the template, such as harbor.example.com/PROJECT/${namespace}/${type}"},
		{name: "proxy-cache project", profile: "harbor", create: true, change: func(s *quirks.Settings) { s.Proxies = []string{"providers"} }, err: "can not push artifact to a proxy project: providers", hint: `the project "providers" on harbor.example.com is a proxy cache, which takes no pushes: name another project`},
		{name: "read-only mode", profile: "harbor", create: true, change: func(s *quirks.Settings) { s.ReadOnlyMode = true }, err: "The system is in read only mode", hint: "harbor.example.com is in read-only mode, and takes no changes from any login"},
		{name: "wrong password", profile: "quay", change: func(s *quirks.Settings) { s.Password = "another" }, err: "401", hint: "docker login quay.io"},
		{name: "wrong password", profile: "dockerhub", change: func(s *quirks.Settings) { s.Password = "another"; s.EveryNth = 0 }, err: "401", hint: "docker login"},
		{name: "requests limited", profile: "dockerhub", change: func(s *quirks.Settings) { s.EveryNth = 1 }, err: "429", hint: "limits requests"},
		{name: "uploads limited", profile: "artifactory", create: true, change: func(s *quirks.Settings) { s.MaxBody = 16 }, err: "413", hint: "size of uploads"},
		{name: "a page in place of tags", profile: "gar", create: true, change: func(s *quirks.Settings) {
			s.HTML = func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/tags/list") }
		}, err: "answered with HTML", hint: "a proxy, a web site or a login page answers there"},
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

// TestPolicyOnReads shows that if the policy of a project forbids reads, new versions can still be pushed, but
// stored versions are neither completed nor replaced.
func TestPolicyOnReads(t *testing.T) {
	for _, name := range []string{"harbor", "distribution"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, profile(t, name))
			b.registry.Create(b.profile.Create)
			policy := func(on bool) { b.registry.Set(func(s *quirks.Settings) { s.CosignPolicy = on }) }
			b.mustPush("1.0.0", false, false)
			policy(true)

			// A new version is stored, with all platforms or with a single platform.
			for _, platforms := range [][]string{nil, {"linux_amd64"}} {
				version := []string{"1.1.0", "1.2.0"}[len(platforms)]
				b.publish(version)
				r := b.mustPush(version, false, false, platforms...)
				warnings := strings.Join(r.Warnings, "\n")
				if r.Status != pusher.Pushed || !strings.Contains(warnings, "could not check which provider this repository belongs to: GET") ||
					!strings.Contains(warnings, ":"+version+" is stored, and nobody can read it yet: GET") || !strings.Contains(warnings, "The image is not signed by cosign.") || len(r.Warnings) != 2 {
					t.Errorf("%s: %s, %q", version, r.Status, r.Warnings)
				}
			}

			// A stored version is neither completed nor replaced, with or without --force.
			for _, force := range []bool{false, true} {
				err := b.pushError("1.0.0", force)
				if err == nil || !strings.Contains(err.Error(), "The image is not signed by cosign.") ||
					!strings.Contains(hint.Of(err), "Deployment security") || strings.Contains(hint.Of(err), "force") {
					t.Errorf("force %t: %v (%s)", force, err, hint.Of(err))
				}
			}

			// A sync pushes new versions, and reports the versions that it could not read.
			b.publish("1.3.0")
			_, out := b.plannedSync(reconcile.Want{}, ">= 1.0, <= 1.3")
			if len(out.Results) != 1 || out.Results[0].Version.String() != "1.3.0" || len(out.Failures) != 3 {
				t.Errorf("sync: %+v", out)
			}
			for _, f := range out.Failures {
				if h := hint.Of(f.Err); f.Version.IsZero() || !strings.Contains(h, "Deployment security") || strings.Contains(h, "force") {
					t.Errorf("sync: %s: %v (%s)", f.Version, f.Err, h)
				}
			}

			policy(false)
			get := b.serve()
			for _, version := range []string{"1.0.0", "1.1.0", "1.2.0", "1.3.0"} {
				want := 2
				if version == "1.2.0" {
					want = 1
				}
				if status, body := get(host + "/acme/widget/" + version + ".json"); status != http.StatusOK || strings.Count(body, `"url"`) != want {
					t.Errorf("%s: %d %s", version, status, body)
				}
			}
		})
	}
}

// TestPushInterruptedBeforePolicy shows that if a push is interrupted, and a policy then forbids reading the
// manifests that the push stored, the push can be repeated.
func TestPushInterruptedBeforePolicy(t *testing.T) {
	b := newBench(t, profile(t, "distribution"))
	b.mustPush("1.0.0", false, false)
	if w := ask(b.registry, http.MethodDelete, "/v2/providers/registry.acme.example/acme/widget/manifests/1.0.0", ""); w.Code != http.StatusAccepted {
		t.Fatalf("delete the tag: %d %s", w.Code, w.Body)
	}
	b.registry.Set(func(s *quirks.Settings) { s.CosignPolicy = true })
	if r := b.mustPush("1.0.0", false, false); r.Status != pusher.Pushed {
		t.Errorf("repeated push: %s, want %s", r.Status, pusher.Pushed)
	}
}

// TestPruneLeavesImmutable shows that if some versions are immutable, a prune still removes the other
// versions.
func TestPruneLeavesImmutable(t *testing.T) {
	b := newBench(t, profile(t, "harbor"))
	b.registry.Create(b.profile.Create)
	for _, version := range []string{"1.0.0", "1.1.0", "1.2.0", "1.3.0"} {
		b.publish(version)
		b.mustPush(version, false, false)
	}
	b.registry.Set(func(s *quirks.Settings) {
		s.Immutable, s.ImmutableCode = http.StatusPreconditionFailed, "PRECONDITION"
		s.Mutable = func(tag string) bool { return tag != "1.1.0" && tag != "1.2.0" }
	})
	out := b.sync(reconcile.Want{}, "1.3.0")
	if len(out.Pruned) != 1 || out.Pruned[0].Version.String() != "1.0.0" || len(out.Failures) != 2 || len(out.Warnings) > 0 {
		t.Fatalf("prune with immutable versions: %+v", out)
	}
	for i, version := range []string{"1.2.0", "1.1.0"} {
		f := out.Failures[i]
		if f.Version.String() != version || !strings.Contains(f.Err.Error(), "remove "+version+" from harbor.example.com/") ||
			!strings.Contains(f.Err.Error(), "the tag "+version+" configured as immutable, cannot be deleted") || !strings.Contains(hint.Of(f.Err), "Tag Immutability") {
			t.Errorf("%+v (%s)", f, hint.Of(f.Err))
		}
	}
	b.checkTags("with the rule", "1.1.0", "1.2.0", "1.3.0")
	b.registry.Set(func(s *quirks.Settings) { s.Immutable = 0 })
	if out := b.sync(reconcile.Want{}, "1.3.0"); failure(out) != nil || len(out.Pruned) != 2 {
		t.Errorf("without the rule: %v, %+v", failure(out), out)
	}
	b.checkTags("without the rule", "1.3.0")
}

// TestTroubleIsNotAbsence shows that if a registry fails after a push, the gateway reports a server error. The
// gateway never reports that the provider or the version is absent.
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

// needsNoPassword reports whether a wrong password has no effect. Either the registry requires no password, or
// an earlier token is still valid.
func (b *bench) needsNoPassword() bool { return b.profile.User == "" || b.profile.Tokens }

// TestImmutableTags shows that a push fails only if it must move an immutable tag. The error then includes the
// registry's reason.
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
				t.Errorf("push that moves an immutable tag: %v", err)
			}
		})
	}
}

// TestHiddenBlobs shows that a push by platform succeeds although the registry refuses each manifest once.
// distribution 2 refuses a manifest while another push stores one of the manifest's blobs.
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
