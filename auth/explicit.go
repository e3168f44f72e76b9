package auth

import (
	"fmt"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Login is a login that the user configured for this program or for OpenTofu: an
// oci_credentials block. It has a user name and a password, or an access token
// with or without a refresh token, or the name of a helper.
type Login struct {
	// Prefix is HOST or HOST/PATH, as written: the login is for the repositories
	// whose names begin with the parts of that path.
	Prefix string

	Username, Password Secret

	// AccessToken is sent as it is. RefreshToken takes its place when a registry
	// refuses it.
	AccessToken, RefreshToken Secret

	// Helper is the rest of the name docker-credential-... of a program on PATH.
	// It goes with a Prefix without a path, since helpers know hosts only.
	Helper string

	Origin string // "FILE:LINE", for messages
	// InCLIConfig tells that the block is in the CLI configuration, where OpenTofu
	// reads it, too.
	InCLIConfig bool
}

// Defaults say where logins come from that no [Login] is for: an
// oci_default_credentials block.
type Defaults struct {
	// Discover lets logins be taken from the login files of docker and its kin.
	// A block that does not mention it means true.
	Discover bool
	// Files are the login files to read in place of the usual ones, each of which
	// must be there. nil means the usual ones; none at all, no file.
	Files []string
	// Helper is asked for registries that nothing more specific is for.
	Helper string

	Origin string // "FILE:LINE", for messages
	// InCLIConfig tells that the block is in the CLI configuration, where OpenTofu
	// reads it, too.
	InCLIConfig bool
}

// Validate checks the login by OpenTofu's rules for oci_credentials, but that an
// access token needs no refresh token beside it. The error names the block and
// never holds a secret.
func (l Login) Validate() error {
	problem, help := l.problem()
	if problem == "" {
		return nil
	}
	return hint.New(fmt.Sprintf("the oci_credentials block %q%s %s", l.Prefix, at(l.Origin), problem), "%s", help)
}

// problem says what is wrong with the login, and what to do.
func (l Login) problem() (problem, help string) {
	host, path, hasPath := strings.Cut(l.Prefix, "/")
	var err error
	if hasPath {
		_, err = ociaddr.ParseRepository(l.Prefix)
	} else {
		_, err = ociaddr.ParseRegistry(host)
	}
	if err != nil {
		return fmt.Sprintf("has a label that is no registry or repository prefix: %v", err),
			"label the block HOST or HOST/PATH, such as ghcr.io or ghcr.io/acme, without https:// and without a slash at the end"
	}
	basic := !l.Username.IsZero() || !l.Password.IsZero()
	tokens := !l.AccessToken.IsZero() || !l.RefreshToken.IsZero()
	switch count(basic, tokens, l.Helper != "") {
	case 0:
		return "holds no credential", "set username and password, or access_token, or docker_credentials_helper"
	case 1:
	default:
		return "holds credentials of more than one kind",
			"set either username and password, or access_token with or without refresh_token, or docker_credentials_helper"
	}
	switch {
	case basic && (l.Username.IsZero() || l.Password.IsZero()):
		return "has only one of username and password", "set both, neither of them empty"
	case tokens && l.AccessToken.IsZero():
		return "has a refresh_token without an access_token",
			"set both; a refresh token alone can be given in " + variableIdentityToken
	case l.Helper != "" && !validHelper(l.Helper):
		return fmt.Sprintf("names the helper %q, which holds a path", l.Helper), helperHelp
	case l.Helper != "" && path != "":
		return "has a path and docker_credentials_helper", "leave the path out: a helper knows whole registries only"
	}
	return "", ""
}

func count(conditions ...bool) (n int) {
	for _, c := range conditions {
		if c {
			n++
		}
	}
	return n
}

// Validate checks the block by OpenTofu's rules for oci_default_credentials.
func (d *Defaults) Validate() error {
	block := "the oci_default_credentials block" + at(d.Origin)
	switch {
	case !d.Discover && d.Files != nil:
		return hint.New(block+" names docker_style_config_files and forbids discovery",
			"leave out one of docker_style_config_files and discover_ambient_credentials = false")
	case slices.Contains(d.Files, ""):
		return hint.New(block+" has an empty name among docker_style_config_files", "take it out")
	case d.Helper != "" && !validHelper(d.Helper):
		return hint.New(fmt.Sprintf("%s names the helper %q, which holds a path", block, d.Helper), "%s", helperHelp)
	}
	return nil
}

// CheckLogins validates the logins of one configuration: each by itself, and
// that no two have the same prefix.
func CheckLogins(logins []Login) error {
	first := map[string]Login{}
	for _, l := range logins {
		if err := l.Validate(); err != nil {
			return err
		}
		if other, ok := first[l.Prefix]; ok {
			return hint.New(fmt.Sprintf("there is a second oci_credentials block %q%s; the first is%s", l.Prefix, at(l.Origin), at(other.Origin)),
				"remove one of them")
		}
		first[l.Prefix] = l
	}
	return nil
}

const helperHelp = "put the program on PATH, and give what follows " + helperPrefix + " in its name"

// validHelper reports whether a helper's name is no way to a program elsewhere.
func validHelper(name string) bool { return name != "" && !strings.ContainsAny(name, `/\`) }

func at(origin string) string {
	if origin == "" {
		return ""
	}
	return " at " + origin
}

// login makes a source of a valid login.
func (l Login) login() *login {
	k, _ := parseKey(l.Prefix)
	block := fmt.Sprintf("oci_credentials %q%s", l.Prefix, at(l.Origin))
	if l.Helper != "" {
		out := helperLogin(k, l.Helper, block, inBlock)
		out.miss = l.openTofuMiss()
		return out
	}
	return &login{key: k, label: l.Prefix, source: "the block " + block, place: inBlock, miss: l.openTofuMiss(), cred: newCredential(auth.Credential{
		Username: l.Username.Reveal(), Password: l.Password.Reveal(),
		AccessToken: l.AccessToken.Reveal(), RefreshToken: l.RefreshToken.Reveal(),
	})}
}

// The variables that hold a login for one registry, or the repositories of it
// that begin with a path, where a file is too much to ask: in CI.
const (
	variableRegistry      = "OCIBRIDGE_REGISTRY" // HOST or HOST/PATH
	variableUsername      = "OCIBRIDGE_REGISTRY_USERNAME"
	variablePassword      = "OCIBRIDGE_REGISTRY_PASSWORD"
	variableToken         = "OCIBRIDGE_REGISTRY_TOKEN"          // an access token
	variableIdentityToken = "OCIBRIDGE_REGISTRY_IDENTITY_TOKEN" // a refresh token
)

// Variables returns the names of the variables that hold a login.
func Variables() []string {
	return []string{variableRegistry, variableUsername, variablePassword, variableToken, variableIdentityToken}
}

// VariableLogin returns the login in the environment, or nil where none of the
// variables is set. An empty one counts as not set, as CI systems leave a secret
// that a job may not see.
func (env Environment) VariableLogin() (*Login, error) {
	l := Login{
		Prefix:   env.getenv(variableRegistry),
		Username: NewSecret(env.getenv(variableUsername)), Password: NewSecret(env.getenv(variablePassword)),
		AccessToken: NewSecret(env.getenv(variableToken)), RefreshToken: NewSecret(env.getenv(variableIdentityToken)),
		Origin: variableRegistry,
	}
	used := env.usedVariables()
	if l.Prefix == "" && len(used) == 0 {
		return nil, nil
	}
	if err := checkVariables(l.Prefix, used); err != nil {
		return nil, err
	}
	return &l, nil
}

// usedVariables returns the variables with a part of a credential that are set.
func (env Environment) usedVariables() []string {
	return slices.DeleteFunc(Variables()[1:], func(name string) bool { return env.getenv(name) == "" })
}

// variableLogin makes a source of the login in the environment, nil for none.
func (env Environment) variableLogin() (*login, error) {
	l, err := env.VariableLogin()
	if err != nil || l == nil {
		return nil, err
	}
	out := l.login()
	out.place = inVariables
	out.source = fmt.Sprintf("the variables %s=%s, %s", variableRegistry, l.Prefix, strings.Join(env.usedVariables(), ", "))
	return out, nil
}

// checkVariables refuses a login in the environment that is incomplete, or that
// says two things at once. used are the variables with a part of a credential.
func checkVariables(prefix string, used []string) error {
	has := func(name string) bool { return slices.Contains(used, name) }
	basic, tokens := has(variableUsername) || has(variablePassword), has(variableToken) || has(variableIdentityToken)
	switch {
	case prefix == "":
		return hint.New(fmt.Sprintf("%s is set and %s is not", strings.Join(used, ", "), variableRegistry),
			"say in %s which registry it is for, such as ghcr.io, or ghcr.io/acme for the repositories that begin so", variableRegistry)
	case len(used) == 0:
		return hint.New(fmt.Sprintf("%s is %s and there is no credential for it", variableRegistry, prefix),
			"set %s and %s, or %s, or %s", variableUsername, variablePassword, variableToken, variableIdentityToken)
	case basic && tokens:
		return hint.New(fmt.Sprintf("%s say two things at once", strings.Join(used, ", ")),
			"set either %s and %s, or %s and %s", variableUsername, variablePassword, variableToken, variableIdentityToken)
	case basic && len(used) == 1:
		missing := variablePassword
		if has(missing) {
			missing = variableUsername
		}
		return hint.New(fmt.Sprintf("%s is set and %s is not", used[0], missing), "set both; an empty one counts as not set")
	}
	var err error
	if strings.Contains(prefix, "/") {
		_, err = ociaddr.ParseRepository(prefix)
	} else {
		_, err = ociaddr.ParseRegistry(prefix)
	}
	if err != nil {
		return hint.Wrap(fmt.Errorf("%s: %w", variableRegistry, err), "give HOST or HOST/PATH, such as ghcr.io or ghcr.io/acme")
	}
	return nil
}
