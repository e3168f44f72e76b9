package run

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
	"github.com/opentofu/svchost"
	"github.com/zclconf/go-cty/cty"

	"github.com/ocibridge/ocibridge/provider"
)

// The limits of a search for required_providers. A search does not find hosts beyond the
// limits. The user can name them by --host. Clients parse the same files by the same library,
// without limits.
const (
	maxModules     = 256
	maxModuleFiles = 2_000
	maxModuleFile  = 4 << 20
)

// requiredHosts returns the hosts in the required_providers blocks of the module in a folder,
// and of its local child modules. The client reports the errors of the modules.
func requiredHosts(dir string) []svchost.Hostname {
	s := &moduleSearch{seen: map[string]bool{}}
	s.add(filepath.Clean(dir))
	for len(s.queue) > 0 {
		next := s.queue[0]
		s.queue = s.queue[1:]
		s.module(next)
	}
	return s.hosts
}

// moduleSearch is a search for required_providers in a tree of modules.
type moduleSearch struct {
	seen  map[string]bool // the folders that are or were in the queue
	queue []string
	files int // the number of files that were read
	hosts []svchost.Hostname
}

// add adds the folder of a module to the queue.
func (s *moduleSearch) add(dir string) {
	if !s.seen[dir] && len(s.seen) < maxModules {
		s.seen[dir] = true
		s.queue = append(s.queue, dir)
	}
}

// module reads the files of a module.
func (s *moduleSearch) module(dir string) {
	entries, _ := os.ReadDir(dir) // the client reports a missing folder
	for _, e := range entries {
		parse := parserOf(e.Name())
		if parse == nil || !e.Type().IsRegular() && e.Type()&os.ModeSymlink == 0 || s.files >= maxModuleFiles {
			continue
		}
		s.files++
		if src, ok := readSmall(filepath.Join(dir, e.Name())); ok {
			s.body(dir, parse(src))
		}
	}
}

// readSmall reads a regular file of at most maxModuleFile bytes.
func readSmall(name string) ([]byte, bool) {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxModuleFile {
		return nil, false
	}
	src, err := os.ReadFile(name)
	return src, err == nil
}

// parserOf returns the parser for a file of a module. It returns nil for other files.
func parserOf(name string) func([]byte) hcl.Body {
	switch {
	case strings.HasPrefix(name, "."):
		return nil
	case strings.HasSuffix(name, ".tf"), strings.HasSuffix(name, ".tofu"):
		return parseNative
	case strings.HasSuffix(name, ".tf.json"), strings.HasSuffix(name, ".tofu.json"):
		return parseJSON
	}
	return nil
}

func parseNative(src []byte) hcl.Body {
	f, _ := hclsyntax.ParseConfig(src, "", hcl.InitialPos) // it returns the valid parts of an invalid file
	return f.Body
}

func parseJSON(src []byte) hcl.Body {
	if f, _ := json.Parse(src, ""); f != nil {
		return f.Body
	}
	return hcl.EmptyBody()
}

var moduleSchema = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "terraform"}, {Type: "module", LabelNames: []string{"name"}}}}

// body finds required_providers and local child modules in a file of the module in dir.
func (s *moduleSearch) body(dir string, body hcl.Body) {
	content, _, _ := body.PartialContent(moduleSchema)
	for _, b := range content.Blocks {
		if b.Type == "terraform" {
			s.terraform(b.Body)
			continue
		}
		attributes, _, _ := b.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "source"}}})
		if source := attributes.Attributes["source"]; source != nil {
			if path, ok := textOf(source.Expr); ok && (strings.HasPrefix(path, "./") || strings.HasPrefix(path, "../")) {
				s.add(filepath.Join(dir, filepath.FromSlash(path)))
			}
		}
	}
}

// terraform adds the hosts in the required_providers of a terraform block.
func (s *moduleSearch) terraform(body hcl.Body) {
	content, _, _ := body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "required_providers"}}})
	for _, b := range content.Blocks {
		attributes, _ := b.Body.JustAttributes()
		for _, a := range attributes {
			pairs, _ := hcl.ExprMap(a.Expr)
			for _, pair := range pairs {
				key, _ := keyOf(pair.Key)
				if source, ok := textOf(pair.Value); ok && key == "source" {
					s.source(source)
				}
			}
		}
	}
}

// source adds the host of a provider's source address. Without a host in the address, the
// provider is at a public host.
func (s *moduleSearch) source(source string) {
	if strings.Count(source, "/") != 2 {
		return
	}
	if a, err := provider.ParseAddress(source); err == nil {
		s.hosts = append(s.hosts, a.ServiceHost())
	}
}

// keyOf returns the key of an object expression, which may be a bare word.
func keyOf(expr hcl.Expression) (string, bool) {
	if word := hcl.ExprAsKeyword(expr); word != "" {
		return word, true
	}
	return textOf(expr)
}

// textOf returns the value of a constant text.
func textOf(expr hcl.Expression) (string, bool) {
	v, diags := expr.Value(nil)
	if diags.HasErrors() || v.IsNull() || !v.IsKnown() || v.Type() != cty.String {
		return "", false
	}
	return v.AsString(), true
}
