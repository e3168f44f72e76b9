package doctor

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/module"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

// TestModuleOrigin shows what doctor says about the origin of a public module: its versions, and whether the files of the newest
// one can be fetched.
func TestModuleOrigin(t *testing.T) {
	ca := tlsca.For(t)
	location, versions := "/v.tgz", `{"version":"1.0.0"},{"version":"1.1.0"}`
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/terraform.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"modules.v1":"/m/"}`)
	})
	mux.HandleFunc("/m/acme/vpc/aws/versions", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"modules":[{"versions":[%s]}]}`, versions)
	})
	mux.HandleFunc("/m/acme/vpc/aws/1.1.0/download", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Terraform-Get", location)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("/v.tgz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the beginning") })
	server := httptest.NewUnstartedServer(mux)
	var err error
	if server.TLS, err = ca.ServerConfig("127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := ca.HTTPClient().Transport.(*http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	client := realorigin.NewRegistry(realorigin.RegistryOptions{Transport: transport})
	t.Cleanup(client.HTTP().CloseIdleConnections)
	x := ModuleOrigin{Module: module.MustParseAddress(u.Host + "/acme/vpc/aws"), Origin: &moduleorigin.Origin{Registry: client}, URL: u}

	got := checks(t, x.Examine(t.Context()))
	want(t, got, "origin", OK, "it lists 2 versions; the newest one to push is 1.1.0")
	want(t, got, "files", OK, "version 1.1.0 is at "+server.URL+"/v.tgz")
	location = "/gone.tgz"
	want(t, checks(t, x.Examine(t.Context())), "files", Fail, "/gone.tgz")
	location = "hg::https://hg.example/x"
	want(t, checks(t, x.Examine(t.Context())), "files", Fail, "hg")
	if x.Versions, err = provider.ParseConstraint("~> 2.0"); err != nil {
		t.Fatal(err)
	}
	want(t, checks(t, x.Examine(t.Context())), "origin", Fail, "nothing that it offers matches")
	versions = ""
	want(t, checks(t, x.Examine(t.Context())), "origin", Fail, "it lists no version")
	x.Module = module.MustParseAddress(u.Host + "/acme/other/aws")
	want(t, checks(t, x.Examine(t.Context())), "origin", Fail, "module not found")
}
