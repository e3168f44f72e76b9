package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

type finding struct{ Severity, Where, What, Hint string }

// verified is the JSON result of verify for the null provider.
type verified struct {
	Findings []finding
	Versions []struct {
		Version   string
		Digest    string
		Platforms []string
		Signature struct{ Verdict, Fingerprint string }
		Pinned    bool
		Findings  []finding
	}
}

// verify runs ocibridge verify and returns the result of the only provider.
func (s *scene) verify(status int, args ...string) verified {
	s.t.Helper()
	got := s.run(append([]string{"verify", "--output", "json"}, args...)...)
	var doc struct{ Providers []verified }
	if err := json.Unmarshal([]byte(got.stdout), &doc); err != nil || len(doc.Providers) != 1 || got.status != status {
		s.t.Fatalf("%v: status %d, want %d: %s%s", err, got.status, status, got.stdout, got.stderr)
	}
	return doc.Providers[0]
}

// wantFinding checks that got contains a finding, and that every finding has a hint.
func wantFinding(t *testing.T, got []finding, severity, where, what string) {
	t.Helper()
	for _, f := range got {
		if f.Hint == "" {
			t.Errorf("no hint: %+v", f)
		}
	}
	if !slices.ContainsFunc(got, func(f finding) bool {
		return f.Severity == severity && (where == "" || f.Where == where) && strings.Contains(f.What, what)
	}) {
		t.Errorf("no %s %s: %s in %+v", severity, where, what, got)
	}
}

// deleteManifest deletes a manifest from a repository, as a clean-up job does.
func (s *scene) deleteManifest(repo, digest string) {
	s.t.Helper()
	host, name, _ := strings.Cut(repo, "/")
	req, err := http.NewRequest(http.MethodDelete, "https://"+host+"/v2/"+name+"/manifests/"+digest, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := s.CA.HTTPClient().Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		s.t.Fatalf("DELETE %s@%s: %s", repo, digest, resp.Status)
	}
}

// TestListInspectVerify checks the output of list, inspect and verify for versions in a stand-alone registry.
//
//testrun:scene
func TestListInspectVerify(t *testing.T) { forEachProgram(t, testListInspectVerify) }

func testListInspectVerify(t *testing.T, program registry.Program) {
	s := newScene(t)
	r := s.tlsRegistryOf(program)
	s.offer("3.3.0")
	s.pushTo(r, world.Null+"@"+nullVersion)
	s.pushTo(r, world.Null+"@3.3.0")
	to := []string{"--template", template(r)}

	// The registry has a catalog, so list needs no provider.
	got := s.run(append([]string{"list"}, to...)...)
	for _, want := range []string{world.Null + " in " + r.Host, "3.3.0", nullVersion, "darwin_arm64", "signed by " + s.Signer.KeyID()} {
		if got.status != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("status %d, no %s in %s%s", got.status, want, got.stdout, got.stderr)
		}
	}
	got = s.run(append([]string{"inspect", world.Null + "@" + nullVersion}, to...)...)
	for _, want := range []string{hostPackage(t, s.null).SHA256, hostPackage(t, s.null).Filename, s.Signer.Fingerprint(), "h1:"} {
		if got.status != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("status %d, no %s in %s%s", got.status, want, got.stdout, got.stderr)
		}
	}
	s.Origin.Reset()
	v := s.verify(0, append([]string{"--packages"}, to...)...)
	if len(v.Versions) != 2 || v.Versions[0].Signature.Fingerprint != s.Signer.Fingerprint() || v.Versions[0].Pinned || len(v.Versions[0].Findings) != 0 {
		t.Errorf("%+v", v)
	}
	if n := s.Origin.Count(); n != 0 {
		t.Errorf("verify made %d requests to the origin", n)
	}
}

// TestVerifyOfTags shows that OpenTofu's oci_mirror treats each form of tag as the findings of verify say.
func TestVerifyOfTags(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	s.pushTo(r, world.Null+"@"+nullVersion)
	from := r.Host + "/providers/" + world.Null + ":" + nullVersion
	for i, tc := range []struct {
		tag, constraint string
		says            string // the finding of verify
		fails           string // the error of tofu init; "" if tofu init succeeds
	}{
		{"4", ">= 3.0.0", `OpenTofu reads tag "4" as version 4.0.0, which does not exist: tofu init fails`, "4.0.0"},
		{"3.2.5-", ">= 3.0.0", `OpenTofu reads tag "3.2.5-" as version 3.2.5, which does not exist: tofu init fails`, "3.2.5"},
		{"3.2", "3.2.0", `OpenTofu reads tag "3.2" as version 3.2.0, which does not exist: tofu init fails where a constraint selects it`, "3.2.0"},
		{"3.2", ">= 3.0.0", "", ""},
		{"03.2.4", ">= 3.0.0", `OpenTofu reads tag "03.2.4" as version 3.2.4, which has a tag of its own`, ""},
		{"9223372036854775808.0.0", ">= 3.0.0", `or a gateway does not serve it: a number is larger than 9223372036854775807`, ""},
	} {
		t.Run(tc.tag+" "+tc.constraint, func(t *testing.T) {
			t.Parallel()
			place := fmt.Sprintf("%s/%d/", r.Host, i)
			s.workspace("").MustRun(t, clients.ORAS(t), "cp", "--from-plain-http=false", "--to-plain-http=false", from, place+world.Null+":"+nullVersion+","+tc.tag)
			place += "${hostname}/${namespace}/${type}"
			if tc.says != "" {
				severity, status := "error", 1
				if strings.HasSuffix(tc.says, "of its own") {
					severity, status = "warning", 0
				}
				got := s.verify(status, "--template", place, world.Null)
				wantFinding(t, got.Findings, severity, tc.tag, tc.says)
			}
			ws := s.user(world.OCIMirror(place), tc.constraint)
			if tc.fails == "" {
				ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
				return
			}
			if out := ws.MustFail(t, clients.Tofu(t), "init", "-no-color"); !strings.Contains(out, tc.fails) {
				t.Errorf("tofu init fails without a word about %q:\n%s", tc.fails, out)
			}
		})
	}
}

// TestVerifyOfWhatOtherToolsPush shows that verify accepts a version that the ORAS CLI pushed according to the
// recipe in OpenTofu's documentation. verify reports versions that no client would install.
func TestVerifyOfWhatOtherToolsPush(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	ws, repo, index := s.orasRecipe(r)
	oras, to := clients.ORAS(t), []string{"--packages", "--template", template(r), world.Null}
	v := s.verify(0, to...)
	if len(v.Versions) != 1 || len(v.Versions[0].Platforms) != len(s.null.Packages) {
		t.Fatalf("%+v", v)
	}
	wantFinding(t, v.Versions[0].Findings, "warning", "evidence", "there is none")
	wantFinding(t, v.Versions[0].Findings, "warning", nullVersion, "no h1: hash")

	ws.MustRun(t, oras, "tag", "--plain-http=false", repo+":"+nullVersion, "v4.0.0")
	manifests := index["manifests"].([]map[string]any)
	first := manifests[0]["digest"].(string)
	twice := map[string]any{}
	for k, v := range index {
		twice[k] = v
	}
	twice["manifests"] = append(slices.Clone(manifests), manifests[0])
	s.orasIndex(ws, repo+":4.1.0", twice)
	plain := map[string]any{"schemaVersion": 2, "mediaType": index["mediaType"], "manifests": manifests}
	s.orasIndex(ws, repo+":4.2.0", plain)
	ws.MustRun(t, oras, "push", "--plain-http=false", "--artifact-type", "application/vnd.opentofu.provider-target", repo+":4.3.0", hostPackage(t, s.null).Filename+":application/zip")
	v = s.verify(1, to...)
	wantFinding(t, v.Findings, "error", "v4.0.0", "no client recognises it")
	found := map[string][]finding{}
	for _, version := range v.Versions {
		found[version.Version] = version.Findings
	}
	wantFinding(t, found["4.1.0"], "error", "", "two packages")
	wantFinding(t, found["4.2.0"], "error", "4.2.0", "artifact type")
	wantFinding(t, found["4.3.0"], "error", "4.3.0", "media type")

	// A clean-up job deletes a manifest that the index names.
	s.deleteManifest(repo, first)
	v = s.verify(1, "--template", template(r), world.Null+"@"+nullVersion)
	wantFinding(t, v.Versions[0].Findings, "error", "", "the registry lacks content that it refers to")
	// The push that the hint suggests repairs the version.
	s.pushTo(r, "--force", world.Null+"@"+nullVersion)
	v = s.verify(0, "--template", template(r), world.Null+"@"+nullVersion)
	if len(v.Versions[0].Findings) != 0 {
		t.Errorf("%+v", v.Versions[0].Findings)
	}
}
