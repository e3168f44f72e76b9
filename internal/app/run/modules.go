package run

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/calls"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// The limits of a search. With --host, the user can name hosts that a limited search does not find. Clients parse the
// same files with the same library, without limits.
const (
	maxModules     = 256
	maxModuleFiles = 2_000
)

// requirement is a provider in a required_providers block.
type requirement struct {
	provider provider.Address
	// isShort is set if the source names no host. The provider is then at the client's default registry, and provider has
	// the host terraformHost.
	isShort  bool
	versions provider.VersionSet // the zero value if there is no valid constraint
}

// isFor reports whether a requirement is for a provider that a client has requested.
func (r requirement) isFor(a provider.Address) bool {
	if r.isShort {
		return slices.Contains(publicHosts, a.ServiceHost()) && r.provider.Namespace() == a.Namespace() && r.provider.Type() == a.Type()
	}
	return r.provider == a
}

// searchModules searches the module in a folder, and its local child modules. The client reports the errors of these
// modules.
func searchModules(dir string) *moduleSearch {
	s := &moduleSearch{seen: map[string]bool{}}
	dir = filepath.Clean(dir)
	s.add(dir)
	// init also installs what the tests of the root module call.
	s.folder(dir, dir, calls.TestParserOf)
	s.folder(filepath.Join(dir, "tests"), dir, calls.TestParserOf)
	for len(s.queue) > 0 {
		next := s.queue[0]
		s.queue = s.queue[1:]
		s.folder(next, next, calls.ParserOf)
	}
	return s
}

// moduleSearch is a search for required_providers, and for calls of modules in registries, in a tree of modules.
type moduleSearch struct {
	seen     map[string]bool // the folders that are or were in the queue
	queue    []string
	files    int // the number of files that were read
	required []requirement
	hosts    []svchost.Hostname // the hosts of called modules; "" is the client's default registry
}

// add adds the folder of a module to the queue.
func (s *moduleSearch) add(dir string) {
	if !s.seen[dir] && len(s.seen) < maxModules {
		s.seen[dir] = true
		s.queue = append(s.queue, dir)
	}
}

// folder reads the files in a folder that belong to the module in dir.
func (s *moduleSearch) folder(folder, dir string, parserOf func(name string) calls.Parser) {
	entries, _ := os.ReadDir(folder) // the client reports a missing folder
	for _, e := range entries {
		parse := parserOf(e.Name())
		if parse == nil || !e.Type().IsRegular() && e.Type()&os.ModeSymlink == 0 || s.files >= maxModuleFiles {
			continue
		}
		s.files++
		if src, ok := readSmall(filepath.Join(folder, e.Name())); ok {
			s.body(dir, parse(src))
		}
	}
}

// readSmall reads a regular file of at most [calls.MaxFile] bytes.
func readSmall(name string) ([]byte, bool) {
	f, info, err := files.Open(name)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	if info.Size() > calls.MaxFile {
		return nil, false
	}
	src, err := io.ReadAll(io.LimitReader(f, calls.MaxFile))
	return src, err == nil
}

// body finds required_providers and called modules in a file of the module in dir.
func (s *moduleSearch) body(dir string, body hcl.Body) {
	content, _, _ := body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "terraform"}}})
	for _, b := range content.Blocks {
		s.terraform(b.Body)
	}
	for _, source := range calls.Sources(body) {
		s.call(dir, source)
	}
}

// call adds the module that the module in dir calls. It ignores sources that are neither a folder nor in a registry.
func (s *moduleSearch) call(dir, source string) {
	if calls.IsLocal(source) {
		s.add(filepath.Join(dir, filepath.FromSlash(source)))
		return
	}
	address, _, _ := strings.Cut(source, "//") // the rest is a folder inside the module
	if _, err := module.ParseAddress(string(terraformHost) + "/" + address); err == nil {
		s.hosts = append(s.hosts, "")
	} else if a, err := module.ParseAddress(address); err == nil {
		s.hosts = append(s.hosts, a.ServiceHost())
	}
}

// terraform adds the required_providers of a terraform block.
func (s *moduleSearch) terraform(body hcl.Body) {
	content, _, _ := body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "required_providers"}}})
	for _, b := range content.Blocks {
		attributes, _ := b.Body.JustAttributes()
		for _, a := range attributes {
			s.require(a)
		}
	}
}

// require adds the requirement in an attribute. The value of the attribute is an object or, as in old configurations, a
// version constraint.
func (s *moduleSearch) require(a *hcl.Attribute) {
	source := "hashicorp/" + a.Name
	version, _ := calls.Text(a.Expr)
	pairs, _ := hcl.ExprMap(a.Expr)
	for _, pair := range pairs {
		key, _ := keyOf(pair.Key)
		if key != "source" && key != "version" {
			continue
		}
		text, ok := calls.Text(pair.Value)
		switch {
		case key == "version":
			version = text
		case !ok:
			return
		default:
			source = text
		}
	}
	r := requirement{isShort: strings.Count(source, "/") < 2}
	switch strings.Count(source, "/") {
	case 0:
		source = string(terraformHost) + "/hashicorp/" + source
	case 1:
		source = string(terraformHost) + "/" + source
	}
	var err error
	if r.provider, err = provider.ParseAddress(source); err != nil {
		return
	}
	r.versions, _ = provider.ParseConstraint(version) // the client reports an invalid constraint
	s.required = append(s.required, r)
}

// keyOf returns the key of an object expression, which may be a bare word.
func keyOf(expr hcl.Expression) (string, bool) {
	if word := hcl.ExprAsKeyword(expr); word != "" {
		return word, true
	}
	return calls.Text(expr)
}
