package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/howto"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// moduleRegistry answers as a module registry with the extensions of the public one, with two modules a page.
type moduleRegistry struct {
	path     string     // of the service modules.v1
	token    string     // that every request for JSON needs; "" for none
	modules  [][]string // each the module and its versions
	repeats  bool       // whether the list has an entry for each version, as Citizen's
	location func(r *http.Request, module, version string) string
	off      string // a file: if it exists, the registry is no more
	text     string // of main.tf in archives; "" for moduleText
}

func (m moduleRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := os.Stat(m.off); err == nil {
		http.Error(w, "moved", http.StatusGone)
		return
	}
	path, isModule := strings.CutPrefix(r.URL.Path, m.path)
	parts := strings.Split(path, "/")
	last := parts[len(parts)-1]
	switch {
	case r.URL.Path == "/.well-known/terraform.json":
		json.NewEncoder(w).Encode(map[string]string{"modules.v1": m.path})
	case last == "module.tar.gz":
		w.Write(packedModule(cmp.Or(m.text, moduleText)))
	case m.token != "" && r.Header.Get("Authorization") != "Bearer "+m.token:
		http.Error(w, "no token", http.StatusUnauthorized)
	case r.URL.Path == "/api/v2/organizations/acme/registry-providers" && r.URL.Query().Get("filter[registry_name]") == "private":
		io.WriteString(w, `{"data": [{"type": "registry-providers", "attributes": {"name": "widget", "namespace": "acme", "registry-name": "private"}}], "links": {"next": null}}`)
	case isModule && len(parts) == 1:
		m.list(w, r, path)
	case isModule && last == "versions":
		m.versions(w, strings.TrimSuffix(path, "/versions"))
	case isModule && last == "download" && len(parts) == 5:
		w.Header().Set("X-Terraform-Get", m.location(r, strings.Join(parts[:3], "/"), parts[3]))
		w.WriteHeader(http.StatusNoContent)
	default:
		http.NotFound(w, r)
	}
}

func (m moduleRegistry) list(w http.ResponseWriter, r *http.Request, namespace string) {
	var all []map[string]string
	for _, module := range m.modules {
		parts, versions := strings.Split(module[0], "/"), module[1:]
		if !m.repeats {
			versions = versions[len(versions)-1:]
		}
		for _, v := range versions {
			if parts[0] == namespace {
				all = append(all, map[string]string{"namespace": parts[0], "name": parts[1], "provider": parts[2], "version": v})
			}
		}
	}
	offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
	end := min(offset+2, len(all))
	meta := map[string]int{"limit": 2, "current_offset": offset}
	if end < len(all) {
		meta["next_offset"] = end
	}
	json.NewEncoder(w).Encode(map[string]any{"meta": meta, "modules": all[min(offset, end):end]})
}

func (m moduleRegistry) versions(w http.ResponseWriter, name string) {
	for _, module := range m.modules {
		if module[0] == name {
			var versions []map[string]string
			for _, v := range module[1:] {
				versions = append(versions, map[string]string{"version": v})
			}
			json.NewEncoder(w).Encode(map[string]any{"modules": []any{map[string]any{"source": name, "versions": versions}}})
			return
		}
	}
	http.Error(w, "no such module", http.StatusNotFound)
}

const moduleText = "resource \"terraform_data\" \"id\" {\n  input = \"vpc\"\n}\n"

// packedModule returns a module as HCP Terraform and Citizen pack it. text is the content of main.tf.
func packedModule(text string) []byte {
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	files := tar.NewWriter(packed)
	files.WriteHeader(&tar.Header{Name: "main.tf", Mode: 0o644, Size: int64(len(text))})
	io.WriteString(files, text)
	files.Close()
	packed.Close()
	return out.Bytes()
}

// gitModules makes the repositories that the page clones, with two modules in one of them.
const gitModules = `git config --global user.name acme && git config --global user.email acme@acme.example
git config --global url."file://$HOME/git/".insteadOf https://git.example.com/
git config --global init.defaultBranch main
for folder in terraform-aws-vpc modules/vpc; do
	repository=$HOME/git/acme/${folder%%/*}
	git init --quiet "$repository"
	mkdir -p "$HOME/git/acme/$folder"
	printf '%s' "$MODULE" > "$HOME/git/acme/$folder/main.tf"
	git -C "$repository" add . && git -C "$repository" commit --quiet -m first
done
git -C git/acme/terraform-aws-vpc tag v1.0.0
echo '# second' >> git/acme/terraform-aws-vpc/main.tf
git -C git/acme/terraform-aws-vpc commit --quiet -a -m second
git -C git/acme/terraform-aws-vpc tag -a v1.1.0 -m v1.1.0
git -C git/acme/modules tag vpc/v2.0.0
`

// TestMovingInRegistriesHowTo runs docs/howto/moving-in-registries.md with servers that answer as the three registries
// do: HCP Terraform requires a token and names archives by absolute URLs, Terrareg names a folder of a Git repository, and
// Citizen a relative URL. The stacks have a state before they move, and the old registry is off afterwards.
func TestMovingInRegistriesHowTo(t *testing.T) {
	ca, home := tlsca.For(t), t.TempDir()
	caFile, err := ca.WriteFile(home)
	if err != nil {
		t.Fatal(err)
	}
	const token = "hcp-token"
	off := filepath.Join(t.TempDir(), "off")
	provider := testorigin.New(testorigin.Options{}, release.For(t, release.Spec{
		Host: "app.terraform.io", Namespace: "acme", Type: "widget", Version: "1.0.0", Signer: pgp.For(t, "Acme"),
		Contents: []release.Content{{OS: runtime.GOOS, Arch: runtime.GOARCH, Files: map[string][]byte{"terraform-provider-widget_v1.0.0": []byte("widget")}}},
	}))
	provider.RequireToken(token)
	curlrc := fmt.Sprintf("cacert = %q\n", caFile)
	config := filepath.Join(t.TempDir(), "origin.tfrc")
	var blocks string
	for name, m := range map[string]moduleRegistry{
		"app.terraform.io": {
			path: "/api/registry/v1/modules/", token: token,
			modules: [][]string{{"acme/vpc/aws", "1.0.0", "1.1.0"}, {"acme/dns/aws", "0.9.0"}, {"acme/lb/aws", "2.0.0-rc1"}, {"other/vpc/aws", "1.0.0"}},
			location: func(r *http.Request, module, version string) string {
				return "https://" + r.Host + "/archive/" + module + "/" + version + "/module.tar.gz?archive=tar.gz"
			},
		},
		"terrareg.example.com": {
			path: "/v1/modules/", modules: [][]string{{"acme/network/aws", "1.0.0"}},
			location: func(*http.Request, string, string) string {
				return "git::https://git.example.com/acme/modules//vpc?ref=vpc/v2.0.0"
			},
		},
		"citizen.example.com": {
			path: "/v1/modules/", modules: [][]string{{"acme/labels/null", "0.1.0", "0.2.0"}, {"acme/tags/null", "1.0.0"}}, repeats: true,
			location: func(_ *http.Request, module, version string) string {
				return "/v1/modules/tarball/" + module + "/" + version + "/module.tar.gz"
			},
		},
	} {
		m.off = off
		at := startTLS(t, ca, name, m)
		curlrc += fmt.Sprintf("connect-to = \"%s:443:%s\"\n", name, at)
		services := fmt.Sprintf("    \"modules.v1\" = \"https://%s%s\"\n", at, m.path)
		if name == "app.terraform.io" {
			services += fmt.Sprintf("    \"providers.v1\" = \"https://%s%s\"\n", startTLS(t, ca, "localhost", provider), testorigin.ServicePath)
		}
		blocks += fmt.Sprintf("host %q {\n  services = {\n%s  }\n}\n", name, services)
	}
	for file, text := range map[string]string{config: blocks, filepath.Join(home, ".curlrc"): curlrc} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := howto.Run{
		Page: "moving-in-registries", Replace: []string{"registry.example.com", registry.For(t, registry.Options{}).Host}, Dir: home,
		Before: map[string]string{
			"export OCIBRIDGE_MODULE_TEMPLATE": gitModules,
			"rm -rf stack/.terraform":          "tofu -chdir=stack init\ntofu -chdir=stack apply -auto-approve\ntouch " + off,
			"cd git-stack": `mv git-stack/main.tf new.tf
printf 'module "vpc" {\n  source = "git::https://git.example.com/acme/terraform-aws-vpc?ref=v1.1.0"\n}\n' > git-stack/main.tf
tofu -chdir=git-stack init
tofu -chdir=git-stack apply -auto-approve
mv new.tf git-stack/main.tf`,
		},
		Env: []string{"SSL_CERT_FILE=" + caFile, "TF_CLI_CONFIG_FILE=" + config, "TF_TOKEN_app_terraform_io=" + token, "TF_CLI_ARGS=-no-color", "MODULE=" + moduleText},
		After: `cd ..
ocibridge module inspect registry.acme.example/platform/vpc/aws@1.1.0 | grep "$(git -C terraform-aws-vpc rev-parse 'v1.1.0^{commit}')"
refused sh move-modules.sh terrareg.example.com acme`,
	}.Do(t)
	for _, want := range []string{"acme/dns/aws 0.9.0: pushed", "acme/lb/aws 2.0.0-rc1: pushed", "citizen.example.com/acme/tags/null 1.0.0: pushed"} {
		if strings.Count(out.All, want) != 1 {
			t.Errorf("%d times %q in\n%s", strings.Count(out.All, want), want, out.All)
		}
	}
	if strings.Contains(out.All, "other/vpc") || strings.Count(out.All, "Apply complete! Resources: 1 added") != 2 {
		t.Error(out.All)
	}
}
