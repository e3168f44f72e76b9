package login

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// loginFile is a location where a login file may exist.
type loginFile struct {
	name     string
	text     string // the content, if name is an environment variable that holds it
	legacy   bool   // the file is ~/.dockercfg, which has the entries at its top level, without "auths"
	named    bool   // the user named the file in an environment variable
	required bool   // a block names the file, so every problem with it is an error
	openTofu bool   // OpenTofu reads the file too
	skip     bool   // OpenTofu reads the file, but this package does not
}

// String describes the login file for messages.
func (f loginFile) String() string {
	if f.text != "" {
		return "the variable " + f.name
	}
	return "the login file " + f.name
}

// loginFiles returns the locations of login files in search order: the file in
// REGISTRY_AUTH_FILE, podman's files as in containers-auth.json(5), the variable
// DOCKER_AUTH_CONFIG, then docker's files and helm's file. OpenTofu ignores REGISTRY_AUTH_FILE,
// DOCKER_CONFIG and helm's file, and does not use podman's location for systems without
// XDG_RUNTIME_DIR.
func (env Environment) loginFiles() []loginFile {
	var out []loginFile
	add := func(f loginFile, elem ...string) {
		if elem[0] == "" {
			return
		}
		f.name = files.Paths(env.GOOS).Join(elem...)
		i := slices.IndexFunc(out, func(o loginFile) bool { return o.name == f.name })
		if i < 0 {
			out = append(out, f)
			return
		}
		out[i].openTofu = out[i].openTofu || f.openTofu
	}
	runtimeDir, dockerDir := env.Variable("XDG_RUNTIME_DIR"), env.Variable("DOCKER_CONFIG")
	add(loginFile{named: true}, env.Variable("REGISTRY_AUTH_FILE"))
	switch {
	case env.GOOS == "windows" || env.GOOS == "darwin":
		add(loginFile{openTofu: true}, env.Home, ".config", "containers", "auth.json")
	case runtimeDir != "":
		add(loginFile{openTofu: env.GOOS == "linux"}, runtimeDir, "containers", "auth.json")
	case env.GOOS == "linux" && env.UID != "":
		add(loginFile{}, "/run/containers", env.UID, "auth.json")
	}
	if dir := env.Variable("XDG_CONFIG_HOME"); dir != "" {
		add(loginFile{openTofu: true}, dir, "containers", "auth.json")
	} else {
		add(loginFile{openTofu: true}, env.Home, ".config", "containers", "auth.json")
	}
	if text := env.Variable("DOCKER_AUTH_CONFIG"); text != "" {
		add(loginFile{text: text}, "DOCKER_AUTH_CONFIG")
	}
	add(loginFile{}, dockerDir, "config.json")
	add(loginFile{openTofu: true, skip: dockerDir != ""}, env.Home, ".docker", "config.json")
	add(loginFile{openTofu: true, legacy: true}, env.Home, ".dockercfg")
	add(loginFile{}, env.helmConfig()...)
	return out
}

// helmConfig returns the location of the file that "helm registry login" of helm 3 and 4
// writes, as the elements of a path. The first element is "" if there is no such location.
func (env Environment) helmConfig() []string {
	if name := env.Variable("HELM_REGISTRY_CONFIG"); name != "" {
		return []string{name}
	}
	if dir := env.Variable("HELM_CONFIG_HOME"); dir != "" {
		return []string{dir, "registry", "config.json"}
	}
	dir := []string{env.Variable("XDG_CONFIG_HOME")}
	switch {
	case dir[0] != "":
	case env.GOOS == "windows":
		dir = []string{env.Variable("APPDATA")}
	case env.GOOS == "darwin":
		dir = []string{env.Home, "Library", "Preferences"}
	default:
		dir = []string{env.Home, ".config"}
	}
	return append(dir, "helm", "registry", "config.json")
}

// wireFile is a login file as docker and podman write it.
type wireFile struct {
	Auths       map[string]wireAuth `json:"auths"`
	CredHelpers map[string]string   `json:"credHelpers"`
	CredsStore  string              `json:"credsStore"`
	bare        bool                // whether the entries are at the top level of the file, without "auths"
}

type wireAuth struct {
	Auth          string `json:"auth,omitempty"` // base64 of USER:PASSWORD
	Username      string `json:"username,omitempty"`
	Password      string `json:"password,omitempty"`
	IdentityToken string `json:"identitytoken,omitempty"` // an OAuth2 refresh token
	RegistryToken string `json:"registrytoken,omitempty"` // a bearer token
}

// parse returns the sources in a login file. Other tools use different orders. Here, the helper
// of a registry (credHelpers) comes before the entry of the registry (auths). OpenTofu prefers
// the entry. The helper comes first here because a login with a helper may leave the entry of
// an earlier login behind. The helper for all registries (credsStore) comes last. It also comes
// last in OpenTofu, but not in docker. An empty name in credHelpers excludes a registry from
// credsStore, as in docker.
func (f loginFile) parse(src []byte) ([]*source, error) {
	wire, err := decodeLoginFile(src, f.legacy)
	if err != nil {
		return nil, err
	}
	fileMiss := f.openTofuMiss()
	if wire.bare {
		fileMiss = cmp.Or(fileMiss, "OpenTofu reads no file without \"auths\"")
	}
	var out []*source
	var except []key
	for _, name := range sortedKeys(wire.CredHelpers) {
		k, ok := parseKey(name)
		setting := fmt.Sprintf("credHelpers %q in %s", name, f.name)
		switch {
		case !ok:
		case wire.CredHelpers[name] == "":
			except = append(except, k)
			out = append(out, &source{key: k, name: setting, absent: "it is empty, which excludes the registry from credsStore"})
		default:
			l := fileHelper(k, wire.CredHelpers[name], setting, fileMiss)
			l.written = name
			out = append(out, l)
		}
	}
	for _, name := range sortedKeys(wire.Auths) {
		k, ok := parseKey(name)
		if !ok {
			continue
		}
		l := &source{key: k, name: fmt.Sprintf("the login for %s in %s", name, f.name), written: name}
		l.cred, l.err = wire.Auths[name].credential()
		if l.miss = fileMiss; l.miss == "" && wire.Auths[name].Auth == "" {
			l.miss = `OpenTofu reads no entry without "auth"`
		}
		if l.err == nil && l.cred.empty() {
			l.absent = "it is empty, as logging in with a helper leaves it"
		}
		out = append(out, l)
	}
	if wire.CredsStore != "" {
		l := fileHelper(key{}, wire.CredsStore, "credsStore in "+f.name, fileMiss)
		l.except = except
		out = append(out, l)
	}
	if len(out) == 0 {
		out = append(out, &source{name: f.String(), absent: "it holds no login"})
	}
	return out, nil
}

// fileHelper returns the login of a helper that a login file names.
func fileHelper(k key, name, setting, miss string) *source {
	l := helperLogin(k, name, setting, inFile, miss)
	if !validHelper(name) {
		l.err = hint.New("a helper's name cannot hold a path", "%s", helperHelp)
	}
	return l
}

// sortedKeys returns the keys of the map in order of preference: docker's own key for
// Docker Hub, then hosts, then URLs. Docker uses a URL for a registry only if the file
// has no entry for the host.
func sortedKeys[V any](m map[string]V) []string {
	order := func(name string) int {
		_, isURL := cutScheme(name)
		switch {
		case name == hubKey:
			return 0
		case !isURL:
			return 1
		}
		return 2
	}
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), strings.Compare(a, b))
	})
}

// CheckFile returns an error if the content of a login file cannot be parsed. It does not check
// the entries, which are checked when they are used. The error quotes none of the content.
func CheckFile(src []byte) error {
	_, err := decodeLoginFile(src, false)
	return err
}

func decodeLoginFile(src []byte, legacy bool) (wireFile, error) {
	var wire wireFile
	src = trimLoginFile(src)
	if len(src) == 0 {
		return wire, nil
	}
	err := json.Unmarshal(src, &wire)
	if err == nil && legacy && wire.Auths == nil {
		wire.bare = true
		err = json.Unmarshal(src, &wire.Auths)
	}
	if err != nil {
		return wire, invalidLoginFile(src, err)
	}
	return wire, nil
}

// trimLoginFile removes blanks, and the byte order mark that editors and shells on Windows write.
func trimLoginFile(src []byte) []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(src, []byte("\xef\xbb\xbf")))
}

// invalidLoginFile returns an error that says at which line a login file is invalid. It
// omits the text of the decoder's error, because that text quotes numbers, and a
// password may be a number.
func invalidLoginFile(src []byte, err error) error {
	offset, problem := int64(len(src)), "it ends too early"
	if typ, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		offset, problem = typ.Offset, "a value is of another type than in a login file"
	} else if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && syntax.Offset < offset {
		offset, problem = syntax.Offset, "it is not JSON"
	}
	line := 1 + bytes.Count(src[:min(max(offset, 0), int64(len(src)))], []byte("\n"))
	return hint.New(fmt.Sprintf("it does not parse: line %d: %s", line, problem),
		"correct the file, or move it away and log in again, with: ocibridge login REGISTRY")
}

// credential returns the entry's credential. It returns the zero credential for an empty entry,
// which docker leaves when a user logs in with a helper.
func (w wireAuth) credential() (credential, error) {
	c := auth.Credential{Username: w.Username, Password: w.Password, RefreshToken: w.IdentityToken, AccessToken: w.RegistryToken}
	if w.Auth != "" {
		user, password, ok := decodeAuth(w.Auth)
		switch {
		case ok:
			c.Username, c.Password = user, password
		case c == auth.EmptyCredential:
			return credential{}, hint.New(`its "auth" is not the base64 form of USER:PASSWORD`, "log in again, with: ocibridge login REGISTRY")
		}
	}
	return newCredential(c), nil
}

// decodeAuth decodes the base64 form of USER:PASSWORD. Only the password may contain
// colons. ok is false if the text is not in that form.
func decodeAuth(s string) (user, password string, ok bool) {
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "=\r\n"))
	if err != nil {
		return "", "", false
	}
	user, password, ok = strings.Cut(string(b), ":")
	return user, strings.TrimRight(password, "\x00"), ok
}
