package origin_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

var vpc = module.MustParseAddress(host + "/platform/vpc/aws")

// moduleRegistry is the module registry of host. versions and download answer the two requests of the protocol.
func moduleRegistry(n *network, versions, download http.HandlerFunc) {
	mux := http.NewServeMux()
	mux.Handle("/.well-known/terraform.json", doc(`{"modules.v1":"/m/"}`))
	if versions != nil {
		mux.Handle("/m/platform/vpc/aws/versions", versions)
	}
	if download != nil {
		mux.Handle("/m/platform/vpc/aws/{version}/download", download)
	}
	n.serve(host, mux)
}

// TestModuleVersions shows how lists of versions are read.
func TestModuleVersions(t *testing.T) {
	listed := func(versions ...string) http.HandlerFunc {
		var all []string
		for _, v := range versions {
			all = append(all, fmt.Sprintf(`{"version":%q,"root":{"dependencies":[]}}`, v))
		}
		return doc(`{"modules":[{"source":"x","versions":[` + strings.Join(all, ",") + `]},{"versions":[{"version":"9.0.0"}]}]}`)
	}
	for name, tc := range map[string]struct {
		answer     http.HandlerFunc
		want, says string
		is         error
	}{
		"sorted":          {listed("1.10.0", "1.9.0", "1.9.0-rc1"), "1.9.0-rc1 1.9.0 1.10.0", "", nil},
		"with v":          {listed("v1.0.0", "1.0.0", "v2.0"), "1.0.0=v1.0.0,1.0.0 2.0.0=v2.0", "", nil},
		"no version":      {listed("1.0.0", "latest"), "1.0.0", "", nil},
		"none":            {listed(), "", "", nil},
		"no module":       {doc(`{"modules":[]}`), "", "no list of versions", nil},
		"absent":          {http.NotFound, "", "404", origin.ErrModuleNotFound},
		"no login":        {status(http.StatusUnauthorized), "", "401", origin.ErrUnauthorized},
		"HTML":            {text("text/html", "<html>"), "", "HTML", nil},
		"many spellings":  {listed("1", "1.0", "1.0.0", "v1", "v1.0"), "", "spellings", nil},
		"too many values": {listed(slices.Repeat([]string{"1.0.0"}, 10_001)...), "", "more than", nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			moduleRegistry(n, tc.answer, nil)
			client, _ := n.client("")
			l, err := client.ModuleVersions(t.Context(), vpc)
			if tc.says != "" {
				checkError(t, err, tc.says, "")
				if tc.is != nil && !errors.Is(err, tc.is) || hint.Of(err) == "" {
					t.Errorf("%v (%s)", err, hint.Of(err))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, v := range l.Versions {
				out := v.String()
				if s := l.Spellings[v]; len(s) != 1 || s[0] != out {
					out += "=" + strings.Join(s, ",")
				}
				got = append(got, out)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// TestModuleLocation shows where the location of a version is read from: as by OpenTofu and as by Terraform.
func TestModuleLocation(t *testing.T) {
	answer := func(code int, header, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if header != "" {
				w.Header().Set("X-Terraform-Get", header)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			if body != "" {
				fmt.Fprint(w, body)
			}
		}
	}
	const git = "git::https://github.com/acme/vpc?ref=1.0.0"
	for name, tc := range map[string]struct {
		answer     http.HandlerFunc
		want, says string
	}{
		"header":                {answer(204, git, ""), git, ""},
		"header with 200":       {answer(200, git, "not JSON"), git, ""},
		"document":              {answer(200, "", `{"location":"`+git+`"}`), git, ""},
		"both":                  {answer(200, git, `{"location":"`+git+`"}`), git, ""},
		"two":                   {answer(200, git, `{"location":"./x.zip"}`), "", "two locations"},
		"relative":              {answer(204, "./x.zip//sub?archive=zip", ""), "https://" + host + "/m/platform/vpc/aws/1.0.0/x.zip//sub?archive=zip", ""},
		"relative to the host":  {answer(204, "/x.zip", ""), "https://" + host + "/x.zip", ""},
		"relative to a folder":  {answer(204, "../x.zip", ""), "https://" + host + "/m/platform/vpc/aws/x.zip", ""},
		"none":                  {answer(204, "", ""), "", "without a location"},
		"none in the document":  {answer(200, "", `{}`), "", "without a location"},
		"no JSON":               {answer(200, "", "<html>"), "", "not the JSON"},
		"absent":                {http.NotFound, "", "404"},
		"too long":              {answer(204, "https://x.example/"+strings.Repeat("x", 9<<10), ""), "", "more than 8192"},
		"too long the document": {answer(200, "", `{"location":"`+strings.Repeat("x", 65<<10)+`"}`), "", "65536"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			moduleRegistry(n, nil, tc.answer)
			client, _ := n.client("")
			got, err := client.ModuleLocation(t.Context(), vpc, "1.0.0")
			if tc.says != "" {
				checkError(t, err, tc.says, "")
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("%s, %v, want %s", got, err, tc.want)
			}
		})
	}
}

// TestModuleCredentials checks that the token of a registry is sent to the registry.
func TestModuleCredentials(t *testing.T) {
	n := newNetwork(t)
	moduleRegistry(n, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		doc(`{"modules":[{"versions":[{"version":"1.0.0"}]}]}`)(w, r)
	}, nil)
	client, _ := n.client("secret")
	l, err := client.ModuleVersions(t.Context(), vpc)
	if err != nil || len(l.Versions) != 1 || l.Versions[0] != provider.MustParseVersion("1.0.0") {
		t.Error(l, err)
	}
}
