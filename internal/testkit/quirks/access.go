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

// Access decides who may do what.
type Access struct {
	// User and Password are the login with all rights; without a user, everyone has them.
	User, Password string
	// Tokens makes the registry accept only tokens of a token server at /token. A token is for a repository and
	// actions. The server accepts the login, or a refresh token as password.
	Tokens bool
	// RefreshOnly makes the token server accept only refresh tokens, by POST.
	RefreshOnly bool
	// Terse omits the lifetime and the issue time of tokens from answers.
	Terse bool
	// DeniedForAbsent refuses tokens for repositories that do not exist.
	DeniedForAbsent bool
	// ReadOnly keeps the login from pushing: with DeniedForAbsent, it gets no token for that, else one without
	// the right.
	ReadOnly bool
	// Lacks are actions that the login may not do: push or delete. Its tokens omit them.
	Lacks []string
	// Harbor decides as Harbor does: a credential has rights by project, and the registry accepts passwords as
	// well as tokens. The first login, User, is a [Robot].
	Harbor bool
	// Robots are more logins of Harbor. Anyone may read the projects in Public, with a token that the token
	// server gives without a login.
	Robots []Robot
	Public []string
	// PingDenied answers /v2/ with 403, whatever the login.
	PingDenied bool
}

// DockerConfig returns the login file that docker login writes for a registry.
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
		panic(err) // cannot happen: maps of strings
	}
	return string(data)
}

// token answers requests to the token server.
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

// lacks reports whether the login may not do an action.
func (r request) lacks(action string) bool {
	return r.s.ReadOnly && action != "pull" || slices.Contains(r.s.Lacks, action)
}

// knowsLogin reports whether a request for a token has the login.
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

// cutScope splits repository:NAME:ACTIONS.
func cutScope(scope string) (name, actions string, ok bool) {
	rest, ok := strings.CutPrefix(scope, "repository:")
	i := strings.LastIndexByte(rest, ':')
	if !ok || i < 0 {
		return "", "", false
	}
	return rest[:i], rest[i+1:], true
}

// authorize refuses requests without the right.
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

// bearer returns the challenge that names the token server.
func (r request) bearer() string {
	challenge := fmt.Sprintf(`Bearer realm="https://%s/token",service=%q`, r.Host, r.Host)
	if scope := r.scope(); scope != "" {
		challenge += fmt.Sprintf(",scope=%q", scope)
	}
	return challenge
}

// action is the right that a request needs.
func (r request) action() string {
	switch {
	case r.reads():
		return "pull"
	case r.Method == http.MethodDelete:
		return "delete"
	}
	return "push"
}

// scope is the scope that a request's token must have.
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

// scopes returns the scopes of a request's token.
func (q *Registry) scopes(r request) (string, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	given, ok := q.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	return given, ok
}
