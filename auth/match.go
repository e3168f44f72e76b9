package auth

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// key is what a login is filed under: a registry, or the repositories of it
// that begin with a path.
type key struct {
	host string // canonical; "" for every registry
	path string // without slashes at its ends; "" for the whole registry
	url  bool   // it was written with a scheme
}

// String says in words what the key is for.
func (k key) String() string {
	switch {
	case k.host == "":
		return "every registry"
	case k.path == "":
		return k.host
	}
	return k.host + "/" + k.path
}

// hub is Docker Hub, and hubKey the key that docker files its login under.
const (
	hub    = "docker.io"
	hubKey = "https://index.docker.io/v1/"
)

// canonicalHost returns the one name under which a registry is compared: lower
// case, and docker.io for every name of Docker Hub.
func canonicalHost(host string) string {
	host = strings.ToLower(host)
	switch host {
	case "index.docker.io", "registry-1.docker.io":
		return hub
	}
	return host
}

// parseKey reads a key of "auths" or "credHelpers": HOST, HOST/PREFIX as
// containers-auth.json(5) has it, or a URL as docker wrote it, whose /v1/ or /v2/
// is the registry's API and no prefix. A key without a host is none.
func parseKey(s string) (key, bool) {
	rest, isURL := cutScheme(strings.TrimSpace(s))
	host, path, _ := strings.Cut(rest, "/")
	if path == "v1/" || path == "v2/" || isURL && (path == "v1" || path == "v2") {
		path = ""
	}
	k := key{host: canonicalHost(host), path: strings.Trim(path, "/"), url: isURL}
	return k, k.host != ""
}

func cutScheme(s string) (rest string, ok bool) {
	for _, scheme := range []string{"https://", "http://"} {
		if len(s) >= len(scheme) && strings.EqualFold(s[:len(scheme)], scheme) {
			return s[len(scheme):], true
		}
	}
	return s, false
}

// specificity of a key for a repository.
const (
	noMatch      = iota
	everyHost    // a helper for all registries
	hostByURL    // a URL with another path, which docker reads as its host
	wholeHost    // the registry
	firstSegment // one segment of the name; each further one counts one more
)

// specificity says how closely the key names the repository, 0 for not at all.
func (k key) specificity(r ociaddr.Repository) int {
	switch {
	case k.host == "":
		return everyHost
	case k.host != canonicalHost(string(r.Registry)):
		return noMatch
	case k.path == "":
		return wholeHost
	case r.Name == k.path || strings.HasPrefix(r.Name, k.path+"/"):
		return firstSegment + strings.Count(k.path, "/")
	case k.url:
		return hostByURL
	}
	return noMatch
}

// rank returns the logins that match the repository, the most specific first.
// Equals keep the order of all, which is that of the files.
func rank(all []*login, r ociaddr.Repository) []*login {
	var out []*login
	for _, l := range all {
		if l.specificity(r) != noMatch {
			out = append(out, l)
		}
	}
	slices.SortStableFunc(out, func(a, b *login) int {
		return cmp.Compare(b.specificity(r), a.specificity(r))
	})
	return out
}
