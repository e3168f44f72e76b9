package moduledoc_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// printed is what terraform-docs prints of the interface of a module.
type printed struct {
	Inputs []struct {
		Name        string  `json:"name"`
		Type        string  `json:"type"`
		Description *string `json:"description"` // nil if there is none
		Default     any     `json:"default"`
		Required    bool    `json:"required"`
	} `json:"inputs"`
	Outputs []struct {
		Name        string  `json:"name"`
		Description *string `json:"description"`
	} `json:"outputs"`
}

// shape is a module with the shape of a public one, and what terraform-docs prints of it.
type shape struct {
	Files         map[string]string `json:"files"`
	TerraformDocs printed           `json:"terraform_docs"`
}

// shapes returns the shapes by name.
func shapes(t *testing.T) map[string]shape {
	t.Helper()
	paths, err := filepath.Glob("testdata/shapes/*.json")
	if err != nil || len(paths) < 30 {
		t.Fatal(len(paths), err)
	}
	out := map[string]shape{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		var s shape
		if err == nil {
			err = json.Unmarshal(data, &s)
		}
		if err != nil {
			t.Fatal(path, err)
		}
		out[strings.TrimSuffix(filepath.Base(path), ".json")] = s
	}
	return out
}

// lines returns one line for each input and output. terraform-docs removes the spaces around descriptions when it prints them, so
// the lines are without those.
func (p printed) lines() []string {
	var out []string
	text := func(of *string) string {
		if of == nil {
			return ""
		}
		return strings.TrimSpace(*of)
	}
	for _, in := range p.Inputs {
		line := fmt.Sprintf("input %s: %s %q", in.Name, in.Type, text(in.Description))
		if value, err := json.Marshal(in.Default); err == nil && !in.Required {
			line += " default " + string(value)
		}
		out = append(out, line)
	}
	for _, o := range p.Outputs {
		out = append(out, fmt.Sprintf("output %s: %q", o.Name, text(o.Description)))
	}
	slices.Sort(out)
	return out
}

// differences are the lines that only terraform-docs and only this package have of a shape.
var differences = map[string]struct {
	reason       string // why ours are right
	theirs, ours []string
}{
	"override": {
		reason: "an override file replaces only the arguments that it has; terraform-docs replaces the block",
		theirs: []string{`input region: string "" default "south"`, `input size: number "" default 3`, `input tags: any "The tags of a test"`, `output url: ""`},
		ours: []string{`input region: string "The region of all resources" default "south"`, `input size: number "The number of machines" default 3`,
			`input tags: map(string) "The tags of a test"`, `output url: "The URL"`},
	},
	"tofu-instead-of-tf": {
		reason: "OpenTofu reads variables.tofu instead of variables.tf; terraform-docs reads both",
		theirs: []string{`input only_terraform: bool "Only Terraform has it" default true`},
	},
	"tofu-json": {
		reason: "OpenTofu reads .tofu.json files; terraform-docs does not",
		ours:   []string{`input zone: string "The zone" default "a"`, `output zone: "The zone that is used"`},
	},
	"ignored": {
		reason: "callers of the module can set an input that terraform-docs leaves out because of a comment",
		ours:   []string{`input internal: bool "For the authors of the module" default false`},
	},
}

// TestAsTerraformDocs compares inputs and outputs with those that terraform-docs prints as JSON.
func TestAsTerraformDocs(t *testing.T) {
	all := shapes(t)
	for name, s := range all {
		root := read(t, s.Files).Root
		if len(root.Skipped) > 0 {
			t.Errorf("%s: skipped %q", name, root.Skipped)
		}
		var got printed
		data, err := json.Marshal(root)
		if err == nil {
			err = json.Unmarshal(data, &got)
		}
		if err != nil {
			t.Fatal(name, err)
		}
		ours, theirs, known := got.lines(), s.TerraformDocs.lines(), differences[name]
		onlyOurs := slices.DeleteFunc(slices.Clone(ours), func(line string) bool { return slices.Contains(theirs, line) })
		onlyTheirs := slices.DeleteFunc(slices.Clone(theirs), func(line string) bool { return slices.Contains(ours, line) })
		if !slices.Equal(onlyOurs, known.ours) || !slices.Equal(onlyTheirs, known.theirs) {
			t.Errorf("%s:\n  only ours %q\nonly theirs %q", name, onlyOurs, onlyTheirs)
		}
	}
	for name := range differences {
		if _, ok := all[name]; !ok {
			t.Errorf("there is no shape %s", name)
		}
	}
}

// TestTerraformDocs shows that terraform-docs prints what the shapes say.
func TestTerraformDocs(t *testing.T) {
	program := clients.Program(t, "terraform-docs")
	for name, s := range shapes(t) {
		dir := t.TempDir()
		for _, file := range slices.Sorted(maps.Keys(s.Files)) {
			path := filepath.Join(dir, filepath.FromSlash(file))
			clients.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
			clients.Must(t, os.WriteFile(path, []byte(s.Files[file]), 0o644))
		}
		out, err := exec.CommandContext(t.Context(), program.Path, "json", "--show", "inputs,outputs", dir).Output()
		var got printed
		if err == nil {
			err = json.Unmarshal(out, &got)
		}
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		if !reflect.DeepEqual(got, s.TerraformDocs) {
			t.Errorf("%s: it prints\n%s", name, out)
		}
	}
}
