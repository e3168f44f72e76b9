package calls

import (
	"path"
	"slices"
	"strings"
)

// Folder is what the files of a folder declare together.
type Folder struct {
	Calls    []Call
	Required []Required
	Uses     []Use
	Skipped  []Skipped
}

// Merge joins the files of a folder as Terraform and as OpenTofu do. Where the two differ, the result has what either of
// them reads: a file NAME.tofu hides NAME.tf from OpenTofu, and Terraform does not read it. An override file replaces single
// arguments of a module block.
func Merge(files []*File) *Folder {
	names := map[string]bool{}
	for _, f := range files {
		names[f.Name] = true
	}
	out := &Folder{}
	for _, reads := range []func(name string) bool{
		func(name string) bool { return !isTofu(name) },                      // Terraform
		func(name string) bool { return isTofu(name) || !names[twin(name)] }, // OpenTofu
	} {
		out.add(files, reads)
	}
	return out
}

// add adds what one client reads.
func (d *Folder) add(files []*File, reads func(name string) bool) {
	var of Folder
	var overrides []*File
	for _, f := range files {
		switch {
		case !reads(f.Name):
		case IsOverride(f.Name):
			overrides = append(overrides, f)
		default:
			of.Calls, of.Required = append(of.Calls, f.Calls...), append(of.Required, f.Required...)
			of.Uses, of.Skipped = append(of.Uses, f.Uses...), append(of.Skipped, f.Skipped...)
		}
	}
	for _, f := range overrides {
		for _, c := range f.Calls {
			of.override(c)
		}
		for _, r := range f.Required {
			of.Required = append(slices.DeleteFunc(of.Required, func(old Required) bool { return old.Name == r.Name }), r)
		}
		of.Uses, of.Skipped = append(of.Uses, f.Uses...), append(of.Skipped, f.Skipped...)
	}
	d.Calls, d.Required = union(d.Calls, of.Calls), union(d.Required, of.Required)
	d.Uses, d.Skipped = union(d.Uses, of.Uses), union(d.Skipped, of.Skipped)
}

// override replaces the arguments of the calls with the same name.
func (d *Folder) override(by Call) {
	for i := range d.Calls {
		c := &d.Calls[i]
		if c.Name != by.Name {
			continue
		}
		if by.Source.Set {
			c.Source, c.File, c.Line = by.Source, by.File, by.Line
		}
		if by.Version.Set {
			c.Version = by.Version
		}
	}
}

// union appends the new elements of b to a.
func union[T comparable](a, b []T) []T {
	known := make(map[T]bool, len(a))
	for _, e := range a {
		known[e] = true
	}
	for _, e := range b {
		if !known[e] {
			known[e] = true
			a = append(a, e)
		}
	}
	return a
}

// isTofu reports whether only OpenTofu reads a file.
func isTofu(name string) bool {
	return isFile(name, ".tofu", ".tofu.json", ".tofutest.hcl", ".tofutest.json")
}

// twin returns the file that hides a file from OpenTofu.
func twin(name string) string {
	for _, end := range []string{".tf", ".tf.json", ".tftest.hcl", ".tftest.json"} {
		if base, ok := strings.CutSuffix(name, end); ok {
			return base + strings.Replace(end, ".tf", ".tofu", 1)
		}
	}
	return ""
}

// IsOverride reports whether a file overrides arguments of others.
func IsOverride(name string) bool {
	base := path.Base(name)
	for _, end := range []string{".tf", ".tofu", ".tf.json", ".tofu.json"} {
		if base, ok := strings.CutSuffix(base, end); ok {
			return base == "override" || strings.HasSuffix(base, "_override")
		}
	}
	return false
}
