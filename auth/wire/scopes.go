package wire

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry/remote/auth"
)

var repositoryPath = regexp.MustCompile(`^/v2/(.+)/(?:tags|manifests|blobs|referrers)/`)

// ownScopes returns the request without the scopes of other repositories in its context. oras-go
// requests one token with all scopes of the context. When oras-go copies between two
// repositories, the context also has the scope of the destination. Harbor grants permissions by
// the project of the first scope in the token request. If a robot account belongs to another
// project, it gets no permissions.
//
// The request for a mount keeps the scopes of two repositories. A request whose path
// contains no repository keeps all scopes.
func ownScopes(req *http.Request) *http.Request {
	m := repositoryPath.FindStringSubmatch(req.URL.Path)
	if m == nil || isUpload(req) { // a registry may continue an upload under another repository name
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

// narrowScopes removes the scopes that the request does not need from the challenge, because
// oras-go would request them all. Some registries always ask for push access, or for access to
// the catalog. If the request already had a token, the narrow token was not sufficient, and
// narrowScopes does not change the challenge.
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

// narrow returns the scopes in asked that a request needs. It drops other resources, and for a
// read also other actions. For a write, it keeps all actions on the needed resources, because
// registries differ in the actions that they require. If asked does not cover needed, it returns
// asked.
func narrow(asked, needed []string, reads bool) []string {
	kept := auth.CleanScopes(slices.DeleteFunc(slices.Clone(asked), func(scope string) bool {
		return !slices.ContainsFunc(needed, func(n string) bool { return resource(n) == resource(scope) })
	}))
	switch covers := slices.Equal(auth.CleanScopes(slices.Concat(kept, needed)), kept); {
	case !covers:
		return asked
	case reads:
		return needed
	}
	return kept
}

// resource returns the part TYPE:NAME of a scope TYPE:NAME:ACTIONS.
func resource(scope string) string { return scope[:max(0, strings.LastIndexByte(scope, ':'))] }
