package gateway_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestModuleToolRequests holds the requests of tools that read modules without Terraform and OpenTofu. Each tool has
// the host name of the gateway alone, and begins with service discovery.
func TestModuleToolRequests(t *testing.T) {
	for name, public := range map[string]string{"at the root": "https://" + host + "/", "below a path": "https://" + host + "/tf/"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t).modules()
			content := b.publishModule(netModule, "1.0.0", "1.0.0")
			b.publishModule(netModule, "1.10.0-rc.1", "v1.10.0-rc.1")
			b.options.PublicURL = parseURL(t, public)
			c := b.serve()
			for tool, read := range map[string]func(t *testing.T, get func(string) answer){
				"Terragrunt": func(t *testing.T, get func(string) answer) {
					if got := readTerragrunt(t, get, "acme/net/aws", "1.0.0"); got != string(content) {
						t.Errorf("%q", got)
					}
				},
				"Dependabot": func(t *testing.T, get func(string) answer) { readDependabot(t, get) },
			} {
				var paths []string
				// The proxy before a gateway below a path removes that path.
				prefix := strings.TrimSuffix(parseURL(t, public).Path, "/")
				read(t, func(at string) answer {
					u := parseURL(t, at)
					if u.Scheme != "https" || u.Host != host {
						t.Fatalf("%s: a request to %s", tool, at)
					}
					path := strings.TrimPrefix(u.RequestURI(), prefix)
					paths = append(paths, path)
					return c.get(path)
				})
				want := map[string][]string{
					"Terragrunt": {"/.well-known/terraform.json", "/v1/modules/acme/net/aws/1.0.0/download", "/v1/modules/acme/net/aws/1.0.0/net-1.0.0.zip?archive=zip"},
					"Dependabot": {"/.well-known/terraform.json", "/v1/modules/acme/net/aws/versions", "/v1/modules/acme/net/aws/1.0.0/download"},
				}[tool]
				if !slices.Equal(paths, want) {
					t.Errorf("%s: the paths %q, want %q", tool, paths, want)
				}
			}
		})
	}
}

// modulesService returns the base URL of the module registry protocol, which discovery announces as a URL or as a path.
func modulesService(t *testing.T, get func(string) answer) string {
	t.Helper()
	var services struct {
		Modules string `json:"modules.v1"`
	}
	if a := get("https://" + host + "/.well-known/terraform.json"); json.Unmarshal([]byte(a.body), &services) != nil || services.Modules == "" {
		t.Fatalf("discovery: %+v", a)
	}
	if strings.HasPrefix(services.Modules, "/") {
		return "https://" + host + services.Modules
	}
	return services.Modules
}

// readTerragrunt reads a module as Terragrunt does for a tfr:// address. Terragrunt does not read the list of versions.
// It takes a location that begins with /, ./ or ../ relative to the URL of the request, and passes any other location
// on to go-getter.
func readTerragrunt(t *testing.T, get func(string) answer, path, version string) string {
	t.Helper()
	document := strings.TrimSuffix(modulesService(t, get), "/") + "/" + path + "/" + version + "/download"
	return get(terragruntURL(t, document, get(document).header)).body
}

func terragruntURL(t *testing.T, document string, header http.Header) string {
	t.Helper()
	location := header.Get("X-Terraform-Get")
	if !strings.HasPrefix(location, "/") && !strings.HasPrefix(location, "./") && !strings.HasPrefix(location, "../") {
		return location
	}
	at, err := parseURL(t, document).Parse(location)
	if err != nil {
		t.Fatal(err)
	}
	return at.String()
}

// readDependabot reads a module as Dependabot does: the versions for updates, and then the download document for the
// release notes. From a response with status 204, it would download the zip and look for a git repository there.
func readDependabot(t *testing.T, get func(string) answer) {
	t.Helper()
	join := func(base, path string) string {
		u, err := parseURL(t, base).Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		return u.String()
	}
	base := modulesService(t, get)
	var list struct {
		Modules []struct {
			Versions []struct{ Version string }
		}
	}
	a := get(join(base, "acme/net/aws/versions"))
	if err := json.Unmarshal([]byte(a.body), &list); err != nil || a.status != http.StatusOK || len(list.Modules) != 1 {
		t.Fatalf("versions: %+v", a)
	}
	var versions []string
	for _, v := range list.Modules[0].Versions {
		versions = append(versions, v.Version)
	}
	if !slices.Equal(versions, []string{"1.0.0", "1.10.0-rc.1"}) {
		t.Errorf("versions %q", versions)
	}
	if a := get(join(base, "acme/net/aws/1.0.0/download")); a.status != http.StatusOK {
		t.Errorf("the source: %+v", a)
	}
}

// TestTerragruntWithoutPublicURL shows that Terragrunt resolves the location of a gateway that does not know its URL.
func TestTerragruntWithoutPublicURL(t *testing.T) {
	b := newBench(t).modules()
	content := b.publishModule(netModule, "1.0.0", "1.0.0")
	c := b.serve()
	document := modulePrefix + "1.0.0/download"
	a := c.get(document)
	at := parseURL(t, terragruntURL(t, "https://proxy.example"+document, a.header))
	if want := "https://proxy.example" + modulePrefix + "1.0.0/net-1.0.0.zip?archive=zip"; at.String() != want {
		t.Errorf("%s, want %s", at, want)
	}
	if a := c.get(at.RequestURI()); a.body != string(content) {
		t.Errorf("%+v", a)
	}
}
