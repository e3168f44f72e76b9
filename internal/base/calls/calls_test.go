package calls_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/calls"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// print returns what a file declares, as one line for each part.
func print(d *calls.Folder) (out []string) {
	argument := func(a calls.Argument) string {
		switch {
		case !a.Set:
			return "-"
		case !a.Constant:
			return "?"
		}
		return a.Text
	}
	for _, c := range d.Calls {
		out = append(out, fmt.Sprintf("%s:%d %s %s %s", c.File, c.Line, c.Name, argument(c.Source), argument(c.Version)))
	}
	for _, r := range d.Required {
		out = append(out, fmt.Sprintf("%s:%d require %s %s %s", r.File, r.Line, r.Name, argument(r.Source), argument(r.Version)))
	}
	for _, u := range d.Uses {
		out = append(out, fmt.Sprintf("%s:%d use %s %s", u.File, u.Line, u.Name, argument(u.Version)))
	}
	for _, s := range d.Skipped {
		out = append(out, fmt.Sprintf("%s:%d skipped: %s", s.File, s.Line, s.Reason))
	}
	return out
}

const large = "the block has more than 12000 words and signs, 1000 parts of texts, 64 nested brackets or 131072 bytes"

// TestRead shows what is read of one file.
func TestRead(t *testing.T) {
	for _, tt := range []struct{ about, name, src, want string }{
		{"calls", "main.tf", "module \"a\" {\n  source = \"./a\"\n}\n\nmodule \"b\" {\n  source  = \"acme/b/aws//sub\"\n  version = \"~> 1.0\"\n}\n", "main.tf:1 a ./a -|main.tf:5 b acme/b/aws//sub ~> 1.0"},
		{"JSON", "x/main.tofu.json", "{\"module\": {\n\"a\": {\"source\": \"../a\", \"version\": \"1.0\"}}}", "x/main.tofu.json:2 a ../a 1.0"},
		{"lists in JSON", "main.tf.json", `{"module": [{"a": [{"source": "./a"}]}, {"b": {"source": "./b"}}], "resource": {"null_resource": {"x": {}}}}`,
			"main.tf.json:1 a ./a -|main.tf.json:1 b ./b -|main.tf.json:1 use null -"},
		{"a test", "a.tftest.hcl", "run \"a\" {\n  module {\n    source = \"./tests/a\"\n  }\n}\n", "a.tftest.hcl:2 a ./tests/a -"},
		{"no constants", "main.tf", "module \"a\" {\n  source = \"${var.x}/a\"\n}\nmodule \"b\" {}\nmodule \"c\" {\n  source = \"a/b/c\"\n  version = local.v\n}\nmodule \"d\" {\n source = join(\"/\", [\"a\"])\n}\n",
			"main.tf:1 a ? -|main.tf:4 b - -|main.tf:5 c a/b/c ?|main.tf:9 d ? -"},
		{"no constant in JSON", "main.tf.json", `{"module": {"a": {"source": "${var.x}/a"}}}`, "main.tf.json:1 a ? -"},
		{"constants in other forms", "main.tf", "module \"a\" {\n source = ((\"./a\"))\n version = 1.5\n}\nmodule \"b\" {\n source = \"${\"./b\"}\"\n version = null\n}\n", "main.tf:1 a ./a 1.5|main.tf:5 b ./b -"},
		{"an error later", "main.tf", "module \"a\" {\n  source = \"./a\"\n}\nresource {{\n", "main.tf:1 a ./a -"},
		{"an error in another block", "main.tf", "resource \"a_b\" \"c\" {\n  = = \n}\nmodule \"a\" {\n  source = \"./a\"\n  x = [1,,\n  ]\n}\n", "main.tf:4 a ./a -|main.tf:1 use a -"},
		{"what looks like a block", "main.tf", "locals {\n  a = <<-EOT\n    module \"no\" {\n    }\n    \"\n    EOT\n  b = \"${format(\"}%s\", \"module \\\"no\\\" {\")}\"\n  c = \"$${\"\n /* module \"no\" {\n */\n # {\n // {\n}\nmodule \"a\" {\n  source = \"./a\"\n}\n",
			"main.tf:14 a ./a -"},
		{"a byte order mark and CRLF", "main.tf", "\ufeffmodule \"a\" {\r\n  source = \"./a\"\r\n}\r\nlocals {\r\n a = <<A\r\n}\r\nA\r\n}\r\nmodule \"b\" {\r\n  source = \"./b\"\r\n}", "main.tf:1 a ./a -|main.tf:9 b ./b -"},
		{"spaces around the end of a heredoc", "main.tf", "locals {\n a = <<A\n}\n\v A \t\n b = <<-B\n}\n\u00a0B\u0085\r\n}\nmodule \"a\" {\n  source = \"./a\"\n}\n", "main.tf:9 a ./a -"},
		{"required providers", "main.tf", "terraform {\n  required_version = \">= 1\"\n  required_providers {\n    a = { source = \"acme/a\", version = \"~> 1\" }\n  }\n  required_providers {\n    b = \"2.0\"\n  }\n required_providers {\n c = { \"source\" : var.x }\n }\n}\n",
			"main.tf:4 require a acme/a ~> 1|main.tf:7 require b - 2.0|main.tf:10 require c ? -"},
		{"uses", "main.tf", "provider \"a\" {\n version = \"~> 1\"\n}\nresource \"b_x\" \"y\" {}\nresource \"b_x\" \"z\" {}\ndata \"c_x\" \"y\" {\n provider = d.west\n}\nephemeral \"e\" \"y\" {}\ncheck \"f\" {\n data \"g_x\" \"y\" {}\n}\nresource \"h_x\" \"y\" {\n provider = \"i.west\"\n}\n",
			"main.tf:1 use a ~> 1|main.tf:4 use b -|main.tf:6 use d -|main.tf:9 use e -|main.tf:11 use g -|main.tf:13 use i -"},
		{"actions and imports", "main.tf", "action \"a_x\" \"y\" {\n}\naction \"b_x\" \"y\" {\n provider = c.west\n}\nimport {\n to = d_x.y\n id = \"z\"\n}\nimport {\n to = e_x.y[each.key]\n for_each = {}\n}\nimport {\n to = f_x.y[\"z\"]\n provider = g\n}\nimport {\n to = module.m.h_x.y\n}\nimport {\n to = 1 + 1\n}\n",
			"main.tf:1 use a -|main.tf:3 use c -|main.tf:6 use d -|main.tf:10 use e -|main.tf:14 use g -"},
		{"imports in JSON", "main.tf.json", `{"import": [{"to": "a_x.y", "id": "z"}], "action": {"b_x": {"y": {}}}}`, "main.tf.json:1 use a -|main.tf.json:1 use b -"},
		{"too deep", "main.tf", "module \"a\" {\n x = " + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "\n}\nmodule \"b\" {\n source = \"./b\"\n}\n", "main.tf:4 b ./b -|main.tf:1 skipped: " + large},
		{"too long", "main.tf", "locals {\n x = [" + strings.Repeat("1,", 30_000) + "]\n}\nmodule \"a\" {\n x = [" + strings.Repeat("1,", 30_000) + "]\n}\n", "main.tf:4 skipped: " + large},
		{"a large resource", "main.tf", "resource \"a_x\" \"b\" {\n x = <<EOT\n" + strings.Repeat("\n", 3_000) + "EOT\n}\nmodule \"a\" {}\n", "main.tf:3005 a - -|main.tf:1 use a -"},
		{"resources without a parser", "main.tf", "resource  \"a_x\"\t\"y\" {\n  = =\n}\ndata \"b\" \"y-1\"{}\nresource \"c_x\" \"y\" {\n lifecycle {\n  provider = no\n }\n}\nresource \"d_x\" {\n}\nresource \"e_x\" y {\n}\n",
			"main.tf:1 use a -|main.tf:4 use b -|main.tf:5 use c -|main.tf:12 use e -"},
		{"too much to parse", "main.tf", strings.Repeat("module \"a\" {\n x = ["+strings.Repeat("1,", 5_000)+"]\n}\n", 9) + "resource \"a_x\" \"b\" {}\nmodule \"b\" {\n x = [" + strings.Repeat("1,", 5_000) + "]\n}\n",
			strings.TrimPrefix(calledNineTimes(), "|") + "|main.tf:28 use a -|main.tf:29 skipped: the blocks that call modules or need providers have more than 100000 words and signs"},
		{"too deep in JSON", "main.tf.json", `{"a": ` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "}", "main.tf.json:1 skipped: the document is too large: its values nest more than 63 deep"},
		{"too large", "main.tf", strings.Repeat("\n", calls.MaxFile+1), "main.tf:1 skipped: it has more than 4194304 bytes"},
		{"not JSON", "main.tf.json", "{", ""},
		{"empty", "main.tf", "", ""},
	} {
		f := calls.Read(tt.name, []byte(tt.src))
		got := strings.Join(print(&calls.Folder{Calls: f.Calls, Required: f.Required, Uses: f.Uses, Skipped: f.Skipped}), "|")
		if got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.about, got, tt.want)
		}
	}
}

// calledNineTimes is how print shows nine calls of three lines.
func calledNineTimes() (out string) {
	for i := range 9 {
		out += fmt.Sprintf("|main.tf:%d a - -", 3*i+1)
	}
	return out
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"main.tf": "file", "a/main.tofu": "file", "main.tf.json": "file", "main.tofu.json": "file", "a.tftest.hcl": "test", "a.tofutest.json": "test",
		".main.tf": "", "a/.main.tf": "", "README.md": "", "main.tf~": "", "main.json": "", "a.hcl": "",
	} {
		if got := map[bool]string{true: "file"}[calls.IsFile(name)] + map[bool]string{true: "test"}[calls.IsTest(name)]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// TestMerge shows that the result has what either client reads.
func TestMerge(t *testing.T) {
	call := func(name, source, version string) string {
		out := fmt.Sprintf("module %q {\n", name)
		if source != "" {
			out += fmt.Sprintf("  source = %q\n", source)
		}
		if version != "" {
			out += fmt.Sprintf("  version = %q\n", version)
		}
		return out + "}\n"
	}
	for _, tt := range []struct {
		about string
		files [][2]string
		want  string
	}{
		{"hidden from OpenTofu", [][2]string{{"a.tf", call("a", "./tf", "")}, {"a.tofu", call("a", "./tofu", "")}, {"b.tf", call("b", "./b", "")}}, "a.tf:1 a ./tf -|b.tf:1 b ./b -|a.tofu:1 a ./tofu -"},
		{"another form hides nothing", [][2]string{{"a.tf", call("a", "./tf", "")}, {"a.tofu.json", `{"module": {"b": {"source": "./b"}}}`}}, "a.tf:1 a ./tf -|a.tofu.json:1 b ./b -"},
		{"override", [][2]string{{"a.tf", call("a", "a/b/c", "1.0")}, {"a_override.tf", call("a", "", "2.0")}, {"override.tf", "\n" + call("a", "d/e/f", "")}}, "override.tf:2 a d/e/f 2.0"},
		{"override of OpenTofu", [][2]string{{"a.tf", call("a", "a/b/c", "1.0")}, {"override.tofu", call("a", "./fork", "")}}, "a.tf:1 a a/b/c 1.0|override.tofu:1 a ./fork 1.0"},
		{"override of a requirement", [][2]string{{"a.tf", "terraform {\n required_providers {\n  a = \"1.0\"\n  b = \"1.0\"\n }\n}\n"}, {"override.tf.json", `{"terraform": {"required_providers": {"a": {"source": "acme/a"}}}}`}}, "a.tf:4 require b - 1.0|override.tf.json:1 require a acme/a -"},
	} {
		var files []*calls.File
		for _, f := range tt.files {
			files = append(files, calls.Read(f[0], []byte(f[1])))
		}
		if got := strings.Join(print(calls.Merge(files)), "|"); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.about, got, tt.want)
		}
	}
}

// FuzzRead shows that a file declares nothing beyond its lines, and that its parts are read whatever follows.
func FuzzRead(f *testing.F) {
	f.Add("module \"a\" {\n source = \"./a\"\n}\n")
	f.Add("locals {\n a = <<-EOT\n }\n EOT\n}\n# {\n/* \" */ a = \"${\"}\"}\"\n")
	f.Add("locals {\n a = <<EOT\n }\nEOT \n b = <<-EOT\n}\n\u00a0EOT\v\r\n}\nmodule \"a\" {\n}\n")
	f.Add("terraform {\n required_providers {\n a = { source = \"b/c\" }\n }\n}\nresource \"a_b\" \"c\" {}")
	f.Fuzz(func(t *testing.T, src string) {
		lines := strings.Count(src, "\n") + 1
		for _, name := range []string{"main.tf", "main.tf.json"} {
			file := calls.Read(name, []byte(src))
			for _, c := range file.Calls {
				if c.Line < 1 || c.Line > lines || c.File != name {
					t.Errorf("%q: %+v", src, c)
				}
			}
		}
		with := calls.Read("main.tf", []byte("module \"first\" {\n source = \"./first\"\n}\n"+src))
		if len(with.Calls) == 0 || with.Calls[0].Source.Text != "./first" {
			t.Errorf("%q hides the block before it", src)
		}
	})
}

// TestCost shows that what reading allocates grows with the size of a file, and no faster.
func TestCost(t *testing.T) {
	testkit.LeaveToAll(t)
	const size = 1 << 20
	fill := func(before, part, after string) string {
		return before + strings.Repeat(part, (size-len(before)-len(after))/len(part)) + after
	}
	many := func(block string) string { return fill("", block, "") }
	for about, src := range map[string]string{
		"small blocks":    many("module \"a\" {\n}\n"),
		"resources":       many("resource \"a\" \"a\" {\n}\n"),
		"signs":           many("module \"a\" {\nx = [" + strings.Repeat("1,", 9_000) + "]\n}\n"),
		"signs, unary":    many("module \"a\" {\nx = " + strings.Repeat("!", 19_000) + "1\n}\n"),
		"conditions":      many("module \"a\" {\nx = " + strings.Repeat("a?a:", 4_500) + "a\n}\n"),
		"sums":            many("module \"a\" {\nx = " + strings.Repeat("1+", 9_000) + "1\n}\n"),
		"templates":       many("module \"a\" {\nx = \"" + strings.Repeat("${1}", 900) + "\"\n}\n"),
		"signs in a text": many("module \"a\" {\nx = \"" + strings.Repeat("$", 900) + "\"\n}\n"),
		"escapes":         many("module \"a\" {\nx = \"" + strings.Repeat("\\n", 18_000) + "\"\n}\n"),
		"a long text":     many("module \"a\" {\nx = \"" + strings.Repeat("y", 130_000) + "\"\n}\n"),
		"accents":         many("module \"a\" {\nx = \"y" + strings.Repeat("\u0301", 65_000) + "\"\n}\n"),
		"returns":         many("module \"a\" {\nx = \"y" + strings.Repeat("\r", 130_000) + "\"\n}\n"),
		"no UTF-8":        many("module \"a\" {\nx = \"y" + strings.Repeat("\xff", 130_000) + "\"\n}\n"),
		"comments":        many("module \"a\" {\n" + strings.Repeat("#\n", 9_000) + "}\n"),
		"a long comment":  many("module \"a\" {\n#" + strings.Repeat("x", 130_000) + "\n}\n"),
		"spaces":          many("module \"a\" {\n" + strings.Repeat(" ", 130_000) + "\n}\n"),
		"a heredoc":       many("module \"a\" {\nx = <<A\n" + strings.Repeat("y"+strings.Repeat("z", 60)+"\n", 900) + "A\n}\n"),
		"attributes":      many("module \"a\" {\n" + strings.Repeat("x=1\n", 4_500) + "}\n"),
		"brackets":        many("module \"a\" {\nx = " + strings.Repeat("[", 65) + strings.Repeat("]", 65) + "\n}\n"),
		"no brackets":     many("]"),
		"loops":           many("module \"a\" {\nsource = [for a in " + strings.Repeat("[for a in ", 50) + "[1]" + strings.Repeat(": a]", 50) + ": a]\n}\n"),
	} {
		t.Run(about, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begun := time.Now()
			f := calls.Read("main.tf", []byte(src))
			took := time.Since(begun)
			runtime.ReadMemStats(&after)
			allocated := after.TotalAlloc - before.TotalAlloc
			t.Logf("%d bytes, %d calls, %d skipped: %v, allocated %d MiB", len(src), len(f.Calls), len(f.Skipped), took, allocated>>20)
			if allocated > 1200*size {
				t.Errorf("%d bytes allocated %d bytes", len(src), allocated)
			}
		})
	}
}
