package quirks

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Access is who may do what.
type Access struct {
	// User and Password are the login that may do everything; without a user,
	// everybody may.
	User, Password string
	// Tokens lets the registry take tokens of a token server alone, which is at
	// /token: for a repository and actions, for the login or a refresh token that
	// is the password.
	Tokens bool
	// RefreshOnly lets the token server take refresh tokens alone, by POST.
	RefreshOnly bool
	// Terse leaves out of answers how long a token lasts and when it was issued.
	Terse bool
	// DeniedForAbsent refuses tokens to read what is not there.
	DeniedForAbsent bool
	// ReadOnly keeps the login from pushing: no token is given for it where
	// DeniedForAbsent is set, else one that lacks the right.
	ReadOnly bool
	// Lacks are actions that the login has no right to, of push and delete. Tokens come
	// without them.
	Lacks []string
	// Harbor judges requests as Harbor does: a credential has its rights by project, and
	// passwords are taken as well as tokens. The first login, User, is a [Robot].
	Harbor bool
	// Robots are more logins of Harbor. Everybody may read the projects in Public, with a
	// token that the token server gives without a login.
	Robots []Robot
	Public []string
	// PingDenied answers /v2/ with 403, whatever the login.
	PingDenied bool
}

// DockerConfig returns the login as docker login leaves it for a registry.
func (a Access) DockerConfig(registry string) string {
	entry := map[string]string{}
	switch {
	case a.User == "":
		return "{}"
	case a.RefreshOnly:
		entry["auth"] = base64.StdEncoding.EncodeToString([]byte(a.User + ":"))
		entry["identitytoken"] = a.Password
	default:
		entry["auth"] = base64.StdEncoding.EncodeToString([]byte(a.User + ":" + a.Password))
	}
	if registry == "docker.io" {
		registry = "https://index.docker.io/v1/"
	}
	data, err := json.Marshal(map[string]any{"auths": map[string]any{registry: entry}})
	if err != nil {
		panic(err) // maps of strings
	}
	return string(data)
}

// token answers for the token server.
func (q *Registry) token(w http.ResponseWriter, r request) bool {
	if r.URL.Path != "/token" {
		return false
	}
	if err := r.ParseForm(); err != nil || !r.knowsLogin() {
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
		return true
	}
	var scopes []string
	for _, s := range r.Form["scope"] {
		scopes = append(scopes, strings.Fields(s)...)
	}
	if r.s.Harbor {
		user, password, _ := r.BasicAuth()
		b, _ := r.s.robot(user, password)
		q.give(w, r, q.grant(r.s, b, scopes))
		return true
	}
	for i, scope := range scopes {
		name, list, named := cutScope(scope)
		if !named {
			continue
		}
		actions := strings.Split(list, ",")
		given := slices.DeleteFunc(slices.Clone(actions), r.lacks)
		if r.s.DeniedForAbsent && len(given) < len(actions) {
			refuse(w, http.StatusForbidden, "DENIED", "permission_denied: The token provided does not match expected scopes.")
			return true
		}
		scopes[i] = "repository:" + name + ":" + strings.Join(given, ",")
		of := r
		of.name = name
		if _, there := q.tagsOf(of); r.s.DeniedForAbsent && !there && !slices.Contains(actions, "push") {
			refuse(w, http.StatusForbidden, "DENIED", "requested access to the resource is denied")
			return true
		}
	}
	q.give(w, r, scopes)
	return true
}

// give answers with a token for scopes.
func (q *Registry) give(w http.ResponseWriter, r request, scopes []string) {
	token := rand.Text()
	if r.s.Harbor {
		token = r.harborToken(token)
	}
	q.mu.Lock()
	q.tokens[token] = strings.Join(scopes, " ")
	q.mu.Unlock()
	answer := map[string]any{"token": token, "access_token": token}
	if !r.s.Terse {
		answer["expires_in"] = 300
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer)
}

// lacks reports whether the login has no right to an action.
func (r request) lacks(action string) bool {
	return r.s.ReadOnly && action != "pull" || slices.Contains(r.s.Lacks, action)
}

// knowsLogin reports whether a request for a token is by the login.
func (r request) knowsLogin() bool {
	if r.s.RefreshOnly {
		return r.Method == http.MethodPost && r.Form.Get("grant_type") == "refresh_token" && r.Form.Get("refresh_token") == r.s.Password
	}
	user, password, _ := r.BasicAuth()
	if r.s.Harbor {
		// A request with a wrong password gets the token that anonymous requests get.
		_, known := r.s.robot(user, password)
		return known || r.Form.Has("scope")
	}
	return user == r.s.User && password == r.s.Password
}

// cutScope parts repository:NAME:ACTIONS.
func cutScope(scope string) (name, actions string, ok bool) {
	rest, ok := strings.CutPrefix(scope, "repository:")
	i := strings.LastIndexByte(rest, ':')
	if !ok || i < 0 {
		return "", "", false
	}
	return rest[:i], rest[i+1:], true
}

// authorize refuses who may not.
func (q *Registry) authorize(w http.ResponseWriter, r request) bool {
	if r.URL.Path == "/v2/" && r.s.PingDenied {
		refuse(w, http.StatusForbidden, "DENIED", "forbidden")
		return true
	}
	if r.s.User == "" {
		return false
	}
	if r.s.Harbor {
		return q.authorizeHarbor(w, r)
	}
	if q.may(r) {
		return false
	}
	challenge := `Basic realm="registry"`
	if r.s.Tokens {
		challenge = r.bearer()
	}
	if r.lacks(r.action()) {
		challenge += `,error="insufficient_scope"`
	}
	w.Header().Set("Www-Authenticate", challenge)
	refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
	return true
}

// bearer returns the challenge that leads to the token server.
func (r request) bearer() string {
	challenge := fmt.Sprintf(`Bearer realm="https://%s/token",service=%q`, r.Host, r.Host)
	if scope := r.scope(); scope != "" {
		challenge += fmt.Sprintf(",scope=%q", scope)
	}
	return challenge
}

// action is what a request needs the right to.
func (r request) action() string {
	switch {
	case r.reads():
		return "pull"
	case r.Method == http.MethodDelete:
		return "delete"
	}
	return "push"
}

// scope is what a token must be for.
func (r request) scope() string {
	switch {
	case r.URL.Path == "/v2/_catalog":
		return "registry:catalog:*"
	case r.name == "":
		return ""
	case r.action() == "push":
		return "repository:" + r.name + ":pull,push"
	}
	return "repository:" + r.name + ":" + r.action()
}

func (q *Registry) may(r request) bool {
	if !r.s.Tokens {
		user, password, _ := r.BasicAuth()
		return user == r.s.User && password == r.s.Password && !r.lacks(r.action())
	}
	given, ok := q.scopes(r)
	name, wanted, named := cutScope(r.scope())
	if !named {
		return ok && (r.scope() == "" || slices.Contains(strings.Fields(given), r.scope()))
	}
	for scope := range strings.FieldsSeq(given) {
		n, actions, _ := cutScope(scope)
		lacks := func(a string) bool { return !slices.Contains(strings.Split(actions, ","), a) }
		if n == name && !slices.ContainsFunc(strings.Split(wanted, ","), lacks) {
			return true
		}
	}
	return false
}

// scopes returns the scopes of the token that a request has.
func (q *Registry) scopes(r request) (string, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	given, ok := q.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	return given, ok
}
