package cliconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl"
	"github.com/hashicorp/hcl/hcl/ast"
	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// method is a block in provider_installation.
type method struct {
	kind             string // such as "direct" or "network_mirror"
	origin           string // FILE:LINE
	include, exclude []provider.Pattern
}

// CheckInstallation returns an error if a provider_installation block keeps the client from asking a host for any of its
// providers. The error names the block, with file and line.
//
// The client requests a provider from the host itself only through the direct method. It merges the versions from all
// methods that match a provider, and installs a version from the first of them that has it. Therefore, the client gets
// a provider from its host for certain only if direct is the provider's only method. CheckInstallation returns nil if
// this holds for at least one provider of the host. Without a provider_installation block, the client asks the host for
// every provider that is not in its plugin folders. Development overrides concern only the providers that they name.
func (m *Merged) CheckInstallation(host svchost.Hostname) error {
	return m.checkInstallation(host, []svchost.Hostname{host})
}

// checkInstallation is CheckInstallation for one of several hosts. The hint names all of these hosts.
func (m *Merged) checkInstallation(host svchost.Hostname, all []svchost.Hostname) error {
	for _, s := range m.settings {
		if s.kind == "provider_installation" {
			if err := m.checkBlock(s, host, all); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Merged) checkBlock(s setting, host svchost.Hostname, all []svchost.Hostname) error {
	methods := m.methods(s)
	var other, alone *method // the first mirror of providers that also have a direct block, and of providers that have none
	for _, a := range examples(host, methods) {
		direct, mirror := sourcesOf(methods, a)
		if direct && mirror == nil {
			return nil
		}
		if direct && other == nil {
			other = mirror
		}
		if !direct && alone == nil {
			alone = mirror
		}
	}
	block, name, patterns := origin(s.file, s.item), host.ForDisplay(), patternsOf(all)
	if other == nil {
		help := "leave this file out, as with TF_CLI_CONFIG_FILE=/dev/null, or write into the provider_installation block: direct { include = " + patterns + " }"
		if alone != nil {
			help += ", and into its " + alone.kind + " block: exclude = " + patterns
		}
		if alone != nil && alone.kind == "oci_mirror" {
			help += "; or run OpenTofu without exec: by this block, it reads the registry itself"
		}
		return hint.New(fmt.Sprintf("%s: the provider_installation block keeps clients from asking %s for providers: it has no direct block for them", block, name), "%s", help)
	}
	return hint.New(fmt.Sprintf("%s: the provider_installation block installs providers of %s from elsewhere too: see its %s block at %s", block, name, other.kind, other.origin),
		"write into the %s block: exclude = %s", other.kind, patterns)
}

// patternsOf returns the list of patterns for all providers of the hosts, as in a CLI configuration.
func patternsOf(hosts []svchost.Hostname) string {
	var quoted []string
	for _, host := range hosts {
		quoted = append(quoted, strconv.Quote(host.ForDisplay()+"/*/*"))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// sourcesOf reports whether clients ask a provider's host for the provider, and returns the first other method that
// clients use for the provider, or nil.
func sourcesOf(methods []method, a provider.Address) (direct bool, mirror *method) {
	for i, x := range methods {
		switch {
		case !x.matches(a):
		case x.kind == "direct":
			direct = true
		case mirror == nil:
			mirror = &methods[i]
		}
	}
	return direct, mirror
}

// methods returns the methods in a provider_installation block. It skips blocks that clients refuse.
func (m *Merged) methods(s setting) []method {
	body, ok := s.item.Val.(*ast.ObjectType)
	if !ok {
		return nil
	}
	var out []method
	for _, item := range body.List.Items {
		kind := keyText(item.Keys[0])
		if _, isBlock := item.Val.(*ast.ObjectType); !isBlock || kind == "dev_overrides" {
			continue
		}
		var b struct {
			Include []string `hcl:"include"`
			Exclude []string `hcl:"exclude"`
		}
		if err := hcl.DecodeObject(&b, item.Val); err == nil {
			out = append(out, method{kind, origin(s.file, item), m.client.patterns(b.Include), m.client.patterns(b.Exclude)})
		}
	}
	return out
}

// patterns parses the patterns of a method. A pattern with two parts is for the client's public registry. Clients refuse
// invalid patterns, so patterns ignores them.
func (c Client) patterns(given []string) []provider.Pattern {
	registry := "registry.opentofu.org/"
	if c == Terraform {
		registry = "registry.terraform.io/"
	}
	var out []provider.Pattern
	for _, s := range given {
		if strings.Count(s, "/") == 1 {
			s = registry + s
		}
		if p, err := provider.ParsePattern(s); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// matches reports whether clients ask a method for a provider.
func (x method) matches(a provider.Address) bool {
	in := func(patterns []provider.Pattern) bool {
		return slices.ContainsFunc(patterns, func(p provider.Pattern) bool { return p.Matches(a) })
	}
	return !in(x.exclude) && (len(x.include) == 0 || in(x.include))
}

// examples returns one provider of the host that no pattern names, and one provider for each pattern that names the host.
// For every other provider of the host, the methods behave as for one of these.
func examples(host svchost.Hostname, methods []method) []provider.Address {
	parts := [][2]string{{"*", "*"}}
	for _, x := range methods {
		for _, p := range slices.Concat(x.include, x.exclude) {
			if given := strings.Split(p.String(), "/"); given[0] == host.ForDisplay() {
				parts = append(parts, [2]string{given[1], given[2]})
			}
		}
	}
	var out []provider.Address
	for _, p := range parts {
		text := strings.ReplaceAll(p[0]+"/"+p[1], "*", "unnamed")
		if a, err := provider.ParseAddress(host.ForDisplay() + "/" + text); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// unfoldInstallation joins the provider_installation items of a file in JSON. The library's parser merges an object that
// contains only objects into its parent, which makes each method an item with two keys.
func unfoldInstallation(items []*ast.ObjectItem) []*ast.ObjectItem {
	var out []*ast.ObjectItem
	var block *ast.ObjectItem
	for _, item := range items {
		if keyText(item.Keys[0]) != "provider_installation" || len(item.Keys) == 1 {
			out = append(out, item)
			continue
		}
		if block == nil {
			block = &ast.ObjectItem{Keys: item.Keys[:1], Val: &ast.ObjectType{List: &ast.ObjectList{}}}
			out = append(out, block)
		}
		body := block.Val.(*ast.ObjectType)
		body.List.Add(&ast.ObjectItem{Keys: item.Keys[1:], Assign: item.Assign, Val: item.Val})
	}
	return out
}
