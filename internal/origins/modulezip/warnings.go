package modulezip

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/module"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// warnings returns what users should know about the files of a module and about its calls of local modules.
func warnings(entries []entry, made []localCall, unpacked int64) (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if !slices.ContainsFunc(entries, func(e entry) bool { return isConfiguration(e.name) }) {
		add("there is no .tf or .tofu file in the folder itself: clients find a module only below //FOLDER")
	}
	if len(entries) > wideEntries || unpacked > wideBytes {
		add("the module has %s and %d MiB: Terragrunt installs at most %d files and %d MiB", hint.Count(len(entries), "file"), unpacked>>20, wideEntries, wideBytes>>20)
	}
	out = append(out, callWarnings(entries, made)...)
	out = append(out, secretWarnings(entries)...)
	lower := map[string]string{}
	for _, e := range entries {
		if other, twice := lower[strings.ToLower(e.name)]; twice {
			add("%s and %s differ only in case: on Windows and macOS, one replaces the other", other, e.name)
		}
		lower[strings.ToLower(e.name)] = e.name
		if err := module.CheckFilePath(e.name); err != nil {
			add("not every operating system can unpack %s: %v", e.name, err)
		}
	}
	if len(out) > maxWarnings {
		out = append(out[:maxWarnings], fmt.Sprintf("and %d more warnings about files", len(out)-maxWarnings))
	}
	return out
}

// maxWarnings is the maximum number of warnings about one module. It is above the number of kinds of secrets.
const maxWarnings = 20

// isConfiguration reports whether a file belongs to the configuration in the root folder.
func isConfiguration(name string) bool {
	name = strings.TrimSuffix(name, ".json")
	return path.Dir(name) == "." && slices.Contains([]string{".tf", ".tofu"}, path.Ext(name))
}
