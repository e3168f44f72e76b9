package gateway_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/url"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/manuals"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// describedModule has the files of a module.
var describedModule = map[string][]byte{
	"README.md":              []byte("# Net\n"),
	"main.tf":                []byte("terraform {\n required_providers {\n  aws = { source = \"hashicorp/aws\", version = \">= 5.0\" }\n }\n}\nresource \"aws_vpc\" \"this\" {}\nmodule \"subnet\" {\n source = \"./modules/subnet\"\n}\n"),
	"variables.tf":           []byte("variable \"name\" {\n type = string\n description = \"The name\"\n}\nvariable \"zones\" {\n type = list(string)\n default = [\"a\"]\n}\nvariable \"cidr\" {\n default = null\n}\n"),
	"outputs.tf":             []byte("output \"id\" {\n value = 1\n description = \"The ID\"\n}\n"),
	"modules/subnet/main.tf": []byte("variable \"cidr\" {\n type = string\n}\noutput \"id\" {\n value = 1\n}\n"),
	"examples/full/main.tf":  []byte("module \"net\" {\n source = \"../..\"\n}\n"),
}

// withManuals makes the gateway read what modules say about themselves.
func (b *bench) withManuals() *bench {
	b.options.Manuals = manuals.New(manuals.Options{Log: b.options.Log, Cache: b.options.Cache})
	b.t.Cleanup(func() { b.options.Manuals.Close() })
	return b
}

// describe stores a version of a module with the given files.
func (b *bench) describe(a module.Address, version string, files map[string][]byte) {
	b.t.Helper()
	content, err := release.Zip(files)
	if err != nil {
		b.t.Fatal(err)
	}
	b.storeModule(a, version, version, content)
}

const moduleDetails = modulePrefix + "1.0.0"

// TestModuleDetails checks the details of a version, in the form of the public registry.
func TestModuleDetails(t *testing.T) {
	b := newBench(t).modules().withManuals()
	b.describe(netModule, "1.0.0", describedModule)
	b.registry.Reset()
	c := b.serve()
	a := c.get(moduleDetails)
	want := `{"id":"acme/net/aws/1.0.0","namespace":"acme","name":"net","provider":"aws","version":"1.0.0","source":"",
		"root":{"path":"","name":"net","readme":"# Net\n","empty":false,
			"inputs":[{"name":"name","type":"string","description":"The name","default":"","required":true},
				{"name":"cidr","type":"any","description":"","default":"null","required":false},
				{"name":"zones","type":"list(string)","description":"","default":"[\"a\"]","required":false}],
			"outputs":[{"name":"id","description":"The ID"}],
			"dependencies":[{"name":"subnet","source":"./modules/subnet","version":""}],
			"provider_dependencies":[{"name":"aws","namespace":"hashicorp","source":"hashicorp/aws","version":"\u003e= 5.0"}],
			"resources":[{"name":"this","type":"aws_vpc"}]},
		"submodules":[{"path":"modules/subnet","name":"subnet","readme":"","empty":false,
			"inputs":[{"name":"cidr","type":"string","description":"","default":"","required":true}],
			"outputs":[{"name":"id","description":""}],"dependencies":[],"provider_dependencies":[],"resources":[]}],
		"examples":[{"path":"examples/full","name":"full","readme":"","empty":false,"inputs":[],"outputs":[],
			"dependencies":[{"name":"net","source":"../..","version":""}],"provider_dependencies":[],"resources":[]}],
		"providers":["aws"]}`
	var got, wanted any
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 200 || a.header.Get("Content-Type") != "application/json" || !reflect.DeepEqual(got, wanted) {
		t.Errorf("%v: %+v", err, a)
	}
	requests := b.registry.Count()
	if again := c.get(moduleDetails); again.body != a.body || strings.Count(b.requests(), "blobs/") != 1 {
		t.Errorf("%+v, %d requests before, now %s", again, requests, b.requests())
	}
	if known := c.knowing(a.header.Get("ETag")).get(moduleDetails); known.status != http.StatusNotModified {
		t.Errorf("%+v", known)
	}
	b.wantHeadAsGet(c, moduleDetails, 200)

	at := time.Date(2026, 3, 4, 5, 6, 7, 800, time.FixedZone("", 3600))
	b.options.Changed = func(of subject.Address, v provider.Version) time.Time {
		if of != subject.Address(netModule) || v.String() != "1.0.0" {
			return time.Time{}
		}
		return at
	}
	if a := b.serve().get(moduleDetails); !strings.Contains(a.body, `"published_at":"2026-03-04T04:06:07Z"`) {
		t.Errorf("no time of the push: %s", a.body)
	}
}

// TestModuleDetailsStatuses checks who gets the details, and what becomes of errors.
func TestModuleDetailsStatuses(t *testing.T) {
	b := newBench(t).modules().withManuals()
	b.describe(netModule, "1.0.0", describedModule)
	b.describe(otherModule, "1.0.0", describedModule)
	b.storeModule(netModule, "1.1.0", "1.1.0", []byte("PK no zip"))
	b.options.Deny = []catalog.Deny{{Pattern: otherModule.Pattern(), Reason: "it is retired"}}
	b.options.ModuleOrigin = func(_ context.Context, a module.Address) (*url.URL, error) {
		if a.Name() != "origin" {
			return nil, nil
		}
		return url.Parse("https://origin.example/v1/modules/")
	}
	const hosts = "/hosts/" + host + "/v1/modules/acme/"
	c := b.serve()
	for path, status := range map[string]int{
		moduleDetails: 200, modulePrefix + "1.1.0": 502, modulePrefix + "9.9.9": 404, modulePrefix + "nonsense": 404,
		hosts + "other/aws/1.0.0": 451, hosts + "absent/aws/1.0.0": 404, hosts + "origin/aws/1.0.0": 307,
	} {
		if a := c.get(path); a.status != status || status == 307 && a.header.Get("Location") != "https://origin.example/v1/modules/acme/origin/aws/1.0.0" {
			t.Errorf("%s: %+v, want %d", path, a, status)
		}
	}
	b.options.Access = access.New(access.Options{})
	if a := b.serve().get(moduleDetails); a.status != http.StatusUnauthorized {
		t.Errorf("%+v", a)
	}
	b.controlled()
	any := b.serve()
	if a := any.as("acme-token").get(moduleDetails); a.status != http.StatusForbidden { // its token is for providers
		t.Errorf("%+v", a)
	}
	b.options.Access = access.New(access.Options{Tokens: []access.Token{
		{Name: "ci", SHA256: sha256.Sum256([]byte("ci-token")), Selector: subject.Selector{Include: []subject.Pattern{netModule.Pattern()}}},
	}})
	if a := b.serve().as("ci-token").get(moduleDetails); a.status != 200 || a.header.Get("Cache-Control") != "private, no-store" {
		t.Errorf("%+v", a)
	}
}

// TestModuleDetailsAreVerified checks that only bytes with the right digest are read, and that no failure of the registry
// becomes a module without inputs.
func TestModuleDetailsAreVerified(t *testing.T) {
	other, err := release.Zip(map[string][]byte{"main.tf": []byte("variable \"injected\" {}\n")})
	if err != nil {
		t.Fatal(err)
	}
	right, err := release.Zip(describedModule)
	if err != nil {
		t.Fatal(err)
	}
	asMany := respond(200, "application/octet-stream", strings.Repeat("x", len(right)))
	for name, lie := range map[string]http.HandlerFunc{
		"other bytes": respond(200, "application/octet-stream", string(other)), "as many bytes": asMany, "fewer bytes": respond(200, "application/octet-stream", "PK"),
		"absent": respond(404, "application/json", `{"errors":[{"code":"BLOB_UNKNOWN"}]}`), "failure": respond(500, "text/plain", "no"), "reset": cut,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t).modules()
			b.limits.Resumes = 1
			b.withManuals().describe(netModule, "1.0.0", describedModule)
			b.lie("/blobs/", lie)
			c := b.serve()
			if a := c.get(moduleDetails); a.status < 500 || strings.Contains(a.body, "injected") {
				t.Errorf("%+v", a)
			}
			b.registry.Intercept(nil)
			if a := c.get(moduleDetails); a.status != 200 || !strings.Contains(a.body, "zones") {
				t.Errorf("after the failure: %+v", a)
			}
		})
	}
}

// TestTerraformLS runs the module registry client of terraform-ls.
func TestTerraformLS(t *testing.T) {
	program := clients.Program(t, "terraform-ls")
	b := newBench(t).modules().withManuals()
	b.options.PublicURL = parseURL(t, "https://"+host+"/")
	b.describe(netModule, "1.0.0", describedModule)
	b.describe(netModule, "1.1.0", describedModule)
	c := b.serve()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program.Path, c.s.URL, "acme/net/aws", "~> 1.0").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := `"root":{"inputs":[{"name":"name","type":"string","description":"The name","default":"","required":true},` +
		`{"name":"cidr","type":"any","description":"","default":"null","required":false},{"name":"zones","type":"list(string)","description":"","default":"[\"a\"]","required":false}],` +
		`"outputs":[{"name":"id","description":"The ID"}]},"submodules":[{"path":"modules/subnet","inputs":[{"name":"cidr","type":"string","description":"","default":"","required":true}],"outputs":[{"name":"id","description":""}]}]`
	if !strings.Contains(string(out), want) || !strings.Contains(string(out), `"version":"1.1.0"`) {
		t.Errorf("%s", out)
	}
}

// TestDetailsOfAnnouncedModules shows that a request for details does not make the gateway store a version that only the origin
// has.
func TestDetailsOfAnnouncedModules(t *testing.T) {
	b, o := pulledModules(t)
	c := b.withManuals().serve()
	if a := c.get(modulePrefix + "1.0.0"); a.status != http.StatusNotFound || o.stored != 0 {
		t.Errorf("%+v, %d stored", a, o.stored)
	}
	b.describe(netModule, "2.0.0", describedModule)
	if a := b.serve().get(modulePrefix + "2.0.0"); a.status != http.StatusOK || o.stored != 0 {
		t.Errorf("a stored version: %+v, %d stored", a, o.stored)
	}
}
