package doccheck

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The sentences in the documentation of packages that say who may import them.
const (
	forOthers    = "Other programs may import this package. Until version 1.0, a change that breaks them needs a new minor version."
	forOurselves = "Only ocibridge itself imports this package: it can change at any time."
)

// TestPackagesSayWhoMayImportThem shows that the documentation of each package that other programs could import says whether
// they may, and that the README names those that they may.
func TestPackagesSayWhoMayImportThem(t *testing.T) {
	out, err := exec.Command("go", "list", "-find", "-f", `{{if ne .Name "main"}}{{.ImportPath}} {{.Dir}} {{len .GoFiles}}{{end}}`, "../../../...").Output()
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var public []string
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		name := strings.TrimPrefix(f[0], "github.com/ocibridge/ocibridge/")
		if strings.HasPrefix(name, "internal/") || f[2] == "0" {
			continue
		}
		doc := packageDoc(t, f[1])
		switch {
		case strings.Contains(doc, forOthers):
			public = append(public, "`"+name+"`")
		case !strings.Contains(doc, forOurselves):
			t.Errorf("%s does not say who may import it: write %q or %q", name, forOthers, forOurselves)
		}
	}
	slices.Sort(public)
	last := len(public) - 1
	if want := strings.Join(public[:last], ", ") + " and " + public[last]; !strings.Contains(strings.ReplaceAll(string(readme), "\n", " "), want) {
		t.Errorf("README.md does not name %s", want)
	}
}

// packageDoc returns the documentation of the package in a folder, on one line.
func packageDoc(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), dir+"/"+e.Name(), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString(f.Doc.Text())
	}
	return strings.ReplaceAll(out.String(), "\n", " ")
}
