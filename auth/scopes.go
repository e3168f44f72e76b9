package auth

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry/remote/auth"
)

var repositoryPath = regexp.MustCompile(`^/v2/(.+)/(?:tags|manifests|blobs|referrers)/`)

// ownScopes removes the scopes of other repositories from the context of a request. oras-go
// asks for one token with all scopes of the context, and a copy reads its source in the
// context that has the destination's scope. Harbor judges such a token by the project of its
// first scope: a project robot gets no rights if that is another project.
//
// A mount needs a token for two repositories. A request whose path names no repository
// keeps all scopes.
func ownScopes(req *http.Request) *http.Request {
	m := repositoryPath.FindStringSubmatch(req.URL.Path)
	if m == nil || isUpload(req) { // an upload may go on under another name
		return req
	}
	own := []string{"repository:" + m[1]}
	if from := req.URL.Query().Get("from"); from != "" && req.Method == http.MethodPost {
		own = append(own, "repository:"+from)
	}
	host := cmp.Or(req.Host, req.URL.Host)
	scopes := auth.GetAllScopesForHost(req.Context(), host)
	kept := slices.DeleteFunc(slices.Clone(scopes), func(scope string) bool { return !slices.Contains(own, resource(scope)) })
	if len(kept) == len(scopes) {
		return req
	}
	return req.WithContext(auth.WithScopesForHost(auth.WithScopes(req.Context()), host, kept...))
}

// scopeNarrower takes from challenges what a request does not need: some registries
// always ask for the right to push, or for that to list all repositories, and
// oras-go would ask the token server for all of it.
//
// A challenge to a request that came with a token stays as it is: that token was
// not enough.
type scopeNarrower struct{ next http.RoundTripper }

var bearerScope = regexp.MustCompile(`(?i)^(\s*bearer\s(?:.*,)?\s*scope=")([^"]+)(".*)$`)

// RoundTrip implements [http.RoundTripper].
func (t scopeNarrower) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || req.Header.Get("Authorization") != "" {
		return resp, err
	}
	needed := auth.GetAllScopesForHost(req.Context(), cmp.Or(req.Host, req.URL.Host))
	if m := bearerScope.FindStringSubmatch(resp.Header.Get("Www-Authenticate")); m != nil && len(needed) > 0 {
		reads := req.Method == http.MethodGet || req.Method == http.MethodHead
		resp.Header.Set("Www-Authenticate", m[1]+strings.Join(narrow(strings.Fields(m[2]), needed, reads), " ")+m[3])
	}
	return resp, nil
}

// narrow returns what is asked for of what a request needs: no other resources, and
// to read no other actions. What registries want for a write differs too much to
// know better. Where one asks for something else altogether, that is it.
func narrow(asked, needed []string, reads bool) []string {
	resources := map[string]bool{}
	for _, scope := range needed {
		resources[resource(scope)] = true
	}
	var kept []string
	for _, scope := range asked {
		if resources[resource(scope)] {
			kept = append(kept, scope)
		}
	}
	kept = auth.CleanScopes(kept)
	covers := slices.Equal(auth.CleanScopes(slices.Concat(kept, needed)), kept)
	switch {
	case !covers:
		return asked
	case reads:
		return needed
	}
	return kept
}

// resource returns TYPE:NAME of TYPE:NAME:ACTIONS.
func resource(scope string) string { return scope[:max(0, strings.LastIndexByte(scope, ':'))] }
