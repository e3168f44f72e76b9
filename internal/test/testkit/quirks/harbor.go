package quirks

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Robot is a robot account of Harbor. A project robot is named robot$PROJECT+NAME, and a system robot
// robot$NAME.
type Robot struct {
	User, Password string
	// Rights maps a project to the actions (pull, push, delete) that the robot may perform there; "*" means every
	// project.
	Rights map[string][]string
	// Catalog lets a system robot list repositories.
	Catalog bool
}

// project returns the project of a project robot, or "" for a system robot.
func (b Robot) project() string {
	name, _ := strings.CutPrefix(b.User, "robot$")
	project, _, ok := strings.Cut(name, "+")
	if !ok {
		return ""
	}
	return project
}

// robot returns the robot with the given name and password. The bool reports whether there is such a robot.
func (a Access) robot(user, password string) (Robot, bool) {
	for _, b := range a.robots() {
		if b.User == user && b.Password == password {
			return b, true
		}
	}
	return Robot{}, false
}

// harborToken returns a JSON Web Token like Harbor's tokens. The subject of the token is the robot that
// requests it. If the password is wrong, the token has no subject.
func (r request) harborToken(signature string) string {
	user, password, _ := r.BasicAuth()
	claims := `{"iss":"harbor-token-issuer"}`
	if _, known := r.s.robot(user, password); known {
		claims = fmt.Sprintf(`{"iss":"harbor-token-issuer","sub":%q}`, user)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"typ":"JWT"}`)) + "." + encode([]byte(claims)) + "." + signature
}

// robots returns all logins. The first login is [Access.User]. It has all rights except [Access.Lacks], or
// only the right to pull with [Access.ReadOnly]. A project robot has these rights in its project. Any other
// user has these rights in all projects, as an administrator has.
func (a Access) robots() []Robot {
	first := Robot{User: a.User, Password: a.Password}
	actions := []string{"pull", "push", "delete"}
	if a.ReadOnly {
		actions = actions[:1]
	}
	actions = slices.DeleteFunc(actions, func(action string) bool { return slices.Contains(a.Lacks, action) })
	first.Rights = map[string][]string{cmp.Or(first.project(), "*"): actions}
	first.Catalog = first.project() == ""
	return append([]Robot{first}, a.Robots...)
}

// allows reports whether a robot may perform an action in a project. Anyone may read a public project.
func (a Access) allows(b Robot, project, action string) bool {
	return action == "pull" && slices.Contains(a.Public, project) || slices.Contains(b.Rights[project], action) || slices.Contains(b.Rights["*"], action)
}

// grant returns the scopes of the token for a robot that requests the given scopes. For a project robot, the
// first existing project in the requested scopes decides. If this is not the robot's own project, the token
// has none of the robot's rights.
func (q *Registry) grant(s Settings, b Robot, scopes []string) []string {
	first := ""
	var out []string
	for _, scope := range scopes {
		name, list, named := cutScope(scope)
		project := projectOf(name)
		if !named || !q.exists(project) {
			continue
		}
		if first == "" {
			first = project
		}
		if own := b.project(); own != "" && first != own {
			b.Rights = nil
		}
		given := slices.DeleteFunc(strings.Split(list, ","), func(action string) bool { return !s.allows(b, project, action) })
		out = append(out, "repository:"+name+":"+strings.Join(given, ","))
	}
	return out
}

// harborMay reports whether the credential of a request allows an action in a project. A token for one
// repository is valid for the whole project.
func (q *Registry) harborMay(r request, project, action string) bool {
	if user, password, basic := r.BasicAuth(); basic {
		b, _ := r.s.robot(user, password)
		return r.s.allows(b, project, action)
	}
	given, _ := q.scopes(r)
	for scope := range strings.FieldsSeq(given) {
		name, actions, _ := cutScope(scope)
		if projectOf(name) == project && slices.Contains(strings.Split(actions, ","), action) {
			return true
		}
	}
	return false
}

// knownToHarbor reports whether the request has the password of a robot, or a token that the token server
// issued.
func (q *Registry) knownToHarbor(r request) bool {
	if user, password, basic := r.BasicAuth(); basic {
		_, ok := r.s.robot(user, password)
		return ok
	}
	_, ok := q.scopes(r)
	return ok
}

// authorizeHarbor refuses requests as Harbor does.
func (q *Registry) authorizeHarbor(w http.ResponseWriter, r request) bool {
	credential := r.Header.Get("Authorization") != ""
	from := r.URL.Query().Get("from")
	wants := func(name, action string) string {
		return fmt.Sprintf("unauthorized to access repository: %s, action: %s", name, action)
	}
	var message string
	switch project := projectOf(r.name); {
	case r.URL.Path == "/v2/_catalog":
		if user, password, _ := r.BasicAuth(); credential {
			if b, _ := r.s.robot(user, password); b.Catalog {
				return false
			}
		}
		message, credential = "unauthorized to list catalog", true
	case r.name == "":
		if q.knownToHarbor(r) {
			return false
		}
		message = "unauthorized"
	case !credential && r.reads():
		message = "authorize header needed to send HEAD to repository"
	case !q.exists(project):
		if !r.s.Projects {
			return false
		}
		w.Header().Set("Www-Authenticate", "")
		refuseHarbor(w, http.StatusUnauthorized, "UNAUTHORIZED", "project "+project+" not found")
		return true
	case !q.harborMay(r, project, r.action()):
		message = wants(r.name, r.action())
	case from != "" && r.Method == http.MethodPost && !q.harborMay(r, projectOf(from), "pull"):
		message = wants(from, "pull")
	default:
		return false
	}
	challenge := `Basic realm="harbor"`
	if !credential {
		challenge = r.bearer()
	}
	w.Header().Set("Www-Authenticate", challenge)
	refuseHarbor(w, http.StatusUnauthorized, "UNAUTHORIZED", message)
	return true
}

// refuseHarbor refuses a request with an error that contains the message twice, as most errors of Harbor do.
func refuseHarbor(w http.ResponseWriter, status int, code, message string) {
	refuse(w, status, code, message+": "+message)
}

// projectOf returns the first part of a repository's name.
func projectOf(name string) string {
	project, _, _ := strings.Cut(name, "/")
	return project
}
