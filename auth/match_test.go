package auth

import (
	"slices"
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
			t.Errorf("%q is no key", tt.key)
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
	var all []*login
	for _, name := range []string{"ghcr.io", "ghcr.io/acme", "other.io", "https://ghcr.io/elsewhere", "ghcr.io/acme/null", "https://ghcr.io", "ghcr.io/acme"} {
		k, _ := parseKey(name)
		all = append(all, &login{key: k, label: name})
	}
	all = slices.Insert(all, 1, &login{label: "every host"})
	var got []string
	for _, l := range rank(all, mustRepository(t, "ghcr.io/acme/null")) {
		got = append(got, l.label)
	}
	want := []string{"ghcr.io/acme/null", "ghcr.io/acme", "ghcr.io/acme", "ghcr.io", "https://ghcr.io", "https://ghcr.io/elsewhere", "every host"}
	if !slices.Equal(got, want) {
		t.Errorf("rank = %q, want %q", got, want)
	}
}
