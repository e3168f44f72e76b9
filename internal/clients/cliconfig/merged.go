package cliconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/hcl/ast"
	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/files"
)

// Merged is the configuration that a client reads from all its files, as one file. A program writes this file and names
// it in TF_CLI_CONFIG_FILE, to change the configuration of a client that it starts. The text contains the user's tokens,
// so the file must be private.
//
// Merged merges the files as the clients do:
//   - If several files have host, credentials or credentials_helper blocks with the same label, the last file counts.
//     The main file is the first. The files in the folder follow in the order of their names, and
//     credentials.tfrc.json is one of them.
//   - If several files set an argument such as plugin_cache_dir, the first value that is neither empty nor false
//     counts. The same holds for each argument of registry_protocols.
//   - All other blocks are kept, also those that the client or this package does not know.
//
// The text is in HCL 1 syntax, also for files in JSON. Relative names in docker_style_config_files become absolute,
// because OpenTofu resolves them relative to their file. Variables in values are not expanded. Comments are dropped.
//
// The text does not depend on variables such as TF_TOKEN_ and TF_PLUGIN_CACHE_DIR, which clients read themselves.
type Merged struct {
	Files []string // the files that were read, in order
	// Warnings are sentences about files that were not read. The client that gets the merged file no longer reads these
	// files.
	Warnings []string

	client   Client
	settings []setting
	services map[svchost.Hostname]map[string]any
}

// ReadMerged reads the files that the client reads: the main file, and those in the configuration folder. If
// TF_CLI_CONFIG_FILE or TERRAFORM_CONFIG names a file, ReadMerged reads only that file. If the main file cannot be read,
// there is a warning. ReadMerged returns an error that names the file if a file cannot be parsed, or if a file in the
// configuration folder cannot be read.
func ReadMerged(env Environment, client Client) (*Merged, error) {
	found, warnings, err := env.read(client)
	if err != nil {
		return nil, err
	}
	m := &Merged{Warnings: warnings, client: client, services: map[svchost.Hostname]map[string]any{}}
	for _, f := range found {
		if err := m.add(env, f); err != nil {
			return nil, fmt.Errorf("CLI configuration: %w", err)
		}
		m.Files = append(m.Files, f.name)
	}
	return m, nil
}

// Hosts returns the services in the host blocks, by host, as [Config.Services] does.
func (m *Merged) Hosts() map[svchost.Hostname]map[string]any { return maps.Clone(m.services) }

// WithHosts returns the text of the configuration with other services for the given hosts. It replaces the host blocks
// of these hosts. The services have the form that Hosts returns, or come from a JSON document. If clients would not ask
// one of the given hosts of providers for its providers, WithHosts returns the error of [Merged.CheckInstallation].
func (m *Merged) WithHosts(services map[svchost.Hostname]map[string]any, providers []svchost.Hostname) ([]byte, error) {
	for _, host := range providers {
		if err := m.checkInstallation(host, providers); err != nil {
			return nil, err
		}
	}
	var out strings.Builder
	for _, s := range m.settings {
		if _, replaced := services[s.host]; !replaced || s.kind != "host" {
			renderItem(&out, s.item, 0)
		}
	}
	for _, host := range sortedKeys(services) {
		renderItem(&out, hostItem(host, services[host]), 0)
	}
	return []byte(out.String()), nil
}

// add merges the settings of a file into m.
func (m *Merged) add(env Environment, f textFile) (err error) {
	defer invalidLiteral(f.name, &err)
	var decoded file
	list, err := parseInto(&decoded, f.name, f.text)
	if err != nil {
		return err
	}
	for given, block := range decoded.Hosts {
		host, err := hostname(f.name, "host", given)
		if err != nil {
			return err
		}
		m.services[host] = block.Services
	}
	settings, err := settingsOf(f.name, list)
	if err != nil {
		return err
	}
	for _, s := range settings {
		if s.kind == "oci_default_credentials" {
			resolveFiles(s.item, func(name string) string { return env.absolute(f.name, name) })
		}
	}
	m.settings = merge(m.settings, settings)
	return nil
}

// setting is an item at the top level of a file.
type setting struct {
	file  string
	kind  string           // the first key, such as "host" or "plugin_cache_dir"; lower case if there is a label
	label string           // the label of host, credentials and credentials_helper blocks; else ""
	host  svchost.Hostname // the label of host and credentials blocks; else ""
	item  *ast.ObjectItem  // in HCL syntax, also if the file is in JSON
}

// settingsOf returns the items of a file as settings. It splits an object of several labelled blocks into these blocks.
func settingsOf(file string, list *ast.ObjectList) ([]setting, error) {
	var out []setting
	for _, item := range nativeItems(list) {
		name := keyText(item.Keys[0])
		kind := strings.ToLower(name)
		if kind != "host" && kind != "credentials" && kind != "credentials_helper" {
			out = append(out, setting{file: file, kind: name, item: item})
			continue
		}
		for _, block := range labelled(item) {
			s := setting{file: file, kind: kind, label: keyText(block.Keys[1]), item: block}
			if kind != "credentials_helper" {
				var err error
				if s.host, err = hostname(file, kind, s.label); err != nil {
					return nil, err
				}
				s.label = s.host.String()
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// labelled returns an item as blocks with a label, such as host "NAME" {}. HCL 1 also accepts host { NAME = {} }.
func labelled(item *ast.ObjectItem) []*ast.ObjectItem {
	body, ok := item.Val.(*ast.ObjectType)
	switch {
	case !ok:
		return nil // null in JSON, which has no effect
	case len(item.Keys) > 1:
		return []*ast.ObjectItem{item}
	}
	var out []*ast.ObjectItem
	for _, inner := range body.List.Items {
		keys := slices.Concat(item.Keys, inner.Keys)
		out = append(out, labelled(&ast.ObjectItem{Keys: keys, Val: inner.Val})...)
	}
	return out
}

// merge returns the settings of earlier files and of one later file as the clients merge them.
func merge(earlier, later []setting) []setting {
	replaced := map[[2]string]bool{}
	for _, s := range later {
		replaced[[2]string{s.kind, s.label}] = s.label != ""
	}
	var out []setting
	for _, s := range earlier {
		if !replaced[[2]string{s.kind, s.label}] {
			out = append(out, s)
		}
	}
	for _, s := range later {
		if i := sameArgument(out, s); i >= 0 {
			out[i].item = mergeItem(out[i].item, s.item)
			continue
		}
		out = append(out, s)
	}
	return out
}

// sameArgument returns the index of the earlier setting with which the client merges s, or -1 if the client keeps s as a
// separate setting. Two settings of one file are never merged here: the client itself must report the duplicate.
func sameArgument(earlier []setting, s setting) int {
	for i, e := range earlier {
		arguments := isArgument(e.item) && isArgument(s.item) && strings.EqualFold(e.kind, s.kind)
		protocols := e.kind == "registry_protocols" && s.kind == e.kind // case-sensitive, unlike the names of arguments
		if e.file != s.file && (arguments || protocols) {
			return i
		}
	}
	return -1
}

func mergeItem(earlier, later *ast.ObjectItem) *ast.ObjectItem {
	a, aIsBlock := earlier.Val.(*ast.ObjectType)
	b, bIsBlock := later.Val.(*ast.ObjectType)
	if !aIsBlock || !bIsBlock {
		if isUnset(earlier.Val) {
			return later
		}
		return earlier
	}
	both := &ast.ObjectList{Items: a.List.Items}
	for _, item := range b.List.Items {
		if len(a.List.Filter(keyText(item.Keys[0])).Items) == 0 {
			both.Items = append(both.Items, item)
		}
	}
	return &ast.ObjectItem{Keys: earlier.Keys, Assign: earlier.Assign, Val: &ast.ObjectType{List: both}}
}

// isUnset reports whether clients treat a value as absent.
func isUnset(v ast.Node) bool {
	l, ok := v.(*ast.LiteralType)
	return ok && (l.Token.Text == `""` || l.Token.Text == "false")
}

// resolveFiles makes the names in docker_style_config_files absolute.
func resolveFiles(block *ast.ObjectItem, absolute func(string) string) {
	body, ok := block.Val.(*ast.ObjectType)
	if !ok {
		return
	}
	for _, item := range body.List.Filter("docker_style_config_files").Items {
		list, _ := item.Val.(*ast.ListType)
		if list == nil {
			continue
		}
		for _, n := range list.List {
			if l, ok := n.(*ast.LiteralType); ok {
				if name, ok := l.Token.Value().(string); ok {
					l.Token = stringToken(absolute(name))
				}
			}
		}
	}
}

// absolute returns the absolute path of a name in a file of the configuration.
func (env Environment) absolute(file, name string) string {
	name = files.Paths(env.GOOS).RelativeTo(file, name)
	if name == "" || env.Dir == "" || files.Paths(env.GOOS).IsAbs(name) {
		return name
	}
	return env.join(env.Dir, name)
}
