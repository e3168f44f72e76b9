package login

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// Candidate is a source of logins that was examined for a repository.
type Candidate struct {
	Source string // a description that names the file and key, the block and line, or the variables
	Chosen bool   // whether requests use this source: it provided the credential, or failed to provide it
	Reason string // why the source was chosen or rejected
	Err    error  // the source's error, with a hint; nil if the source has no fault
	// Login reports whether the source has a login for the repository. Missed says why
	// OpenTofu does not find that login. "" means that OpenTofu finds it.
	Login  bool
	Missed string
	// LostDollar reports whether the user name of the chosen login looks like the name of a
	// Harbor robot, robot$NAME, from which a shell has removed $NAME.
	LostDollar bool
}

// Considered returns every source that was examined for the repository. The sources
// with a login for the repository come first, in order of preference. Sources without a
// login, or with logins for other repositories, follow. At most one source is chosen.
// Considered runs the helpers in order until one of them returns a credential or fails, as a
// request does when a registry asks for a credential. The result contains no secret.
func (s *Logins) Considered(ctx context.Context, r ociaddr.Repository) []Candidate {
	a, err := s.For(r)
	if err != nil {
		return []Candidate{{Source: "the configured logins", Reason: err.Error(), Err: err}}
	}
	chosen, cred, err := a.choose(ctx)
	var out []Candidate
	passed := false // whether the loop has passed the chosen login
	for _, l := range a.logins {
		considered := Candidate{Source: l.String(), Chosen: l == chosen, Reason: reason(l, chosen, passed, err, r), Login: true, Missed: l.openTofuMiss(r)}
		if l == chosen {
			considered.Err = err
			// A shell reads "robot$ci" in double quotes as robot, and "robot$acme+ci" as robot+ci.
			user := cred.reveal().Username
			considered.LostDollar = user == "robot" || strings.HasPrefix(user, "robot+")
		}
		out = append(out, considered)
		passed = passed || l == chosen
	}
	all, _ := s.all() // cannot fail, because For has succeeded
	return append(out, all.others(r)...)
}

// Effective describes the login that requests to the repository or registry use, such as "the
// login for ghcr.io in /home/u/.docker/config.json". It runs helpers to find out whether they
// have a login. It returns "" if there is no login.
func (s *Logins) Effective(ctx context.Context, r ociaddr.Repository) string {
	for _, candidate := range s.Considered(ctx, r) {
		if candidate.Chosen {
			return candidate.Source
		}
	}
	return ""
}

// reason says why the login l, which matches the repository, was chosen or not. err is the error
// of the chosen login. passed says whether l comes after the login chosen in the order of
// preference.
func reason(l, chosen *source, passed bool, err error, r ociaddr.Repository) string {
	what := "it is for " + l.key.String()
	if l.specificity(r) == hostByURL {
		what = fmt.Sprintf("it is for %s, as docker reads a URL with a path", l.key.host)
	}
	switch {
	case l == chosen && err != nil:
		return fmt.Sprintf("%s, and fails: %v", what, err)
	case l == chosen:
		return what
	case !passed:
		return fmt.Sprintf("%s, but the helper knows nothing of %s", what, r.Registry)
	case l.specificity(r) < chosen.specificity(r):
		return what + ", which is less specific"
	}
	return what + ", but an earlier login is equally specific"
}

// others returns the sources without a login for the repository.
func (s sources) others(r ociaddr.Repository) []Candidate {
	var out []Candidate
	for _, l := range s {
		switch matches := l.specificity(r) != noMatch; {
		case matches && l.absent != "":
			out = append(out, Candidate{Source: l.String(), Reason: l.absent, Err: l.err})
		case !matches && l.absent == "":
			out = append(out, Candidate{Source: l.String(), Reason: fmt.Sprintf("it is for %s", l.key)})
		}
	}
	return out
}

// openTofuMiss says why OpenTofu does not find the login for the repository, or returns "" if
// OpenTofu finds it. OpenTofu reads fewer sources, and parses their entries more strictly. The
// rules are in OpenTofu's package internal/command/cliconfig/ociauthconfig.
func (l *source) openTofuMiss(r ociaddr.Repository) string {
	switch {
	case l.miss != "":
		return l.miss
	case l.kind == inFile && l.written != "" && !matchesAsWritten(l.written, r):
		return "OpenTofu compares registries letter by letter, and " + l.written + " is not " + string(r.Registry)
	}
	return ""
}

// matchesAsWritten reports whether the text of a key in a login file matches the repository. Another
// letter case, a scheme, or another name of Docker Hub does not match.
func matchesAsWritten(written string, r ociaddr.Repository) bool {
	host, path, _ := strings.Cut(written, "/")
	return host == string(r.Registry) && (path == "" || r.Name == path || strings.HasPrefix(r.Name, path+"/"))
}

// openTofuMiss says why OpenTofu does not read the login file, or returns "" if it does.
func (f loginFile) openTofuMiss() string {
	switch {
	case f.openTofu:
		return ""
	case f.text != "":
		return "OpenTofu does not read the variable " + f.name
	case f.named:
		return "OpenTofu does not know the variable REGISTRY_AUTH_FILE"
	}
	return "OpenTofu does not look at " + f.name
}

// blockMiss says why OpenTofu does not read a block, or returns "" if it does.
func blockMiss(inCLIConfig bool) string {
	if inCLIConfig {
		return ""
	}
	return "OpenTofu does not read ocibridge.hcl"
}

// openTofuParses reports whether OpenTofu can parse a login file. If OpenTofu cannot
// parse one of the usual login files, it ignores all of them.
func openTofuParses(src []byte) bool {
	var f struct {
		Auths map[string]*struct {
			Auth []byte `json:"auth"`
		} `json:"auths"`
		CredHelpers map[string]string `json:"credHelpers"`
		CredsStore  string            `json:"credsStore"`
	}
	return json.Unmarshal(src, &f) == nil
}
