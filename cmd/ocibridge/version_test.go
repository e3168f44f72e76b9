package main

import (
	"runtime/debug"
	"testing"
)

// TestVersion shows which version the program prints.
func TestVersion(t *testing.T) {
	module := func(version string) *debug.BuildInfo { return &debug.BuildInfo{Main: debug.Module{Version: version}} }
	for name, tc := range map[string]struct {
		linked string
		build  *debug.BuildInfo
		want   string
	}{
		"release":       {"0.1.0", module("v0.2.0"), "0.1.0"},
		"go install":    {development, module("v0.1.0"), "v0.1.0"},
		"in a clone":    {development, module("(devel)"), development},
		"no build info": {development, nil, development},
	} {
		if got := versionOf(tc.linked, tc.build); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
