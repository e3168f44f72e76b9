package login

import (
	"strings"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// key is the scope of a login: a whole registry, or the repositories of a registry
// under a path.
type key struct {
	host ociaddr.Registry // canonical; "" for every registry
	path string           // without leading and trailing slashes; "" for the whole registry
	url  bool             // the key was written with a scheme
}

// String describes the scope of the key.
func (k key) String() string {
	switch {
	case k.host == "":
		return "every registry"
	case k.path == "":
		return string(k.host)
	}
	return string(k.host) + "/" + k.path
}

// hubKey is the key under which docker stores the login for Docker Hub.
const hubKey = "https://index.docker.io/v1/"

// parseKey parses a key of "auths" or "credHelpers". A key is HOST, HOST/PREFIX as in
// containers-auth.json(5), or a URL as docker writes it. The path /v1/ or /v2/ is the
// path of the registry's API, not a prefix. parseKey returns false for a key without a
// host.
func parseKey(s string) (key, bool) {
	rest, isURL := cutScheme(strings.TrimSpace(s))
	host, path, _ := strings.Cut(rest, "/")
	if path == "v1/" || path == "v2/" || isURL && (path == "v1" || path == "v2") {
		path = ""
	}
	k := key{host: ociaddr.Registry(host).Canonical(), path: strings.Trim(path, "/"), url: isURL}
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

// The specificity of a key for a repository, in ascending order.
const (
	noMatch      = iota
	everyHost    // a login for all registries
	hostByURL    // the host of a URL whose path does not match, because docker ignores the path
	wholeHost    // the whole registry
	firstSegment // the first segment of the repository's name; each further segment adds one
)

// specificity returns the specificity of the key for the repository, or noMatch if the
// key does not match the repository.
func (k key) specificity(r ociaddr.Repository) int {
	switch {
	case k.host == "":
		return everyHost
	case k.host != r.Registry.Canonical():
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
