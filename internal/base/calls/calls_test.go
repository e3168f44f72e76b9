package calls_test

import (
	"slices"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/calls"
)

func TestSources(t *testing.T) {
	for _, tt := range []struct {
		name, src string
		want      []string
	}{
		{"main.tf", "module \"a\" {\n  source = \"./a\"\n}\nmodule \"b\" {\n  source = \"acme/b/aws\"\n}\n", []string{"./a", "acme/b/aws"}},
		{"main.tofu.json", `{"module": {"a": {"source": "../a"}}}`, []string{"../a"}},
		{"a.tftest.hcl", "run \"a\" {\n  module {\n    source = \"./tests/a\"\n  }\n}\n", []string{"./tests/a"}},
		{"main.tf", "module \"a\" {\n  source = \"${var.x}/a\"\n}\nmodule \"b\" {}\n", nil},
		{"main.tf", "module \"a\" {\n  source = \"./a\"\n}\nresource {{\n", []string{"./a"}},
		{".main.tf", "", nil},
		{"README.md", "", nil},
	} {
		parse := calls.ParserOf(tt.name)
		if parse == nil {
			parse = calls.TestParserOf(tt.name)
		}
		if parse == nil {
			if tt.src != "" {
				t.Errorf("%s is not read", tt.name)
			}
			continue
		}
		if got := calls.Sources(parse([]byte(tt.src))); !slices.Equal(got, tt.want) {
			t.Errorf("%s calls %q, want %q in\n%s", tt.name, got, tt.want, tt.src)
		}
	}
}
