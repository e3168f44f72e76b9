package login

import (
	"fmt"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Login is a login that the user configured in an oci_credentials block, for this program
// or for OpenTofu. It has one of three credentials: a user name and a password, an access
// token with an optional refresh token, or the name of a helper.
type Login struct {
	// Prefix is HOST or HOST/PATH, as the user wrote it. The login applies to all
	// repositories of the host, or to its repositories under the path.
	Prefix string

	Username, Password Secret

	// AccessToken is sent as a bearer token. If the registry refuses it, RefreshToken
	// is used instead.
	AccessToken, RefreshToken Secret

	// Helper is the part of the helper program's name after docker-credential-. The program
	// is searched for on PATH. A login with a helper must have a Prefix without a path,
	// because helpers know hosts only.
	Helper string

	Origin      string // "FILE:LINE", for messages
	InCLIConfig bool   // the block is in the CLI configuration, where OpenTofu reads it too
}

// Defaults configures the logins for registries without an explicit [Login]. It comes from
// an oci_default_credentials block.
type Defaults struct {
	// Discover allows logins from the login files of docker and compatible tools. The
	// configuration's default is true.
	Discover bool
	// Files lists the login files that are read instead of the usual files. Each file must
	// exist. nil means the usual files, and an empty list means no files.
	Files       []string
	Helper      string // the helper for registries without a more specific login
	Origin      string // "FILE:LINE", for messages
	InCLIConfig bool   // the block is in the CLI configuration, where OpenTofu reads it too
}

// Validate checks the login by OpenTofu's rules for oci_credentials. Unlike in OpenTofu, an
// access token does not need a refresh token. The error never contains a secret.
func (l Login) Validate() error {
	problem, help := l.problem()
	if problem == "" {
		return nil
	}
	return hint.New(fmt.Sprintf("the oci_credentials block %q%s %s", l.Prefix, at(l.Origin), problem), "%s", help)
}

// problem says what is wrong with the login, and how to correct it. It returns two empty
// strings for a valid login.
func (l Login) problem() (problem, help string) {
	err := checkPrefix(l.Prefix)
	problem, help = l.credentialProblem()
	switch {
	case err != nil:
		return fmt.Sprintf("has a label that is neither a registry nor a repository prefix: %v", err),
			"label the block HOST or HOST/PATH, such as ghcr.io or ghcr.io/acme, without https:// and without a slash at the end"
	case problem != "":
		return problem, help
	case l.AccessToken.IsZero() && !l.RefreshToken.IsZero():
		return "has a refresh_token without an access_token",
			"set both; a refresh token alone can be given in " + variableIdentityToken
	case l.Helper != "" && !validHelper(l.Helper):
		return fmt.Sprintf("names the helper %q, which holds a path", l.Helper), helperHelp
	case l.Helper != "" && strings.Contains(l.Prefix, "/"):
		return "has a path and docker_credentials_helper", "leave the path out: a helper knows whole registries only"
	}
	return "", ""
}

// credentialProblem is like problem, for the credentials alone.
func (l Login) credentialProblem() (problem, help string) {
	basic := !l.Username.IsZero() || !l.Password.IsZero()
	tokens := !l.AccessToken.IsZero() || !l.RefreshToken.IsZero()
	switch {
	case !basic && !tokens && l.Helper == "":
		return "holds no credential", "set username and password, or access_token, or docker_credentials_helper"
	case basic && tokens, (basic || tokens) && l.Helper != "":
		return "holds credentials of more than one kind",
			"set either username and password, or access_token with or without refresh_token, or docker_credentials_helper"
	case basic && (l.Username.IsZero() || l.Password.IsZero()):
		return "has only one of username and password", "set both, neither of them empty"
	}
	return "", ""
}

// checkPrefix returns an error if prefix is neither HOST nor HOST/PATH.
func checkPrefix(prefix string) error {
	if strings.Contains(prefix, "/") {
		_, err := ociaddr.ParseRepository(prefix)
		return err
	}
	_, err := ociaddr.ParseRegistry(prefix)
	return err
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

// Check returns an error if one of the logins is invalid, or if two logins have the
// same prefix.
func Check(logins []Login) error {
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

// validHelper reports whether the name of a helper is not empty and contains no path.
func validHelper(name string) bool { return name != "" && !strings.ContainsAny(name, `/\`) }

func at(origin string) string {
	if origin == "" {
		return ""
	}
	return " at " + origin
}

// asSource returns a valid Login as a source, which is ranked with all other sources.
func (l Login) asSource() *source {
	k, _ := parseKey(l.Prefix)
	block := fmt.Sprintf("oci_credentials %q%s", l.Prefix, at(l.Origin))
	if l.Helper != "" {
		return helperLogin(k, l.Helper, block, inBlock, blockMiss(l.InCLIConfig))
	}
	return &source{key: k, name: "the block " + block, kind: inBlock, miss: blockMiss(l.InCLIConfig), cred: newCredential(auth.Credential{
		Username: l.Username.Reveal(), Password: l.Password.Reveal(),
		AccessToken: l.AccessToken.Reveal(), RefreshToken: l.RefreshToken.Reveal(),
	})}
}

// The variables that hold a login for one registry, or for the repositories under one path of a
// registry. They are meant for CI, where creating a login file is inconvenient.
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

// VariableLogin returns the login in the environment, or nil if none of the variables is
// set. An empty variable counts as unset, because CI systems set a secret to the empty
// string in jobs that are not allowed to read it.
func (env Environment) VariableLogin() (*Login, error) {
	l := Login{
		Prefix:   env.Variable(variableRegistry),
		Username: NewSecret(env.Variable(variableUsername)), Password: NewSecret(env.Variable(variablePassword)),
		AccessToken: NewSecret(env.Variable(variableToken)), RefreshToken: NewSecret(env.Variable(variableIdentityToken)),
		Origin: variableRegistry,
	}
	used := env.usedVariables()
	switch {
	case l.Prefix == "" && len(used) == 0:
		return nil, nil
	case l.Prefix == "":
		return nil, hint.New(fmt.Sprintf("%s is set and %s is not", strings.Join(used, ", "), variableRegistry),
			"name the registry in %s, such as ghcr.io, or ghcr.io/acme for the repositories below that path", variableRegistry)
	}
	if err := checkPrefix(l.Prefix); err != nil {
		return nil, hint.Wrap(fmt.Errorf("%s: %w", variableRegistry, err), "give HOST or HOST/PATH, such as ghcr.io or ghcr.io/acme")
	}
	if problem, help := l.credentialProblem(); problem != "" {
		return nil, hint.New(fmt.Sprintf("the login for %s in the variables %s_... %s", l.Prefix, variableRegistry, variableNames.Replace(problem)),
			"%s; an empty variable counts as not set", variableNames.Replace(help))
	}
	return &l, nil
}

// variableNames replaces the name of each argument of a block with the variable that holds
// the same value.
var variableNames = strings.NewReplacer("username", variableUsername, "password", variablePassword,
	"access_token", variableToken, "refresh_token", variableIdentityToken, ", or docker_credentials_helper", "")

// usedVariables returns the names of the credential variables that are not empty.
func (env Environment) usedVariables() []string {
	return slices.DeleteFunc(Variables()[1:], func(name string) bool { return env.Variable(name) == "" })
}

// variableLogin returns the login in the environment as a source. If no variable is set, the
// source has no login.
func (env Environment) variableLogin() (*source, error) {
	l, err := env.VariableLogin()
	if err != nil {
		return nil, err
	}
	if l == nil {
		return &source{name: "the variables " + variableRegistry + " and " + variableRegistry + "_...", absent: "not set"}, nil
	}
	out := l.asSource()
	out.kind, out.miss = inVariables, "OpenTofu does not know the variables "+variableRegistry+"_..."
	out.name = fmt.Sprintf("the variables %s=%s, %s", variableRegistry, l.Prefix, strings.Join(env.usedVariables(), ", "))
	return out, nil
}
