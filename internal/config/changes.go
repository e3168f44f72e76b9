package config

import (
	"maps"
	"reflect"
	"slices"
)

// Changes returns the paths of the arguments whose values have changed, sorted. It compares
// neither secrets, which InForce does not have, nor the sources of values.
func (f *InForce) Changes(before *InForce) []string {
	then, now := before.values(), f.values()
	all := maps.Clone(then)
	maps.Copy(all, now)
	var out []string
	for _, path := range slices.Sorted(maps.Keys(all)) {
		a, before := then[path]
		b, after := now[path]
		if before != after || !reflect.DeepEqual(a, b) {
			out = append(out, path)
		}
	}
	return out
}

func (f *InForce) values() map[string]any {
	out := map[string]any{}
	for _, b := range f.blocks {
		b.list("", func(path string, s shownSetting) { out[path] = s.json })
	}
	return out
}
