package login

import (
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/ociaddr"
)

func mustRepository(t testing.TB, s string) ociaddr.Repository {
	t.Helper()
	r, err := ociaddr.ParseRepository(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSpecificity(t *testing.T) {
	const (
		none   = noMatch
		byURL  = hostByURL
		host   = wholeHost
		first  = firstSegment
		second = firstSegment + 1
	)
	tests := []struct {
		key, repository string
		want            int
	}{
		{"ghcr.io", "ghcr.io/acme/null", host},
		{"GHCR.io", "ghcr.io/acme/null", host},
		{"ghcr.io/", "ghcr.io/acme/null", host},
		{"https://ghcr.io", "ghcr.io/acme/null", host},
		{"http://ghcr.io/", "ghcr.io/acme/null", host},
		{"HTTPS://ghcr.io/v2/", "ghcr.io/acme/null", host},
		{"https://ghcr.io/v1", "ghcr.io/acme/null", host},
		{"ghcr.io/v2/", "ghcr.io/acme/null", host},
		{"ghcr.io", "ghcr.io:443/acme/null", none},
		{"ghcr.io", "gcr.io/acme/null", none},
		{"localhost:5000", "localhost:5000/acme/null", host},
		{"localhost", "localhost:5000/acme/null", none},

		{"ghcr.io/acme", "ghcr.io/acme/null", first},
		{"ghcr.io/acme/null", "ghcr.io/acme/null", second},
		{"ghcr.io/acme/null/", "ghcr.io/acme/null", second},
		{"ghcr.io/acme/null/more", "ghcr.io/acme/null", none},
		{"ghcr.io/acm", "ghcr.io/acme/null", none},
		{"ghcr.io/acme/nul", "ghcr.io/acme/null", none},
		{"ghcr.io/v2", "ghcr.io/v2/null", first},
		{"ghcr.io/v2", "ghcr.io/acme/null", none},
		{"https://ghcr.io/acme", "ghcr.io/acme/null", first},
		{"https://ghcr.io/acme", "ghcr.io/other/null", byURL},
		{"https://ghcr.io/acme", "gcr.io/acme/null", none},

		{"https://index.docker.io/v1/", "docker.io/acme/null", host},
		{"index.docker.io", "docker.io/acme/null", host},
		{"docker.io", "docker.io/acme/null", host},
		{"registry-1.docker.io", "docker.io/acme/null", host},
		{"docker.io", "registry-1.docker.io/acme/null", host},
		{"https://index.docker.io/v1/", "index.docker.io/acme/null", host},
		{"docker.io/acme", "docker.io/acme/null", first},
		{"hub.docker.com", "docker.io/acme/null", none},
	}
	for _, tt := range tests {
		k, ok := parseKey(tt.key)
		if !ok {
			t.Errorf("%q is not a key", tt.key)
			continue
		}
		if got := k.specificity(mustRepository(t, tt.repository)); got != tt.want {
			t.Errorf("%q for %s: specificity %d, want %d", tt.key, tt.repository, got, tt.want)
		}
	}
	for _, s := range []string{"", " ", "/", "https://", "https:///x", "//ghcr.io"} {
		if k, ok := parseKey(s); ok {
			t.Errorf("%q is a key: %+v", s, k)
		}
	}
}

func TestRankKeepsOrderOfEquals(t *testing.T) {
	var all []*source
	for _, name := range []string{"ghcr.io", "ghcr.io/acme", "other.io", "https://ghcr.io/elsewhere", "ghcr.io/acme/null", "https://ghcr.io", "ghcr.io/acme"} {
		k, _ := parseKey(name)
		all = append(all, &source{key: k, name: name})
	}
	all = slices.Insert(all, 1, &source{name: "every host"})
	var got []string
	for _, l := range rank(all, mustRepository(t, "ghcr.io/acme/null")) {
		got = append(got, l.String())
	}
	want := []string{"ghcr.io/acme/null", "ghcr.io/acme", "ghcr.io/acme", "ghcr.io", "https://ghcr.io", "https://ghcr.io/elsewhere", "every host"}
	if !slices.Equal(got, want) {
		t.Errorf("rank = %q, want %q", got, want)
	}
}

func FuzzSpecificity(f *testing.F) {
	for _, seed := range []string{
		"ghcr.io", "https://ghcr.io/v1/", "ghcr.io/acme", "HTTP://GHCR.io/acme/", "https://index.docker.io/v1/", "ghcr.io//acme", "/", "https:///", " ghcr.io\n", "[::1]:5000/a",
	} {
		f.Add(seed, "ghcr.io/acme/null")
		f.Add(seed, "docker.io/acme/null")
	}
	f.Fuzz(func(t *testing.T, name, repository string) {
		r, err := ociaddr.ParseRepository(repository)
		if err != nil {
			return
		}
		// The repository's own name is a key that matches the repository with the
		// highest possible specificity.
		own, ok := parseKey(r.String())
		if !ok || own.specificity(r) != firstSegment+strings.Count(r.Name, "/") {
			t.Errorf("%s for itself: %+v, specificity %d", r, own, own.specificity(r))
		}
		k, ok := parseKey(name)
		if !ok {
			return
		}
		got := k.specificity(r)
		below := k.specificity(ociaddr.Repository{Registry: r.Registry, Name: r.Name + "/below"})
		switch {
		case got > own.specificity(r):
			t.Errorf("%q is more specific for %s than its own name", name, r)
		case got != noMatch && k.host != r.Registry.Canonical():
			t.Errorf("%q matches another registry's %s", name, r)
		case got >= firstSegment && !strings.HasPrefix(r.Name+"/", k.path+"/"):
			t.Errorf("%q matches %s, which is not below it", name, r)
		case got > below:
			t.Errorf("%q: specificity %d for %s, %d below it", name, got, r, below)
		}
	})
}
