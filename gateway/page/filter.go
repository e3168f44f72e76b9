package page

import (
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/provider"
)

// filterView is a user's filter for versions. It is a constraint such as "~> 1.2", the beginning of a version such as
// 1.2, or a part of a prerelease such as beta.
type filterView struct {
	Text string // "" selects all versions
	Bad  bool   // the text has an operator, but is not a constraint; it selects no version

	set provider.VersionSet
}

// maxFilter is the maximum length of a filter in bytes.
const maxFilter = 100

func newFilter(text string) (f filterView) {
	f.Text = strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), maxFilter)], ""))
	if strings.ContainsAny(f.Text, "~<>=!,") {
		var err error
		f.set, err = provider.ParseConstraint(f.Text)
		f.Bad = err != nil
	}
	return f
}

// apply returns the versions that the filter selects.
func (f *filterView) apply(all []provider.Version) []provider.Version {
	if f.Text == "" {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(v provider.Version) bool { return !f.selects(v) })
}

func (f *filterView) selects(v provider.Version) bool {
	if f.Bad || f.set.String() != "" {
		return f.set.Has(v)
	}
	text := strings.ToLower(v.String())
	words := strings.ToLower(strings.TrimPrefix(f.Text, "v"))
	if strings.HasPrefix(text, words) {
		return true
	}
	i := strings.IndexAny(text, "-+")
	return i >= 0 && strings.Contains(text[i:], words)
}
