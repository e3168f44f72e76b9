// Package moduledoc reads what a module says about itself from its zip: the README, the inputs and outputs, and the providers,
// modules and resources that it uses, of the module and of the folders modules/* and examples/*.
//
// It runs nothing, unpacks nothing to the disk, and evaluates only constant values. Of two files NAME.tf and NAME.tofu it reads
// the second, as OpenTofu does. Like terraform-docs, it takes the comment above a block without a description as the description,
// and the type of the default value as the type of an input without a type.
//
// The zip can come from other parties. Its bytes must be verified beforehand, because the result is as trustworthy as they are.
// The costs are bounded: see the limits below. What exceeds a limit is left out, and listed in [Part.Skipped].
package moduledoc

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ocibridge/ocibridge/internal/base/calls"
)

// MaxZip is the maximum size of a zip in bytes, because it is read into memory.
const MaxZip = 8 << 20

const (
	maxEntries = 20_000    // the maximum number of entries in a zip
	maxParts   = 200       // the maximum number of folders in modules and in examples
	maxReadme  = 256 << 10 // the maximum size of a README in bytes
	maxSources = 16 << 20  // the maximum size in bytes of all source files that are read
	maxTokens  = 100_000   // the maximum number of words and signs that are parsed; each takes 3 kB and 5 microseconds
	maxBlocks  = 10_000    // the maximum number of blocks that are read
	maxText    = 16 << 10  // the maximum length in bytes of a description, type or default value
	maxKept    = 4 << 20   // the maximum size in bytes of all texts in the result
	maxSkipped = 10        // the maximum number of skipped parts that are listed

	bytesOfToken   = 4  // the average length of a word or sign in JSON, in bytes
	textOfToken    = 32 // the bytes of text that take as long as a word or sign
	tokensOfNumber = 20 // the words and signs that take as long as a number: the library formats numbers with 512 bits
)

// price returns how many words and signs take as long as the text and the numbers of a source.
func price(src []byte) int {
	n, before := len(src)/textOfToken, byte(' ')
	for _, c := range src {
		if '0' <= c && c <= '9' && strings.IndexByte(" \t\n,:=[(-", before) >= 0 {
			n += tokensOfNumber
		}
		before = c
	}
	return n
}

// budget is what may still be read of a zip.
type budget struct {
	sources int64 // bytes of source files
	tokens  int   // words and signs
	blocks  int
	kept    int // bytes of texts in the result
}

// parse takes tokens from the budget, and reports whether there are enough.
func (b *budget) parse(p *Part, tokens int) bool {
	if b.tokens -= tokens; b.tokens < 0 {
		p.skipOnce("the module has more than %d words and signs to parse", maxTokens)
	}
	return b.tokens >= 0
}

// block takes a block from the budget, and reports whether there was one.
func (b *budget) block(p *Part) bool {
	if b.blocks--; b.blocks < 0 {
		p.skipOnce("the module has more than %d blocks", maxBlocks)
	}
	return b.blocks >= 0
}

var (
	// ErrTooLarge means that a zip is too large to be read.
	ErrTooLarge = errors.New("the zip is too large to be read")
	// ErrNotZip means that the bytes are no zip.
	ErrNotZip = errors.New("not a zip")
)

// Doc is what a module says about itself.
type Doc struct {
	Root     Part   `json:"root"`
	Modules  []Part `json:"submodules"` // the folders in modules, by name
	Examples []Part `json:"examples"`   // the folders in examples, by name
}

// Part is the module itself, or one of its folders. All lists are sorted by name, required inputs first.
type Part struct {
	Path   string `json:"path"`             // such as modules/NAME; "" for the module itself
	Readme string `json:"readme,omitempty"` // the text of its README file, in Markdown; "" if there is none
	// Interface is what callers of the module see.
	Interface
	Requires  []Requirement `json:"providers"`
	Core      []string      `json:"required_version,omitempty"` // the constraints for the client
	Calls     []Call        `json:"dependencies"`
	Resources []Resource    `json:"resources"`
	Skipped   []string      `json:"skipped,omitempty"` // what was not read, and why
}

// IsEmpty reports whether a part declares nothing.
func (p *Part) IsEmpty() bool {
	return len(p.Inputs)+len(p.Outputs)+len(p.Requires)+len(p.Calls)+len(p.Resources) == 0
}

// Interface is the inputs and outputs of a module.
type Interface struct {
	Inputs  []Input  `json:"inputs"`
	Outputs []Output `json:"outputs"`
}

// Input is an input variable.
type Input struct {
	Name        string `json:"name"`
	Type        string `json:"type"` // as the source has it
	Description string `json:"description"`
	// Default is the default value: JSON if it is constant, and otherwise nil, and Expression has the source text. Both are
	// empty if the input is required.
	Default    json.RawMessage `json:"default,omitempty"`
	Expression string          `json:"default_expression,omitempty"`
	Required   bool            `json:"required"`
	Sensitive  bool            `json:"sensitive"`
	Nullable   bool            `json:"nullable"`
	Ephemeral  bool            `json:"ephemeral,omitempty"`
	Deprecated string          `json:"deprecated,omitempty"` // a message to callers

	inferred bool // the type is that of the default value
}

// DefaultText returns the default value as text, or "" if the input is required.
func (i Input) DefaultText() string { return cmp.Or(string(i.Default), i.Expression) }

// Output is an output value.
type Output struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Sensitive   bool   `json:"sensitive"`
	Ephemeral   bool   `json:"ephemeral,omitempty"`
	Deprecated  string `json:"deprecated,omitempty"`
}

// Requirement is a provider that a module needs.
type Requirement struct {
	Name    string   `json:"name"`              // the local name
	Source  string   `json:"source,omitempty"`  // such as hashicorp/aws; "" if the module does not say
	Version []string `json:"version,omitempty"` // version constraints
}

// Call is a module that a module calls.
type Call struct {
	Name    string `json:"name"`
	Source  string `json:"source"`
	Version string `json:"version"` // "" if the call has none
}

// Resource is a resource or a data source.
type Resource struct {
	Type string `json:"type"`
	Name string `json:"name"`
	Data bool   `json:"data,omitempty"`
}

// Part returns the part with a path, or nil.
func (d *Doc) Part(at string) *Part {
	if at == "" {
		return &d.Root
	}
	for _, parts := range [][]Part{d.Modules, d.Examples} {
		if i := slices.IndexFunc(parts, func(p Part) bool { return p.Path == at }); i >= 0 {
			return &parts[i]
		}
	}
	return nil
}

// Size is roughly the memory of a Doc, in bytes.
func (d *Doc) Size() int64 {
	n := int64(512)
	for _, parts := range [][]Part{{d.Root}, d.Modules, d.Examples} {
		for _, p := range parts {
			n += 512 + int64(p.texts()) + 192*int64(len(p.Inputs)+len(p.Outputs)+len(p.Requires)+len(p.Calls)+len(p.Resources))
		}
	}
	return n
}

// texts returns the size of all texts in bytes.
func (p *Part) texts() (n int) {
	n = len(p.Path) + len(p.Readme)
	add := func(texts ...string) {
		for _, t := range texts {
			n += len(t)
		}
	}
	for _, i := range p.Inputs {
		add(i.Name, i.Type, i.Description, string(i.Default), i.Expression, i.Deprecated)
	}
	for _, o := range p.Outputs {
		add(o.Name, o.Description, o.Deprecated)
	}
	for _, r := range p.Requires {
		add(r.Name, r.Source)
		add(r.Version...)
	}
	for _, c := range p.Calls {
		add(c.Name, c.Source, c.Version)
	}
	for _, r := range p.Resources {
		add(r.Type, r.Name)
	}
	add(p.Core...)
	add(p.Skipped...)
	return n
}

// Read reads the module in a folder of a zip. The folder is "" if the zip itself is the module. The errors are [ErrTooLarge],
// [ErrNotZip], and that of ctx.
func Read(ctx context.Context, data []byte, folder string) (*Doc, error) {
	if len(data) > MaxZip {
		return nil, fmt.Errorf("%w: it has %d bytes, and the maximum is %d", ErrTooLarge, len(data), MaxZip)
	}
	// The library allocates memory for each entry of the directory.
	if n := bytes.Count(data, []byte("PK\x01\x02")); n > maxEntries {
		return nil, fmt.Errorf("%w: it has more than %d entries", ErrTooLarge, maxEntries)
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return nil, fmt.Errorf("%w: %w", ErrNotZip, err)
	}
	r := newReader(ctx, z, folder)
	d := &Doc{Root: r.part("")}
	d.Modules = r.parts("modules")
	d.Examples = r.parts("examples")
	return d, ctx.Err()
}

// reader reads the parts of one zip.
type reader struct {
	ctx     context.Context
	folders map[string]map[string]*zip.File // the files of each folder that can be a part, by name
	budget  budget
}

func newReader(ctx context.Context, z *zip.Reader, folder string) *reader {
	r := &reader{ctx: ctx, folders: map[string]map[string]*zip.File{}, budget: budget{maxSources, maxTokens, maxBlocks, maxKept}}
	for _, f := range z.File {
		name := f.Name
		if folder != "" {
			rest, ok := strings.CutPrefix(name, folder+"/")
			if !ok {
				continue
			}
			name = rest
		}
		if f.Mode()&fs.ModeType != 0 || !fs.ValidPath(name) || !utf8.ValidString(name) {
			continue // a folder, a link, or a name that no client unpacks
		}
		dir, base := path.Split(name)
		dir = strings.TrimSuffix(dir, "/")
		if !isPart(dir) || !calls.IsFile(base) && readmeRank(base) == 0 {
			continue
		}
		if r.folders[dir] == nil {
			r.folders[dir] = map[string]*zip.File{}
		}
		r.folders[dir][base] = f
	}
	return r
}

// isPart reports whether a folder can be a part of a module.
func isPart(dir string) bool {
	parent, _ := path.Split(dir)
	return dir == "" || parent == "modules/" || parent == "examples/"
}

// readmeRank returns how likely a file is the README: the more, the likelier. It is 0 for other files.
func readmeRank(name string) int {
	ext := path.Ext(name)
	if !strings.EqualFold(strings.TrimSuffix(name, ext), "readme") {
		return 0
	}
	switch strings.ToLower(ext) {
	case ".md":
		return 3
	case ".markdown":
		return 2
	case "", ".txt":
		return 1
	}
	return 0
}

// IsReadme reports whether a file with this name can be the README of its folder.
func IsReadme(name string) bool { return readmeRank(name) > 0 }

// parts reads the folders of modules or examples.
func (r *reader) parts(of string) []Part {
	out := []Part{}
	for _, dir := range slices.Sorted(maps.Keys(r.folders)) {
		if strings.HasPrefix(dir, of+"/") && len(out) < maxParts {
			out = append(out, r.part(dir))
		}
	}
	return out
}

// part reads one folder.
func (r *reader) part(dir string) (p Part) {
	p.Path = dir
	files := r.folders[dir]
	r.readme(&p, files)
	s := newSources(&p, &r.budget)
	for _, name := range sourceFiles(files) {
		if r.ctx.Err() != nil {
			break
		}
		data, err := r.read(files[name], min(calls.MaxFile, r.budget.sources))
		if err != nil {
			p.skip("%s: %v", name, err)
			continue
		}
		r.budget.sources -= int64(len(data))
		s.file(r.ctx, name, data)
	}
	s.finish()
	if n := p.texts(); n > r.budget.kept {
		p = Part{Path: dir, Interface: Interface{[]Input{}, []Output{}}, Requires: []Requirement{}, Calls: []Call{}, Resources: []Resource{}}
		p.skip("the texts of the module have more than %d bytes", maxKept)
	} else {
		r.budget.kept -= n
	}
	return p
}

// readme reads the README of a part.
func (r *reader) readme(p *Part, files map[string]*zip.File) {
	best := ""
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if readmeRank(name) > readmeRank(best) {
			best = name
		}
	}
	if best == "" {
		return
	}
	data, err := r.read(files[best], min(maxReadme, int64(r.budget.kept)))
	if err != nil {
		p.skip("%s: %v", best, err)
		return
	}
	p.Readme = strings.ToValidUTF8(string(bytes.TrimPrefix(data, []byte("\ufeff"))), "\ufffd")
}

// read returns the content of a file of at most limit bytes.
func (r *reader) read(f *zip.File, limit int64) ([]byte, error) {
	if f.UncompressedSize64 > uint64(limit) {
		return nil, fmt.Errorf("it has %d bytes, more than are read", f.UncompressedSize64)
	}
	in, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it has more than %d bytes", limit)
	}
	return data, err
}

// sourceFiles returns the names of the files that a client reads, in the order in which it reads them: override files come last.
func sourceFiles(files map[string]*zip.File) (out []string) {
	var overrides []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !calls.IsFile(name) {
			continue
		}
		base, tofu := strings.CutSuffix(name, ".tf")
		ext := ".tofu"
		if !tofu {
			base, tofu = strings.CutSuffix(name, ".tf.json")
			ext = ".tofu.json"
		}
		if tofu && files[base+ext] != nil {
			continue
		}
		if calls.IsOverride(name) {
			overrides = append(overrides, name)
		} else {
			out = append(out, name)
		}
	}
	return append(out, overrides...)
}

// skip adds a reason why something was not read.
func (p *Part) skip(format string, args ...any) {
	if len(p.Skipped) < maxSkipped {
		p.Skipped = append(p.Skipped, fmt.Sprintf(format, args...))
	}
}

// skipOnce is like skip, unless the reason is already listed.
func (p *Part) skipOnce(format string, args ...any) {
	if !slices.Contains(p.Skipped, fmt.Sprintf(format, args...)) {
		p.skip(format, args...)
	}
}
