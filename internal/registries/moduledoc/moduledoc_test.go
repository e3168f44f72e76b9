package moduledoc_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/registries/moduledoc"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
)

// pack returns a zip with files.
func pack(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for name, content := range files {
		f, err := w.Create(name)
		if err == nil {
			_, err = f.Write([]byte(content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func read(t testing.TB, files map[string]string) *moduledoc.Doc {
	t.Helper()
	d, err := moduledoc.Read(t.Context(), pack(t, files), "")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestParts shows which folders and files are read.
func TestParts(t *testing.T) {
	variable := func(name string) string { return "variable \"" + name + "\" {}\n" }
	d := read(t, map[string]string{
		"main.tf": variable("root"), "README.md": "# Root\xff", "readme.txt": "no", "modules/b/main.tf": variable("b"), "modules/a/main.tf": variable("a"),
		"modules/a/Readme.markdown": "# A", "modules/a/deeper/main.tf": variable("no"), "modules/main.tf": variable("no"), "examples/full/main.tf": variable("e"),
		"other/main.tf": variable("no"), "modules/c/notes.txt": "", "examples/README.md": "# All", "../main.tf": variable("no"), "modules/../d/main.tf": variable("no"),
	})
	var got []string
	for _, parts := range [][]moduledoc.Part{{d.Root}, d.Modules, d.Examples} {
		for _, p := range parts {
			line := p.Path + " " + p.Readme
			for _, in := range p.Inputs {
				line += " " + in.Name
			}
			got = append(got, line)
		}
	}
	if want := []string{" # Root\ufffd root", "modules/a # A a", "modules/b  b", "examples/full  e"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if d.Part("modules/b") != &d.Modules[1] || d.Part("") != &d.Root || d.Part("modules/c") != nil {
		t.Error("wrong part")
	}
	if inner, err := moduledoc.Read(t.Context(), pack(t, map[string]string{"a/b/main.tf": variable("x"), "a/b/modules/c/main.tf": "", "a/main.tf": variable("no")}), "a/b"); err != nil || inner.Root.Inputs[0].Name != "x" || len(inner.Modules) != 1 {
		t.Errorf("%+v %v", inner, err)
	}
}

// TestRead shows what is read beyond the JSON of terraform-docs.
func TestRead(t *testing.T) {
	for _, tt := range []struct {
		about string
		files map[string]string
		want  string
	}{
		{"tofu files", map[string]string{"a.tf": "variable \"tf\" {}", "a.tofu": "variable \"tofu\" {}", "b.tf": "variable \"b\" {}", "c.tf.json": `{"variable":{"c":{}}}`, "c.tofu.json": `{"variable":{"d":{}}}`},
			"in b any required|in d any required|in tofu any required"},
		{"override", map[string]string{"override.tf": "variable \"a\" {\n default = 2\n}\noutput \"o\" {\n value = 2\n}", "main.tf": "variable \"a\" {\n type = number\n description = \"A\"\n nullable = false\n sensitive = true\n default = 1\n}\noutput \"o\" {\n value = 1\n}"},
			"in a number 2 sensitive not-nullable: A|out o"},
		{"override in JSON", map[string]string{"a_override.tf.json": `{"variable":{"a":{"default":2}},"output":{"o":{"value":2}}}`, "main.tf": "variable \"a\" {\n type = number\n sensitive = true\n}\noutput \"o\" {\n value = 1\n sensitive = true\n}"},
			"in a number 2 sensitive|out o sensitive"},
		{"tests", map[string]string{"main.tf": "", "a.tftest.hcl": "variable \"x\" {}"}, ""},
		{"not constant", map[string]string{"main.tf": "variable \"a\" {\n default = [for x in [1] : x]\n}\nvariable \"b\" {\n default = local.x\n}\nvariable \"c\" {\n type = string\n default = 1e300\n}\nvariable \"d\" {\n default = file(\"x\")\n}"},
			"in a any [for x in [1] : x]|in b any local.x|in c string 1e300|in d any file(\"x\")"},
		{"syntax errors", map[string]string{"main.tf": "variable \"a\" {\n type = = string\n}\nvariable \"b\" {\n type = string\n}\nresource {{\n"}, "in a = required|in b string required"},
		{"more of inputs", map[string]string{"main.tf": "variable \"a\" {\n type = string\n ephemeral = true\n deprecated = \"use b\"\n}\noutput \"o\" {\n value = 1\n sensitive = true\n ephemeral = true\n}"},
			"in a string required ephemeral deprecated=use b|out o sensitive ephemeral"},
		{"in JSON", map[string]string{"main.tf.json": `{"variable":{"a":{"nullable":false,"ephemeral":true,"sensitive":true}},"output":{"o":{"ephemeral":true}},"data":{"x_y":{"z":{}}}}`},
			"in a any required sensitive not-nullable ephemeral|out o ephemeral|needs x  []|data.x_y.z"},
		{"numbers in JSON", map[string]string{"main.tf.json": `{"variable":{"a":{"default":1e300}}}`}, "skipped main.tf.json: it has a number that is too large"},
		{"providers", map[string]string{"main.tf": "terraform {\n required_version = \">= 1\"\n required_providers {\n  a = { source = \"acme/a\", version = \"~> 1\" }\n  b = \"2.0\"\n }\n}\nresource \"c_x\" \"y\" {}\nresource \"d_x\" \"y\" {\n provider = a.west\n}\ndata \"a_z\" \"y\" {}\nprovider \"e\" {}\nephemeral \"f_x\" \"y\" {}"},
			"core [>= 1]|needs a acme/a [~> 1]|needs b  [2.0]|needs c  []|needs e  []|needs f  []|data.a_z.y|c_x.y|d_x.y"},
		{"providers of other blocks", map[string]string{"main.tf": "ephemeral \"a_x\" \"y\" {\n provider = b.west\n}\naction \"c_x\" \"y\" {}", "main.tf.json": `{"ephemeral":{"d_x":{"y":{}}},"action":{"e_x":{"y":{"provider":"f.west"}}}}`},
			"needs b  []|needs c  []|needs d  []|needs f  []"},
		{"override of requirements", map[string]string{
			"main.tf":          "terraform {\n required_version = \">= 1\"\n required_providers {\n  a = { source = \"acme/a\", version = \"~> 1\" }\n  b = { source = \"acme/b\", version = \"~> 1\" }\n }\n}\nmodule \"c\" {\n source = \"acme/b/c\"\n version = \"~> 1\"\n}\nmodule \"d\" {\n source = \"./d\"\n}",
			"main_override.tf": "terraform {\n required_version = \">= 2\"\n required_providers {\n  a = { source = \"acme/x\", version = \">= 2\" }\n }\n}\nmodule \"c\" {\n version = \"2.0.0\"\n}\nresource \"b_x\" \"y\" {}",
		}, "core [>= 2]|needs a acme/x [>= 2]|needs b acme/b [~> 1]|calls c acme/b/c 2.0.0|calls d ./d |b_x.y"},
		{"override of requirements in JSON", map[string]string{
			"main.tf":          "terraform {\n required_providers {\n  a = { source = \"acme/a\", version = \"~> 1\" }\n }\n}",
			"override.tf.json": `{"terraform":{"required_providers":{"a":{"source":"acme/a","version":">= 2"}}},"data":{"a_x":{"y":{}}}}`,
		}, "needs a acme/a [>= 2]|data.a_x.y"},
		{"calls", map[string]string{"main.tf": "module \"a\" {\n source = \"./modules/a\"\n}\nmodule \"b\" {\n source = \"acme/b/c\"\n version = \"~> 1\"\n}\nmodule \"c\" {\n source = var.x\n}"},
			"calls a ./modules/a |calls b acme/b/c ~> 1|calls c var.x "},
		{"a large resource", map[string]string{"main.tf": "resource \"a_x\" \"y\" {\n x = <<EOT\n" + strings.Repeat("\n", 3_000) + "EOT\n}\n"}, "needs a  []|a_x.y"},
		{"a large input", map[string]string{"main.tf": "variable \"a\" {\n default = " + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "\n}\nvariable \"b\" {}"},
			"in b any required|skipped main.tf:1: the block has more than 12000 words and signs, 1000 parts of texts, 64 nested brackets or 131072 bytes"},
		{"much to parse", map[string]string{"main.tf": strings.Repeat("variable \"a\" {\n x = ["+strings.Repeat("y,", 5_500)+"]\n}\n", 10) + "variable \"b\" {}\n"},
			"in a any required|skipped the module has more than 100000 words and signs to parse"},
		{"many numbers", map[string]string{"main.tf": strings.Repeat("variable \"a\" {\n x = ["+strings.Repeat("1, ", 1_000)+"]\n}\n", 5) + "variable \"b\" {}\n"},
			"in a any required|skipped the module has more than 100000 words and signs to parse"},
		{"many texts", map[string]string{"main.tf": strings.Repeat("variable \"a\" {\n x = \""+strings.Repeat("y", 50_000)+"\"\n}\n", 65) + "variable \"b\" {}\n"},
			"in a any required|skipped the module has more than 100000 words and signs to parse"},
		{"a long text", map[string]string{"main.tf": "variable \"a\" {\n description = \"" + strings.Repeat("x", 20_000) + "\"\n}"}, "in a any required|skipped a text of 20000 bytes"},
		{"a long README", map[string]string{"README.md": strings.Repeat("x", 300_000), "main.tf": ""}, "skipped README.md: it has 300000 bytes, more than are read"},
	} {
		if got := print(&read(t, tt.files).Root); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.about, got, tt.want)
		}
	}
}

// print returns what a part declares in one line.
func print(p *moduledoc.Part) string {
	var out []string
	flags := func(line string, all ...any) string {
		for i := 0; i < len(all); i += 2 {
			if all[i+1].(bool) {
				line += " " + all[i].(string)
			}
		}
		return line
	}
	for _, in := range p.Inputs {
		line := flags("in "+in.Name+" "+in.Type, "required", in.Required, in.DefaultText(), !in.Required, "sensitive", in.Sensitive, "not-nullable", !in.Nullable, "ephemeral", in.Ephemeral, "deprecated="+in.Deprecated, in.Deprecated != "")
		if in.Description != "" {
			line += ": " + in.Description
		}
		out = append(out, line)
	}
	for _, o := range p.Outputs {
		out = append(out, flags("out "+o.Name, "sensitive", o.Sensitive, "ephemeral", o.Ephemeral))
	}
	if len(p.Core) > 0 {
		out = append(out, fmt.Sprint("core ", p.Core))
	}
	for _, r := range p.Requires {
		out = append(out, fmt.Sprintf("needs %s %s %v", r.Name, r.Source, r.Version))
	}
	for _, c := range p.Calls {
		out = append(out, "calls "+c.Name+" "+c.Source+" "+c.Version)
	}
	for _, r := range p.Resources {
		out = append(out, map[bool]string{true: "data."}[r.Data]+r.Type+"."+r.Name)
	}
	for _, s := range p.Skipped {
		out = append(out, "skipped "+s)
	}
	return strings.Join(out, "|")
}

func TestDiff(t *testing.T) {
	older := read(t, map[string]string{"main.tf": `
variable "gone" { default = 1 }
variable "same" { type = object({ a = string }) }
variable "type" { type = string }
variable "default" { default = 1 }
variable "now_required" { default = 1 }
variable "now_optional" {}
variable "not_null" { default = 1 }
output "gone" { value = 1 }
output "secret" { value = 1 }
output "same" { value = 1 }
`}).Root
	newer := read(t, map[string]string{"main.tf": `
variable "new" { default = 1 }
variable "new_required" {}
variable "same" {
  description = "Described"
  type        = object({
    a = string })
}
variable "type" { type = number }
variable "default" { default = 2 }
variable "now_required" {}
variable "now_optional" { default = 1 }
variable "not_null" {
  default  = 1
  nullable = false
}
output "new" { value = 1 }
output "secret" {
  value     = 1
  sensitive = true
}
output "same" { value = 2 }
`}).Root
	var got []string
	for _, c := range moduledoc.Diff(&older.Interface, &newer.Interface) {
		got = append(got, fmt.Sprint(map[bool]string{true: "! "}[c.Breaks], c.Kind, map[bool]string{true: " output "}[c.Output], " ", c.Name, " ", c.What))
	}
	want := []string{
		"! added new_required []", "! changed now_required [required]", "! changed type [type]", "! changed not_null [nullable]", "! removed gone []", "! changed output  secret [sensitive]", "! removed output  gone []",
		"changed default [default]", "added new []", "changed now_optional [optional]", "added output  new []",
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
}

// FuzzRead checks that any file gives a document that JSON can carry, and that a block before it is read whatever follows.
func FuzzRead(f *testing.F) {
	f.Add("variable \"a\" {\n default = { \"b\" = [1, null] }\n}\noutput \"c\" {\n value = <<EOT\n}\nEOT\n}")
	f.Add(`{"variable": {"a": {"default": {"b": [1, null]}}}}`)
	f.Add("terraform {\n required_providers {\n a = { source = \"b/c\" }\n }\n}\nmodule \"d\" {\n source = \"e\"\n}")
	f.Fuzz(func(t *testing.T, src string) {
		d := read(t, map[string]string{"main.tf": "variable \"first\" {\n type = string\n}\n" + src, "more.tf.json": src, "README.md": src})
		if !slices.ContainsFunc(d.Root.Inputs, func(i moduledoc.Input) bool { return i.Name == "first" }) {
			t.Errorf("%q hides the block before it", src)
		}
		data, err := json.Marshal(d)
		if err != nil {
			t.Fatalf("%q: %v", src, err)
		}
		var back moduledoc.Doc
		if err := json.Unmarshal(data, &back); err != nil {
			t.Errorf("%q: %v", src, err)
		}
	})
}

// TestRefused shows which zips are not read.
func TestRefused(t *testing.T) {
	many := map[string]string{}
	for i := range 20_001 {
		many[fmt.Sprint(i)] = ""
	}
	for about, tt := range map[string]struct {
		data []byte
		want error
	}{
		"no zip":       {[]byte("PK no"), moduledoc.ErrNotZip},
		"nothing":      {nil, moduledoc.ErrNotZip},
		"large":        {make([]byte, moduledoc.MaxZip+1), moduledoc.ErrTooLarge},
		"many entries": {pack(t, many), moduledoc.ErrTooLarge},
	} {
		if _, err := moduledoc.Read(t.Context(), tt.data, ""); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", about, err)
		}
	}
}

// costly returns modules that are expensive to read. A zip can be much smaller than the files in it.
func costly() map[string]map[string]string {
	fill := func(part string, size int) string { return strings.Repeat(part, size/len(part)) }
	files := func(n int, name, content string) map[string]string {
		out := map[string]string{}
		for i := range n {
			out[fmt.Sprintf(name, i)] = content
		}
		return out
	}
	return map[string]map[string]string{
		"inputs":          {"main.tf": fill("variable \"a\" {\n}\n", 4<<20)},
		"different":       {"main.tf": numbered("variable \"a%d\" {\n default = [1, 2]\n}\n", 100_000)},
		"large inputs":    {"main.tf": fill("variable \"a\" {\n default = ["+strings.Repeat("1,", 9_000)+"]\n}\n", 4<<20)},
		"resources":       {"main.tf": numbered("resource \"a_b\" \"c%d\" {\n}\n", 100_000)},
		"large resources": {"main.tf": fill("resource \"a_b\" \"c\" {\n provider = ["+strings.Repeat("1,", 9_000)+"]\n}\n", 4<<20)},
		"other blocks":    {"main.tf": fill("locals {\n}\n", 4<<20)},
		"many files":      files(2_000, "f%d.tf", fill("variable \"a\" {\n}\n", 10<<10)),
		"many modules":    files(2_000, "modules/m%d/main.tf", fill("variable \"a\" {\n}\n", 10<<10)),
		"many READMEs":    files(2_000, "modules/m%d/README.md", fill("a\n", 200<<10)),
		"a long README":   {"README.md": fill("<script>a()</script> [b](javascript:a())\n\n", 5<<20), "main.tf": ""},
		"all at once":     files(4, "f%d.tf", fill("locals {\n}\n", 3<<20)+numbered("variable \"a%d\" {\n default = [1, 2]\n description = \""+strings.Repeat("x", 100)+"\"\n}\n", 2_400)),
		"longer texts":    files(4, "f%d.tf", fill("variable \"a\" {\n description = \""+strings.Repeat("x", 10_000)+"\"\n}\n", 4<<20)),
		"numbers":         {"main.tf": fill("variable \"a\" {\n default = ["+strings.Repeat("0.1,", 1_000)+"]\n}\n", 200_000)},
		"numbers in JSON": {"main.tf.json": `{"variable":{` + strings.TrimSuffix(strings.Repeat(`"a":{"default":[`+strings.Repeat("0.1,", 99)+`1]},`, 40), ",") + `}}`},
		"whole numbers":   {"main.tf": fill("variable \"a\" {\n default = ["+strings.Repeat("1,", 1_000)+"]\n}\n", 200_000)},
		"empty lines":     {"main.tf": fill("\n", 4<<20)},
		"loops":           {"main.tf": "variable \"a\" {\n default = " + strings.Repeat("[for x in [1, 2, 3] : ", 50) + "1" + strings.Repeat("]", 50) + "\n}\n"},
		"JSON":            {"main.tf.json": `{"variable":{` + strings.TrimSuffix(numbered(`"a%d":{"default":[1,2]},`, 9_000), ",") + `}}`},
		"shorter JSON":    {"main.tf.json": `{"variable":{` + strings.TrimSuffix(numbered(`"a%d":{"default":[1,2]},`, 1_700), ",") + `}}`},
		"long names":      {"main.tf": fill("variable \"a\" {\n description = \""+strings.Repeat("x", 10_000)+"\"\n}\n", 4<<20)},
		"long texts":      {"main.tf": numbered("variable \"a%d\" {\n description = \""+strings.Repeat("x", 10_000)+"\"\n}\n", 400)},
	}
}

// TestKept shows that the manuals of large modules keep little memory.
func TestKept(t *testing.T) {
	for about, content := range costly() {
		t.Run(about, func(t *testing.T) {
			data := pack(t, content)
			cost.Kept(t, 8<<20, func() any {
				d, err := moduledoc.Read(t.Context(), data, "")
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d bytes: %d inputs, %d modules, %d bytes kept, skipped %q", len(data), len(d.Root.Inputs), len(d.Modules), d.Size(), d.Root.Skipped)
				return d
			})
		})
	}
}

func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}
