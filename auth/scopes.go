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

// ownScopes removes the scopes of other repositories from the context of a request.
// oras-go requests one token with all scopes of the context, and a copy reads its
// source in a context that also has the destination's scope. Harbor judges such a
// token by the project of its first scope: a robot account gets no permissions if that
// is another project.
//
// A mount needs a token for two repositories. If the path of a request contains no
// repository, the request keeps all scopes.
func ownScopes(req *http.Request) *http.Request {
	m := repositoryPath.FindStringSubmatch(req.URL.Path)
	if m == nil || isUpload(req) { // an upload may continue under another name
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

var bearerScope = regexp.MustCompile(`(?i)^(\s*bearer\s(?:.*,)?\s*scope=")([^"]+)(".*)$`)

// narrowScopes removes from a challenge the scopes that the request does not need.
// Some registries always ask for push access, or for access to the catalog, and
// oras-go would request all of these from the token server.
//
// If the request already had a token, its challenge stays unchanged: that token was
// not sufficient.
func narrowScopes(req *http.Request, resp *http.Response) error {
	if resp.StatusCode != http.StatusUnauthorized || req.Header.Get("Authorization") != "" {
		return nil
	}
	needed := auth.GetAllScopesForHost(req.Context(), cmp.Or(req.Host, req.URL.Host))
	if m := bearerScope.FindStringSubmatch(resp.Header.Get("Www-Authenticate")); m != nil && len(needed) > 0 {
		reads := req.Method == http.MethodGet || req.Method == http.MethodHead
		resp.Header.Set("Www-Authenticate", m[1]+strings.Join(narrow(strings.Fields(m[2]), needed, reads), " ")+m[3])
	}
	return nil
}

// narrow returns the scopes in asked that a request needs. It drops other resources
// and, for a read, other actions. For a write it keeps all actions on the needed
// resources, because registries differ in the actions that they require. If asked does
// not cover the needed scopes, narrow returns it unchanged.
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

// resource returns the TYPE:NAME of a scope TYPE:NAME:ACTIONS.
func resource(scope string) string { return scope[:max(0, strings.LastIndexByte(scope, ':'))] }
