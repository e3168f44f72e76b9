package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/opentofu/svchost"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/clients/cliconfig"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/templates"
)

// FlagValue is the value of a flag, with the source of the value.
type FlagValue struct {
	Flag   string
	Value  string // as on the command line
	Source string // "FILE:LINE", "flag" or the name of a variable
}

// FlagValues returns the values that the file sets for flags, in the order of the schema.
// given reports whether the command line or a variable sets a flag. FlagValues omits flags
// that are given, and all other flags of their groups. For example, --tls-cert also overrides
// key_file in the file.
func (c *Config) FlagValues(given func(flag string) bool) []FlagValue {
	if c.tree == nil {
		return nil
	}
	groups := givenGroups(given)
	var out []FlagValue
	eachFlag(func(path []string, f Field) {
		if s, ok := c.tree.lookup(path); ok && !given(f.Flag) && !groups[f.Group] {
			out = append(out, FlagValue{f.Flag, f.opposite(s.value.text), s.source})
		}
	})
	return out
}

// givenGroups returns the groups in which at least one flag is given.
func givenGroups(given func(flag string) bool) map[string]bool {
	out := map[string]bool{}
	eachFlag(func(_ []string, f Field) { out[f.Group] = out[f.Group] || f.Group != "" && given(f.Flag) })
	return out
}

// Flags returns the names of the flags that override an argument.
func Flags() []string {
	var out []string
	eachFlag(func(_ []string, f Field) { out = append(out, f.Flag) })
	return out
}

// FlagDefault returns the default of a flag's argument.
func FlagDefault(flag string) string { return flagDefaults()[flag] }

var flagDefaults = sync.OnceValue(func() map[string]string {
	out := map[string]string{}
	eachFlag(func(_ []string, f Field) { out[f.Flag] = f.opposite(f.Default) })
	return out
})

// eachFlag calls f for every argument that has a flag and is not in a repeated block.
func eachFlag(f func(path []string, _ Field)) { eachFlagIn(nil, Schema(), f) }

func eachFlagIn(path []string, t reflect.Type, f func([]string, Field)) {
	for _, each := range Fields(t) {
		in := append(slices.Clone(path), each.Name)
		switch {
		case each.IsBlock && !each.Repeated:
			eachFlagIn(in, each.Type, f)
		case !each.IsBlock && each.Flag != "":
			f(in, each)
		}
	}
}

func (b *block) lookup(path []string) (setting, bool) {
	for ; len(path) > 1; path = path[1:] {
		inner := b.inner(path[0])
		if len(inner) == 0 {
			return setting{}, false
		}
		b = inner[0]
	}
	return b.setting(path[0])
}

// Surroundings are the settings from sources other than the file. Flags and Template
// override the file. The file overrides all other settings.
type Surroundings struct {
	// Flags are the flags that the command line or a variable sets, by name. Their source
	// is "flag" or the variable's name. Flags that override no argument of the file are
	// ignored.
	Flags map[string]FlagValue
	// Template is the oci_mirror block that --template defines, or nil without the flag. It
	// replaces all oci_mirror blocks of the file.
	Template *MirrorText
	// CLI is the user's CLI configuration, or nil if the user has no CLI configuration.
	CLI *cliconfig.Config
	// VariableLogin is the login in environment variables, or nil without such a login.
	VariableLogin *login.Login
	// Defaults are the defaults that depend on the machine, by the name of the flag. An
	// argument without a flag has the name BLOCK.ARGUMENT.
	Defaults map[string]string
}

// MirrorText is the text of an oci_mirror block, with the fields of [cliconfig.OCIMirror].
type MirrorText struct {
	Template string
	Include  []string
	Exclude  []string
	Source   string
}

// TextOf returns the text of an oci_mirror block that defines the template t.
func TextOf(t *templates.Template, source string) MirrorText {
	sel := t.Selector()
	return MirrorText{t.Source(), texts(sel.Include), texts(sel.Exclude), source}
}

// ModuleText has the patterns of a module_mirror block.
type ModuleText struct {
	Include     []subject.Pattern // empty for all modules
	FallThrough bool
}

// ModuleTexts returns the patterns of the module_mirror blocks in the order of the file.
func (c *Config) ModuleTexts() (out []ModuleText) {
	for _, m := range c.modules {
		out = append(out, ModuleText{m.Template.Selector().Include, m.FallThrough})
	}
	return out
}

// PulledHost is a host whose modules the gateway pulls through.
type PulledHost struct {
	Name  svchost.Hostname
	Whole bool // a pattern covers all modules of the host, and no exclude takes any away
}

// PulledModuleHosts returns the sorted hosts that the module patterns of the pull_through block include by name. It returns
// nil if pull-through is off, or if there is no repository for modules.
func (c *Config) PulledModuleHosts() (out []PulledHost) {
	if c.PullThrough == nil || !c.PullThrough.Enabled || c.namesRepositories() && len(c.modules) == 0 {
		return nil
	}
	excludes := slices.ContainsFunc(c.PullThrough.Selector.Exclude, func(p subject.Pattern) bool { return p.Kind() == subject.Module })
	whole := map[svchost.Hostname]bool{}
	for _, p := range c.PullThrough.Selector.Include {
		if host, named := p.ServiceHost(); named && p.Kind() == subject.Module {
			whole[host] = whole[host] || p.Parts() == 1 && !excludes
		}
	}
	for _, host := range slices.Sorted(maps.Keys(whole)) {
		out = append(out, PulledHost{host, whole[host]})
	}
	return out
}

// Effective contains every setting that is in effect, with its source. It contains no secrets.
type Effective struct{ root *block }

// Effective returns the settings that are in effect. A flag or variable overrides the file,
// the file overrides the CLI configuration, and the CLI configuration overrides a default.
func (c *Config) Effective(s Surroundings) *Effective {
	tree := c.tree
	if tree == nil {
		tree = &block{index: -1}
	}
	v := &viewer{s, givenGroups(func(flag string) bool { _, ok := s.Flags[flag]; return ok })}
	root := v.block(Schema(), tree)
	root.blocks = slices.DeleteFunc(root.blocks, func(b *block) bool {
		return b.name == "provider_installation" || b.name == "oci_mirror"
	})
	root.blocks = slices.Concat(showMirrors(c.EffectiveMirrors(s)), root.blocks, c.effectiveCLI(s))
	return &Effective{root}
}

// viewer combines the blocks of a file with settings from other sources.
type viewer struct {
	Surroundings
	groups map[string]bool // whether flags of a group override the file
}

func (v *viewer) block(t reflect.Type, b *block) *block {
	out := &block{name: b.name, label: b.label, index: b.index, source: b.source}
	for _, f := range Fields(t) {
		if !f.IsBlock {
			if s, ok := v.setting(b, f); ok && (b.has(f.Name) || !isForProviders(b, f)) {
				out.settings = append(out.settings, s)
			}
			continue
		}
		found := b.inner(f.Name)
		if len(found) == 0 && !f.Repeated && v.without(f) {
			found = []*block{{name: f.Name, index: -1}} // an empty block, which shows defaults and flags
		}
		for _, inner := range found {
			s := v.block(f.Type, inner)
			if inner.source != "" || len(s.settings)+len(s.blocks) > 0 {
				out.blocks = append(out.blocks, s)
			}
		}
	}
	return out
}

// isForProviders reports whether an argument concerns only providers, and the block is a trust block for modules.
func isForProviders(b *block, f Field) bool {
	return b.name == "trust" && strings.Count(b.label, "/") == 3 && slices.Contains(openPGP, f.Name)
}

// without reports whether the defaults of the block f apply if the file does not contain
// the block. They do not apply if the block has a required argument.
func (v *viewer) without(f Field) bool {
	switch f.Name {
	case "oci_default_credentials":
		return false
	case "pull_through": // without the block, pull-through is off in most cases
		_, said := v.Flags["no-pull-through"]
		return said
	case "cache": // without the block, the default depends on the registry
		_, said := v.Flags["no-cache"]
		_, known := v.Defaults["no-cache"]
		return said || known
	}
	return !slices.ContainsFunc(Fields(f.Type), func(f Field) bool { return f.Required })
}

// setting returns the value that is in effect for the argument f of the block b. The bool
// reports whether the argument has a value.
func (v *viewer) setting(b *block, f Field) (setting, bool) {
	above, given := v.Flags[f.Flag]
	s, written := b.setting(f.Name)
	below, ok := v.Defaults[cmp.Or(f.Flag, joinPath(b.name, f.Name))]
	switch {
	case given:
		return setting{f.Name, f.parse(f.opposite(above.Value)), above.Source}, true
	case written && !v.groups[f.Group]:
		return s, true
	case ok:
		return setting{f.Name, f.parse(f.opposite(below)), "default"}, true
	}
	return setting{f.Name, f.parse(f.Default), "default"}, f.Default != ""
}

// parse converts a text to a value of the argument's kind.
func (f Field) parse(s string) value {
	types := map[string]cty.Type{"bool": cty.Bool, "number": cty.Number, "unsigned": cty.Bool}
	if t, ok := types[f.Kind]; ok {
		if v, err := convert.Convert(cty.StringVal(s), t); err == nil {
			return newValue(v)
		}
	}
	return textValue(s)
}

// EffectiveMirrors returns the oci_mirror blocks that are in effect. All of these blocks come
// from the same source. The source is the flag, the file or the CLI configuration.
func (c *Config) EffectiveMirrors(s Surroundings) []MirrorText {
	switch {
	case s.Template != nil:
		return []MirrorText{*s.Template}
	case len(c.mirrors) > 0:
		return c.mirrors
	case s.CLI == nil:
		return nil
	}
	var out []MirrorText
	for _, m := range s.CLI.OCIMirrors {
		m.Template = ociaddr.HideLogin(m.Template)
		out = append(out, MirrorText(m))
	}
	return out
}

func showMirrors(mirrors []MirrorText) []*block {
	var out []*block
	for i, m := range mirrors {
		b := &block{name: "oci_mirror", index: i, source: m.Source}
		b.settings = []setting{{"repository_template", templateValue(m.Template), m.Source}}
		b.add("include", m.Include, m.Source)
		b.add("exclude", m.Exclude, m.Source)
		out = append(out, b)
	}
	return out
}

func texts[T fmt.Stringer](list []T) []string {
	var out []string
	for _, v := range list {
		out = append(out, v.String())
	}
	return out
}

// addGiven adds an argument with the value x and the source of the block. It does nothing
// if x is nil or "".
func (b *block) addGiven(name string, x any) {
	if x != "" {
		b.add(name, x, b.source)
	}
}

// redact returns the text that output shows in place of a secret, or "" if s is empty.
func redact(s login.Secret) string {
	if s.IsZero() {
		return ""
	}
	return redacted
}

// effectiveCLI returns the blocks from the CLI configuration and from environment variables
// that the file does not override. These blocks are logins for other prefixes, default
// logins if the file has none, hosts, and credentials.
func (c *Config) effectiveCLI(s Surroundings) []*block {
	cli := s.CLI
	if cli == nil {
		cli = &cliconfig.Config{}
	}
	logins, defaults := cli.OCICredentials()
	has := func(logins []login.Login, prefix string) bool {
		return slices.ContainsFunc(logins, func(l login.Login) bool { return l.Prefix == prefix })
	}
	if l := s.VariableLogin; l != nil && !has(logins, l.Prefix) {
		logins = append(logins, *l)
	}
	var out []*block
	show := func(name, label, source string) *block {
		out = append(out, &block{name: name, label: label, index: -1, source: source})
		return out[len(out)-1]
	}
	for _, l := range logins {
		if has(c.Logins, l.Prefix) {
			continue
		}
		b := show("oci_credentials", l.Prefix, l.Origin)
		b.addGiven("username", redact(l.Username))
		b.addGiven("password", redact(l.Password))
		b.addGiven("access_token", redact(l.AccessToken))
		b.addGiven("refresh_token", redact(l.RefreshToken))
		b.addGiven("docker_credentials_helper", l.Helper)
	}
	if d := defaults; d != nil && c.Defaults == nil {
		b := show("oci_default_credentials", "", d.Origin)
		b.addGiven("discover_ambient_credentials", d.Discover)
		b.addGiven("docker_style_config_files", d.Files)
		b.addGiven("docker_credentials_helper", d.Helper)
	}
	hosts := cli.Services()
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		services := hosts[host]
		b := show("host", host.ForDisplay(), strings.Join(cli.Files, " or "))
		var lines []string
		for _, name := range slices.Sorted(maps.Keys(services)) {
			if s, ok := services[name].(string); ok {
				lines = append(lines, fmt.Sprintf("%s = %s", textValue(name).hcl, textValue(s).hcl))
			}
		}
		b.settings = []setting{{"services", value{hcl: "{ " + strings.Join(lines, ", ") + " }", json: services}, b.source}}
	}
	for _, h := range cli.TokenHosts() {
		show("credentials", h.Host.ForDisplay(), h.Source).addGiven("token", redacted)
	}
	return out
}

// HCL returns the settings as a configuration file. A comment after each argument names its
// source.
func (f *Effective) HCL() []byte {
	var out strings.Builder
	f.root.arguments(&out)
	for i, inner := range f.root.blocks {
		if i > 0 || len(f.root.settings) > 0 {
			out.WriteByte('\n')
		}
		inner.write(&out)
	}
	return hclwrite.Format([]byte(out.String()))
}

func (b *block) write(out *strings.Builder) {
	out.WriteString(b.name)
	if b.label != "" {
		out.WriteString(" " + textValue(b.label).hcl)
	}
	out.WriteString(" {\n")
	b.arguments(out)
	for _, inner := range b.blocks {
		inner.write(out)
	}
	out.WriteString("}\n")
}

// inOneLine writes the objects of an expression on one line.
var inOneLine = strings.NewReplacer("{\n", "{ ", "\n}", " }", "\n", ", ")

func (b *block) arguments(out *strings.Builder) {
	for _, s := range b.settings {
		fmt.Fprintf(out, "%s = %s # %s\n", s.name, inOneLine.Replace(s.hcl), hint.OneLine(s.source))
	}
}

// MarshalJSON implements [json.Marshaler]. The JSON is a list of arguments, each with its
// path, value and source.
func (f *Effective) MarshalJSON() ([]byte, error) {
	settings := []map[string]any{}
	f.root.list("", func(path string, s setting) {
		settings = append(settings, map[string]any{"path": path, "value": s.json, "source": s.source})
	})
	return json.Marshal(settings)
}

func (b *block) list(path string, f func(string, setting)) {
	if b.name != "" {
		path = joinPath(path, b.name)
	}
	switch {
	case b.label != "":
		path += fmt.Sprintf("[%q]", b.label)
	case b.index >= 0:
		path += fmt.Sprintf("[%d]", b.index)
	}
	for _, s := range b.settings {
		f(joinPath(path, s.name), s)
	}
	for _, inner := range b.blocks {
		inner.list(path, f)
	}
}

// Changes returns the paths of the arguments whose values differ between before and f,
// sorted. It ignores the sources of values. It does not notice a changed secret, because an
// Effective contains no secrets.
func (f *Effective) Changes(before *Effective) []string {
	then, now := before.values(), f.values()
	all := maps.Clone(then)
	maps.Copy(all, now)
	maps.DeleteFunc(all, func(path, _ string) bool {
		_, before := then[path]
		_, after := now[path]
		return before == after && then[path] == now[path]
	})
	return slices.Sorted(maps.Keys(all))
}

func (f *Effective) values() map[string]string {
	out := map[string]string{}
	f.root.list("", func(path string, s setting) {
		text, _ := json.Marshal(s.json) // unlike the HCL of services, the JSON is complete
		out[path] = string(text)
	})
	return out
}
