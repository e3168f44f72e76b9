package lockfile_test

import (
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
)

// TestCostOfLockFiles shows that parsing the most expensive files costs no more than a limit. Each file is so
// small that parsing ends even if Parse fails to limit it.
func TestCostOfLockFiles(t *testing.T) {
	testkit.LeaveToAll(t)
	version := func(expr string) string { return block("  version = " + expr) }
	for name, tc := range map[string]struct {
		src     string
		refused bool
	}{
		"lists and objects": {"a = " + strings.Repeat("[}", 100_000), true},
		"blocks and lists":  {strings.Repeat("x {\na = 1 ]\n", 20_000), true},
		"indices":           {version("x" + strings.Repeat("[y]", 6_000)), true},
		"comparisons":       {version("x" + strings.Repeat("==y", 6_000)), true},
		"line feeds":        {strings.Repeat("\n", 200_000), true},
		"words":             {strings.Repeat("a ", 200_000), true},
		"errors":            {strings.Repeat("a=1\n", 50_000), true},
		"quotes":            {strings.Repeat("\"", 200_000), true},
		"escapes":           {"a = \"" + strings.Repeat("\\q", 400_000) + "\"\n", true},
		"as many words":     {strings.Repeat("a ", 50_000), true},
		"as many texts":     {strings.Repeat("\"\"", 16_600), true},
		"as many errors":    {strings.Repeat("a=1\n", 12_500), true},
		"as many variables": {version("[" + strings.Repeat("a,", 24_900) + "]"), true},
		"as many hashes":    {block(`  version = "3.2.4"`, "  hashes = ["+strings.Repeat("\"a:\",", 12_400)+"]"), false},
		"as many blocks":    {strings.Repeat("module \"\"{}\n", 7_100), false},
		"one long word":     {strings.Repeat("a", lockfile.MaxBytes-10) + "=1\n", true},
		"one long address":  {"provider \"" + strings.Repeat("/", lockfile.MaxBytes-100) + "\" {}\n", true},
		"one long version":  {version("\"" + strings.Repeat("1.", lockfile.MaxBytes/2-100) + "\""), true},
		"dollars":           {version("\"" + strings.Repeat("$$", 2_000) + "\""), true},
	} {
		t.Run(name, func(t *testing.T) {
			cost.Check(t, len(tc.src), tc.refused, func() error {
				_, err := lockfile.Parse("f", []byte(tc.src))
				if err != nil && len(err.Error()) > 2000 {
					t.Errorf("an error of %d bytes", len(err.Error()))
				}
				return err
			})
		})
	}
}
