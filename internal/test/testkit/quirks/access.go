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

// Access describes a registry's logins and their rights.
type Access struct {
	// User and Password are a login with all rights. If User is "", the registry requires no login.
	User, Password string
	// Tokens makes the registry accept only bearer tokens from its token server at /token. The token server
	// requires the login. A token is valid for certain actions in certain repositories.
	Tokens bool
	// RefreshOnly makes the token server accept only POST requests with a refresh token. The refresh token is
	// Password.
	RefreshOnly bool
	// Terse omits the lifetime of a token from the token server's responses.
	Terse bool
	// DeniedForAbsent makes the token server refuse a token for a repository that does not exist. Tokens with
	// the right to push are not refused.
	DeniedForAbsent bool
	// ReadOnly means that the login may only pull. With DeniedForAbsent, the token server refuses a request for
	// a token to push. Without DeniedForAbsent, it issues a token that lacks the right to push.
	ReadOnly bool
	// Lacks lists actions that the login may not perform. Its tokens do not include them.
	Lacks []string
	// Harbor makes the registry follow Harbor's rules. A login has certain rights in each project, and the
	// registry accepts both passwords and tokens. The login User is the first [Robot].
	Harbor bool
	// Robots are further logins of a Harbor. Public lists the projects that every client may read. For these
	// projects, the token server issues tokens without a login.
	Robots []Robot
	Public []string
	// PingDenied makes the registry return 403 for all requests for /v2/, even with a valid login.
	PingDenied bool
}

// DockerConfig returns the content of the config.json that docker login writes for a registry.
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

// token handles requests to the token server. Like all handlers of [Registry.ServeHTTP], it reports whether it
// has sent a response.
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

// give issues a token with the given scopes, and sends the token as the response.
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

// lacks reports whether the login may not perform an action.
func (r request) lacks(action string) bool {
	return r.s.ReadOnly && action != "pull" || slices.Contains(r.s.Lacks, action)
}

// knowsLogin reports whether the token server accepts the credential of a request.
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

// cutScope splits a scope of the form repository:NAME:ACTIONS. ok is false for any other scope.
func cutScope(scope string) (name, actions string, ok bool) {
	rest, ok := strings.CutPrefix(scope, "repository:")
	i := strings.LastIndexByte(rest, ':')
	if !ok || i < 0 {
		return "", "", false
	}
	return rest[:i], rest[i+1:], true
}

// authorize refuses a request if the credential of the request does not have the necessary right.
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

// bearer returns the Bearer challenge, which names the token server and the scope that the request needs.
func (r request) bearer() string {
	challenge := fmt.Sprintf(`Bearer realm="https://%s/token",service=%q`, r.Host, r.Host)
	if scope := r.scope(); scope != "" {
		challenge += fmt.Sprintf(",scope=%q", scope)
	}
	return challenge
}

// action returns the action that a login must be allowed to perform for this request.
func (r request) action() string {
	switch {
	case r.reads():
		return "pull"
	case r.Method == http.MethodDelete:
		return "delete"
	}
	return "push"
}

// scope returns the scope that a request's token must include.
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

// scopes returns the scopes of a request's token. The bool reports whether the token server issued the token.
func (q *Registry) scopes(r request) (string, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	given, ok := q.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	return given, ok
}
