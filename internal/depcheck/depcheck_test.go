// Package depcheck enforces which package may import which. Changing the table below is a design decision;
// CONTRIBUTING.md shows the same arrows as a map.
package depcheck

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ocibridge/ocibridge"

// may lists, for each top-level package, which of our packages it may import, in addition to leaves, which
// every package may import.
var may = map[string][]string{
	"docs":             {},
	"provider":         {},
	"ociaddr":          {"provider"},
	"templates":        {"provider", "ociaddr"},
	"trust":            {"provider"},
	"artifact":         {"provider", "ociaddr", "trust"},
	"origin":           {"provider", "trust"},
	"pusher":           {"provider", "ociaddr", "templates", "artifact", "trust", "origin", "internal/fill", "internal/registry/upload"},
	"auth":             {"ociaddr"},
	"gateway":          {"provider", "ociaddr", "templates", "artifact", "trust", "gateway/access", "gateway/archives", "gateway/catalog", "gateway/verify"},
	"gateway/access":   {"provider"},
	"gateway/archives": {"provider", "artifact", "internal/fill"},
	"gateway/page":     {"provider", "artifact", "trust", "gateway", "gateway/access", "gateway/catalog", "gateway/verify"},
	"gateway/verify":   {"provider", "artifact", "trust"},
	"cmd/ocibridge": {"docs", "provider", "ociaddr", "templates", "artifact", "trust", "origin", "pusher", "auth", "gateway", "gateway/verify",
		"internal/bundle", "internal/cliconfig", "internal/clientsetup", "internal/config", "internal/doctor", "internal/inventory", "internal/lock", "internal/lockfile", "internal/originclient", "internal/query", "internal/registry", "internal/registry/embedded", "internal/serve", "internal/transfer"},
	"internal/serve": {"provider", "ociaddr", "templates", "artifact", "trust", "origin", "pusher", "auth", "gateway", "gateway/access", "gateway/archives", "gateway/catalog", "gateway/page", "gateway/verify",
		"internal/cliconfig", "internal/clientsetup", "internal/config", "internal/localca", "internal/originclient", "internal/pull", "internal/registry", "internal/registry/embedded", "internal/transfer"},
	"internal/originclient": {"provider", "origin", "internal/cliconfig"},
	"internal/registry":     {"provider", "ociaddr", "templates", "artifact", "auth", "internal/registry/embedded"},
	"internal/query":        {"provider"},
	"internal/inventory":    {"provider", "ociaddr", "artifact", "trust", "internal/query", "internal/registry"},
	"internal/lock":         {"provider", "ociaddr", "templates", "artifact", "trust", "internal/lockfile"},
	"internal/transfer":     {"provider", "ociaddr", "trust", "origin", "pusher", "internal/bundle", "internal/config", "internal/inventory", "internal/lockfile", "internal/query", "internal/registry"},
	"internal/clientsetup":  {"provider", "ociaddr", "templates", "gateway", "internal/config", "internal/registry/embedded"},
	"gateway/catalog":       {"provider", "ociaddr", "artifact"},
	"internal/pull":         {"provider", "ociaddr", "artifact", "trust", "origin", "pusher", "gateway/catalog", "internal/fill"},
	"internal/fill":         {},
}

// leaves import nothing of ours but each other.
var leaves = []string{"internal/document", "internal/files", "internal/fresh", "internal/helper", "internal/hint", "internal/neterr", "internal/outgoing", "internal/privatefolder", "internal/refusals", "internal/telemetry"}

type listed struct {
	ImportPath   string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func importGraph(t *testing.T) map[string]listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,GoFiles,Imports,TestImports,XTestImports", module+"/...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	graph := map[string]listed{}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return graph
		} else if err != nil {
			t.Fatal(err)
		}
		if name, ok := strings.CutPrefix(p.ImportPath, module+"/"); ok {
			graph[name] = p
		}
	}
}

// ours returns the imports that are packages of this module.
func ours(imports []string) (out []string) {
	for _, i := range imports {
		if name, ok := strings.CutPrefix(i, module+"/"); ok {
			out = append(out, name)
		}
	}
	return out
}

func TestArrows(t *testing.T) {
	graph := importGraph(t)
	for name := range may {
		if _, ok := graph[name]; !ok {
			t.Errorf("package %s is in the table and not in the module", name)
		}
	}
	for name, p := range graph {
		allowed, top := may[name]
		if !top && !strings.HasPrefix(name, "internal/") && name != "e2e" && name != "deploy" && name != "tools" {
			t.Errorf("package %s is not in the table", name)
		}
		for _, imported := range ours(p.Imports) {
			switch {
			case slices.Contains(leaves, imported):
			case slices.Contains(leaves, name):
				t.Errorf("%s imports %s, but is a leaf", name, imported)
			case strings.HasPrefix(imported, "cmd/"):
				t.Errorf("%s imports %s", name, imported)
			case top && !slices.Contains(allowed, imported):
				t.Errorf("%s imports %s, which the design does not allow", name, imported)
			case strings.HasPrefix(imported, "internal/testkit") && !strings.HasPrefix(name, "internal/testkit") && name != "internal/demo" && name != "internal/bench" && name != "internal/soak":
				t.Errorf("%s imports %s, which is for tests", name, imported)
			}
		}
	}
}

// TestObserversAreAlone shows that only one package uses the libraries of metrics and traces.
func TestObserversAreAlone(t *testing.T) {
	for name, p := range importGraph(t) {
		for _, imported := range p.Imports {
			if (strings.HasPrefix(imported, "github.com/prometheus/") || strings.HasPrefix(imported, "go.opentelemetry.io/")) && name != "internal/telemetry" {
				t.Errorf("%s imports %s, which is for internal/telemetry", name, imported)
			}
		}
	}
}

// TestOpenPGPIsAlone shows that only trust uses the OpenPGP library: trust bounds the cost of keys and
// signatures.
func TestOpenPGPIsAlone(t *testing.T) {
	for name, p := range importGraph(t) {
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, "github.com/ProtonMail/go-crypto") && name != "trust" && !strings.HasPrefix(name, "internal/testkit/") {
				t.Errorf("%s imports %s, which is for trust", name, imported)
			}
		}
	}
}

// TestTransportsAreBounded shows that only internal/outgoing creates HTTP transports or uses net/http's own: it
// bounds the headers of answers.
func TestTransportsAreBounded(t *testing.T) {
	for name, p := range importGraph(t) {
		if strings.HasPrefix(name, "internal/testkit") || name == "internal/bench" || name == "internal/outgoing" {
			continue
		}
		for _, file := range p.GoFiles {
			src, err := os.ReadFile(filepath.Join("../..", name, file))
			if err != nil {
				t.Fatal(err)
			}
			for _, use := range transports.FindAll(src, -1) {
				t.Errorf("%s/%s has %s, which is for internal/outgoing", name, file, use)
			}
		}
	}
}

// transports matches code that creates an HTTP transport or uses one of net/http's own.
var transports = regexp.MustCompile(`http\.(DefaultTransport|DefaultClient|Transport\{|(Get|Head|Post|PostForm)\()|new\(http\.Transport\)|(auth|retry)\.DefaultClient`)

// TestEndToEndUsesTheBinary shows that e2e imports nothing of the program: it uses the program as users do.
func TestEndToEndUsesTheBinary(t *testing.T) {
	p, ok := importGraph(t)["e2e"]
	if !ok {
		t.Fatal("no package e2e")
	}
	for _, imported := range ours(slices.Concat(p.Imports, p.TestImports, p.XTestImports)) {
		if !strings.HasPrefix(imported, "internal/testkit") {
			t.Errorf("e2e imports %s", imported)
		}
	}
}
