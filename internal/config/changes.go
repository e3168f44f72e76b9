package config

import (
	"encoding/json"
	"maps"
	"slices"
)

// Changes returns the paths of the arguments whose values have changed, sorted. It compares
// neither secrets, which InForce does not have, nor the sources of values.
func (f *InForce) Changes(before *InForce) []string {
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

func (f *InForce) values() map[string]string {
	out := map[string]string{}
	f.root.list("", func(path string, s setting) {
		text, _ := json.Marshal(s.json) // complete, other than the HCL of services
		out[path] = string(text)
	})
	return out
}
