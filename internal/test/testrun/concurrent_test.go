package main

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

func TestIsConcurrent(t *testing.T) {
	for source, want := range map[string]bool{
		"import \"sync\"":                                true,
		"import \"golang.org/x/sync/errgroup\"":          true,
		"import s \"sync/atomic\"":                       true,
		"import \"net/http/httptest\"":                   true,
		"func f() { go f() }":                            true,
		"func f() { for { defer func() { go f() }() } }": true,
		"func f() { time.AfterFunc(1, f) }":              true,
		"import \"net/http\"":                            false,
		"func f() { g := func() {}; g() } // go f()":     false,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\n"+source, parser.SkipObjectResolution)
		clients.Must(t, err)
		if got := isConcurrent(f); got != want {
			t.Errorf("%s: %t", source, got)
		}
	}
}

// TestMarkConcurrent shows that a part of testkit makes the packages concurrent that import it, and that no other import does.
func TestMarkConcurrent(t *testing.T) {
	all := []declared{
		{Package: "outer", imports: []string{kit + "bench"}},
		{Package: kit + "bench", imports: []string{kit + "server"}},
		{Package: kit + "server", Concurrent: true},
		{Package: "product", Concurrent: true},
		{Package: "calm", imports: []string{"product", kit + "text"}},
		{Package: kit + "text"},
	}
	markConcurrent(all)
	for _, d := range all {
		if want := d.Package != "calm" && d.Package != kit+"text"; d.Concurrent != want {
			t.Errorf("%s: %t", d.Package, d.Concurrent)
		}
	}
}

// TestSeparate shows which packages of the project run under the race detector. Each unit is in one of both groups.
func TestSeparate(t *testing.T) {
	t.Chdir("../../..")
	all, err := listTests(".", pass{Race: true}.buildFlags())
	clients.Must(t, err)
	units, _, _ := split(all)
	racing, calm := separate(all, units)
	if len(racing)+len(calm) != len(units) {
		t.Errorf("%d and %d of %d packages", len(racing), len(calm), len(units))
	}
	for name := range units {
		_, a := racing[name]
		if _, b := calm[name]; a == b {
			t.Errorf("%s is in both groups, or in none", name)
		}
	}
	for _, name := range []string{
		"artifact", "auth", "auth/login", "auth/wire", "cmd/ocibridge", "gateway", "gateway/access", "gateway/archives", "gateway/catalog",
		"gateway/page", "gateway/verify", "internal/app/run", "internal/app/serve", "internal/base/fill", "internal/base/fresh", "internal/base/respond",
		"internal/origins/pull", "internal/registries/embedded", "internal/registries/upload", "internal/test/faults", "origin", "pusher",
		"pusher/reconcile", "pusher/repo",
	} {
		if _, there := racing[module+"/"+name]; !there {
			t.Errorf("%s does not run under the race detector", name)
		}
	}
	for _, name := range []string{"docs", "module", "provider", "templates", "internal/test/testkit/memnet", "internal/test/testkit/quirks"} {
		if _, there := calm[module+"/"+name]; !there {
			t.Errorf("%s runs under the race detector, but nothing in it runs at once, or it is a part of tests", name)
		}
	}
}
