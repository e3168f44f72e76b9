package hint_test

import (
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// TestWrapped shows where lines end: between words, but not in what people copy.
func TestWrapped(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"short":             {"do this", "do this"},
		"between words":     {"read the lines of this hint and do what they say", "read the lines of this hint\n  and do what they say"},
		"an address":        {"the origin is https://registry.acme.example/v1/providers/ here", "the origin is\n  https://registry.acme.example/v1/providers/\n  here"},
		"a command":         {"the text says: run ocibridge verify acme/widget@1.0.0 then", "the text says: run\n  ocibridge verify acme/widget@1.0.0\n  then"},
		"its help":          {"this is not right: see what ocibridge push --help shows here", "this is not right: see what\n  ocibridge push --help shows\n  here"},
		"with subcommands":  {"look at the whole file: ocibridge config check shows it", "look at the whole file:\n  ocibridge config check shows\n  it"},
		"with values":       {"it is in what ocibridge list --output json wrote", "it is in what\n  ocibridge list --output json\n  wrote"},
		"with placeholders": {"as it is written by gpg --armor --export KEYID, or not", "as it is written by\n  gpg --armor --export KEYID,\n  or not"},
		"with another":      {"it then works with ocibridge exec -- terraform init, too", "it then works with\n  ocibridge exec -- terraform init,\n  too"},
		"two commands":      {"have it written by tofu init or terraform init there", "have it written by tofu init\n  or terraform init there"},
		"a flag":            {"to choose the folder, set --data FOLDER or a variable", "to choose the folder, set\n  --data FOLDER or a variable"},
		"a flag alone":      {"the version is replaced if --force is given again", "the version is replaced if\n  --force is given again"},
		"a setting":         {"in a block with the line allow_unsigned = true it is", "in a block with the line\n  allow_unsigned = true it is"},
		"several lines":     {"one\ntwo words and more words, and even more\nthree", "one\ntwo words and more words,\n  and even more\nthree"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hint.Wrapped(tc.text, 30, 2); got != tc.want {
				t.Errorf("%q\nwant %q", got, tc.want)
			}
			if got := hint.Wrapped(tc.text, 10, 4); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(tc.text), " ") {
				t.Errorf("on a narrow terminal: %q", got)
			}
			if got := hint.Wrapped(tc.text, 0, 2); got != tc.text {
				t.Errorf("without a width: %q", got)
			}
		})
	}
}
