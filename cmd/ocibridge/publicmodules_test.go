package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/gitserver"
	"github.com/ocibridge/ocibridge/internal/test/testkit/howto"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// TestPublicModulesHowTo runs docs/howto/public-modules.md with OpenTofu. The public registry is a module registry of the test,
// and leads to a real Git server.
func TestPublicModulesHowTo(t *testing.T) {
	ca, home := tlsca.For(t), t.TempDir()
	git := gitserver.New(t, t.TempDir())
	for _, version := range []string{"0.24.1", "0.25.0"} {
		git.Commit(t, "label", gitserver.Tree{"main.tf": fmt.Sprintf("output \"id\" { value = %q }\n", version), "README.md": "# label\n"})
		git.Git(t, "label", "tag", version, "main")
	}
	git.Commit(t, "vpc", gitserver.Tree{"main.tf": "module \"this\" {\n  source  = \"cloudposse/label/null\"\n  version = \"0.25.0\"\n}\n"})
	git.Git(t, "vpc", "tag", "2.1.0", "main")
	registry := moduleRegistry{
		path: "/v1/modules/", modules: [][]string{{"cloudposse/label/null", "0.24.1", "0.25.0"}, {"cloudposse/vpc/aws", "2.1.0"}}, off: filepath.Join(home, "off"),
		location: func(r *http.Request, module, version string) string {
			return "git::https://" + r.Host + "/git/" + strings.Split(module, "/")[1] + "?ref=" + version
		},
	}
	mux := http.NewServeMux()
	mux.Handle("/", registry)
	mux.Handle("/git/", http.StripPrefix("/git", git))
	at := strings.Replace(startTLS(t, ca, "localhost", mux), "127.0.0.1", "localhost", 1)
	config, hosts := filepath.Join(home, "origin.tfrc"), ""
	for _, host := range []string{"registry.opentofu.org", "registry.terraform.io"} {
		hosts += fmt.Sprintf("host %q {\n  services = {\n    \"modules.v1\" = \"https://%s/v1/modules/\"\n  }\n}\n", host, at)
	}
	if err := os.WriteFile(config, []byte(hosts), 0o600); err != nil {
		t.Fatal(err)
	}
	caFile, err := ca.WriteFile(home)
	if err != nil {
		t.Fatal(err)
	}
	out := howto.Run{
		Page: "public-modules", Dir: home,
		Before: map[string]string{"cd network": "touch " + registry.off}, // the public registry is gone
		Env:    []string{"SSL_CERT_FILE=" + caFile, "TF_CLI_CONFIG_FILE=" + config, "TF_CLI_ARGS=-no-color"},
	}.Do(t)
	commit := git.Git(t, "label", "rev-parse", "0.25.0")
	if !strings.Contains(out.All, "id = \"0.25.0\"") || !strings.Contains(out.All, "commit      "+commit) {
		t.Error(out.All)
	}
}
