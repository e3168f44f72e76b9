package modulezip

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/module"

	"github.com/ocibridge/ocibridge/internal/base/calls"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// wideWarning returns a warning if a module has more files or bytes than Terragrunt installs.
func wideWarning(entries []entry, unpacked int64) []string {
	if len(entries) <= wideEntries && unpacked <= wideBytes {
		return nil
	}
	return []string{fmt.Sprintf("the module has %s and %d MiB: Terragrunt installs at most %d files and %d MiB", hint.Count(len(entries), "file"), unpacked>>20, wideEntries, wideBytes>>20)}
}

// warnings returns what users should know about the files of a module and about its calls of local modules.
func warnings(entries []entry, made []localCall, unpacked int64) (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if !slices.ContainsFunc(entries, func(e entry) bool { return isConfiguration(e.name) }) {
		add("there is no .tf or .tofu file in the folder itself: clients find a module only below //FOLDER")
	}
	out = append(out, wideWarning(entries, unpacked)...)
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

// secret is a kind of file that can contain secrets, and that hardly any module needs. Its patterns have the syntax of
// [path.Match], and are in lower case. A pattern that ends with a slash matches a folder.
type secret struct {
	what     string
	patterns []string
	except   []string
}

var secrets = []secret{
	{"a state can contain secrets", []string{"*.tfstate", "*.tfstate.backup", "*.tfstate.*.backup", "*.tfstate.lock.info", "terraform.tfstate.d/"}, nil},
	{"a plan can contain secrets", []string{"*.tfplan", "tfplan", "tfplan.*", "plan.out", "*.plan"}, nil},
	{"a log can contain secrets", []string{"*.log"}, nil},
	{"the values of variables can be secrets", []string{"*.tfvars", "*.tfvars.json"}, nil},
	{"the values of variables can be secrets", []string{".env", ".env.*", ".envrc"}, []string{".env.example", ".env.sample", ".env.template", ".env.dist"}},
	{"credentials", []string{
		".terraformrc", "terraform.rc", ".tofurc", "tofu.rc", "*.tfrc", "*.tfrc.json", ".netrc", "_netrc", ".npmrc", ".pypirc", ".vault-token", "kubeconfig",
		".git-credentials", "application_default_credentials.json", ".aws/", ".azure/", ".docker/", ".kube/", ".terraform.d/",
	}, nil},
	{"a private key", []string{"*.pem", "*.key", "*.ppk", "*.p8", "*.p12", "*.pfx", "*.jks", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", ".ssh/"}, nil},
	{"copies of modules and of states", []string{".terragrunt-cache/"}, nil},
	{"on Windows and macOS, Git's own folder", []string{".git/"}, nil},
	{"on Windows and macOS, the working folder of clients", []string{".terraform/"}, nil},
}

// matches reports whether a file is of this kind.
func (s secret) matches(name string) bool {
	parts := strings.Split(strings.ToLower(name), "/")
	base := parts[len(parts)-1]
	if slices.Contains(s.except, base) {
		return false
	}
	return slices.ContainsFunc(s.patterns, func(pattern string) bool {
		if dir, ok := strings.CutSuffix(pattern, "/"); ok {
			return slices.Contains(parts[:len(parts)-1], dir)
		}
		found, err := path.Match(pattern, base)
		return found && err == nil
	})
}

// secretWarnings returns one warning for each kind of file that can contain secrets.
func secretWarnings(entries []entry) (out []string) {
	for _, s := range secrets {
		var found []string
		for _, e := range entries {
			if s.matches(e.name) {
				found = append(found, e.name)
			}
		}
		switch {
		case len(found) == 1:
			out = append(out, fmt.Sprintf("%s is part of the module: %s; .terraformignore can exclude it", found[0], s.what))
		case len(found) > 1:
			out = append(out, fmt.Sprintf("%s and %d more like it are part of the module: %s; .terraformignore can exclude them", found[0], len(found)-1, s.what))
		}
	}
	return out
}

// localCall is a call of a module in a folder of the same package.
type localCall struct {
	file string // the file with the module block
	to   string // the folder that is called, relative to the root of the package; outside the package, it begins with ../
}

// localCalls returns the calls in the files of at most [calls.MaxFile] bytes, in the order of the files.
func localCalls(ctx context.Context, root *os.Root, entries []entry) (out []localCall, err error) {
	for _, e := range entries {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if !calls.IsFile(e.name) {
			continue
		}
		src, err := readSmall(root, e.name)
		if err != nil {
			return nil, err
		}
		for _, c := range calls.Read(e.name, src).Calls {
			if source := c.Source.Text; calls.IsLocal(source) {
				out = append(out, localCall{e.name, path.Join(path.Dir(e.name), source)})
			}
		}
	}
	return out, nil
}

// readSmall reads a file of at most [calls.MaxFile] bytes. It reads nothing of a larger file.
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
		if calls.IsFile(e.name) {
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
