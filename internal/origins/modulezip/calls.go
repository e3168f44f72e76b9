package modulezip

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/calls"
	"github.com/ocibridge/ocibridge/internal/base/files"
)

// localCall is a call of a module in a folder of the same package.
type localCall struct {
	file string // that has the module block
	to   string // the folder that is called, relative to the root of the package; it begins with ../ outside
}

// localCalls returns the calls in the configuration of the package, in the order of the files. It leaves out files over
// [calls.MaxFile].
func localCalls(ctx context.Context, root *os.Root, entries []entry) (out []localCall, err error) {
	for _, e := range entries {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		parse := calls.ParserOf(path.Base(e.name))
		if parse == nil {
			continue
		}
		src, err := readSmall(root, e.name)
		if err != nil {
			return nil, err
		}
		for _, source := range calls.Sources(parse(src)) {
			if calls.IsLocal(source) {
				out = append(out, localCall{e.name, path.Join(path.Dir(e.name), source)})
			}
		}
	}
	return out, nil
}

// readSmall reads a file of at most [calls.MaxFile] bytes. Of a larger one, it reads nothing.
func readSmall(root *os.Root, name string) ([]byte, error) {
	f, size, err := files.OpenRegular(root, name)
	if err != nil {
		return nil, readError(err, "name it in .terraformignore")
	}
	defer f.Close()
	if size > calls.MaxFile {
		return nil, nil
	}
	return io.ReadAll(io.LimitReader(f, calls.MaxFile))
}

// callWarnings returns one warning for each reason why clients cannot follow a call. It considers the modules that
// consumers install: the one in the root folder, the ones directly below the folder modules, and all that these call.
// If the root folder has no configuration, it considers the modules in all folders.
func callWarnings(entries []entry, made []localCall) (out []string) {
	configured := map[string]bool{} // the folders with configuration
	for _, e := range entries {
		if calls.ParserOf(path.Base(e.name)) != nil {
			configured[path.Dir(e.name)] = true
		}
	}
	from := map[string][]localCall{} // by the folder of the file
	for _, c := range made {
		from[path.Dir(c.file)] = append(from[path.Dir(c.file)], c)
	}
	seen := map[string]bool{}
	var queue, outside, missing []string
	for dir := range configured {
		if !configured["."] || dir == "." || path.Dir(dir) == "modules" {
			seen[dir] = true
			queue = append(queue, dir)
		}
	}
	for len(queue) > 0 {
		dir := queue[0]
		queue = queue[1:]
		for _, c := range from[dir] {
			switch text := fmt.Sprintf("%s calls %s", c.file, c.to); {
			case c.to == ".." || strings.HasPrefix(c.to, "../"):
				outside = append(outside, text)
			case !configured[c.to]:
				missing = append(missing, text)
			case !seen[c.to]:
				seen[c.to] = true
				queue = append(queue, c.to)
			}
		}
	}
	for _, kind := range []struct {
		found         []string
		what, instead string
	}{
		{outside, "outside the folder", "push the folder that contains both, or push the called module by itself"},
		{missing, "which has no .tf or .tofu file in the module", ".terraformignore may exclude it"},
	} {
		slices.Sort(kind.found)
		kind.found = slices.Compact(kind.found)
		if n := len(kind.found); n > 0 {
			more := ""
			if n > 1 {
				more = fmt.Sprintf(" (and %d more like it)", n-1)
			}
			out = append(out, fmt.Sprintf("%s, %s%s: clients cannot install the module; %s", kind.found[0], kind.what, more, kind.instead))
		}
	}
	return out
}
