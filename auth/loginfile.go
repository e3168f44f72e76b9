package auth

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"syscall"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// login is one source of a credential: an entry of a login file, or a helper
// that a file names.
type login struct {
	key    key
	file   string
	label  string // the key as written, or the setting that names the helper
	helper string // the rest of docker-credential-...; "" for an entry
	cred   credential
	err    error // what is wrong with the entry; it matters only when chosen
}

// String says in words where the credential comes from.
func (l *login) String() string {
	if l.helper != "" {
		return fmt.Sprintf("the helper %s%s (%s in %s)", helperPrefix, l.helper, l.label, l.file)
	}
	return fmt.Sprintf("the login for %s in %s", l.label, l.file)
}

// get returns the credential, the zero one where a helper has none.
func (l *login) get(ctx context.Context, helpers *helperRunner, registry ociaddr.Registry) (credential, error) {
	if l.helper != "" {
		return helpers.get(ctx, l.helper, registry)
	}
	return l.cred, l.err
}

// loginFile is a place where a login file may be.
type loginFile struct {
	name string
	// legacy is ~/.dockercfg, which holds the entries without "auths" around them.
	legacy bool
	// named is a file that the user asked for by name.
	named bool
}

// loginFiles returns where login files are looked for, in order: the user's own
// choice, then those of podman and its kin by containers-auth.json(5), then
// docker's.
func (env Environment) loginFiles() []loginFile {
	var out []loginFile
	add := func(f loginFile) {
		if !slices.ContainsFunc(out, func(o loginFile) bool { return o.name == f.name }) {
			out = append(out, f)
		}
	}
	if name := env.getenv("REGISTRY_AUTH_FILE"); name != "" {
		add(loginFile{name: name, named: true})
	}
	for _, name := range env.containersFiles() {
		add(loginFile{name: name})
	}
	if dir := env.getenv("DOCKER_CONFIG"); dir != "" {
		add(loginFile{name: env.join(dir, "config.json")})
	} else if env.Home != "" {
		add(loginFile{name: env.join(env.Home, ".docker", "config.json")})
	}
	if env.Home != "" {
		add(loginFile{name: env.join(env.Home, ".dockercfg"), legacy: true})
	}
	return out
}

// containersFiles returns the places of containers' auth.json: first the one that
// lasts as long as the session, where the system has such a place, then the one
// in the user's configuration.
func (env Environment) containersFiles() []string {
	var out []string
	inHome := ""
	if env.Home != "" {
		inHome = env.join(env.Home, ".config", "containers", "auth.json")
	}
	switch runtimeDir := env.getenv("XDG_RUNTIME_DIR"); {
	case env.GOOS == "windows" || env.GOOS == "darwin":
		if inHome != "" {
			out = append(out, inHome)
		}
	case runtimeDir != "":
		out = append(out, env.join(runtimeDir, "containers", "auth.json"))
	case env.GOOS == "linux" && env.UID != "":
		out = append(out, env.join("/run/containers", env.UID, "auth.json"))
	}
	if dir := env.getenv("XDG_CONFIG_HOME"); dir != "" {
		out = append(out, env.join(dir, "containers", "auth.json"))
	} else if inHome != "" {
		out = append(out, inHome)
	}
	return out
}

// readLogins reads every login file. One that is not there is passed over, with
// a warning if the user named it; any other that cannot be read is an error.
func readLogins(env Environment, log *slog.Logger) ([]*login, error) {
	if env.ReadFile == nil {
		return nil, nil
	}
	var out []*login
	for _, f := range env.loginFiles() {
		src, err := env.ReadFile(f.name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			if f.named {
				log.Warn("the login file that REGISTRY_AUTH_FILE names does not exist", "file", f.name)
			}
			continue
		}
		if err != nil {
			return nil, hint.Wrap(fmt.Errorf("read login file %s: %w", f.name, withoutPath(err)),
				"make the file readable, or name another one in REGISTRY_AUTH_FILE or DOCKER_CONFIG")
		}
		logins, err := parseLoginFile(f, src)
		if err != nil {
			return nil, err
		}
		out = append(out, logins...)
	}
	return out, nil
}

// withoutPath drops the path that a PathError repeats.
func withoutPath(err error) error {
	var perr *fs.PathError
	if errors.As(err, &perr) {
		return perr.Err
	}
	return err
}

// wireFile is a login file as docker and podman write it. Both keep more in
// theirs, which is not ours to judge.
type wireFile struct {
	Auths       map[string]wireAuth `json:"auths"`
	CredHelpers map[string]string   `json:"credHelpers"`
	CredsStore  string              `json:"credsStore"`
}

type wireAuth struct {
	Auth          string `json:"auth"` // base64 of USER:PASSWORD
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"` // an OAuth2 refresh token
	RegistryToken string `json:"registrytoken"` // a bearer token
}

// parseLoginFile returns the logins of a file. For one registry a helper of its
// own comes before an entry, as in docker and podman: logging in with a helper
// leaves the entry of an earlier login behind.
func parseLoginFile(f loginFile, src []byte) ([]*login, error) {
	wire, err := decodeLoginFile(f, src)
	if err != nil {
		return nil, err
	}
	var out []*login
	for _, name := range sortedKeys(wire.CredHelpers) {
		if k, ok := parseKey(name); ok {
			out = appendHelper(out, f, k, wire.CredHelpers[name], fmt.Sprintf("credHelpers %q", name))
		}
	}
	for _, name := range sortedKeys(wire.Auths) {
		k, ok := parseKey(name)
		if !ok {
			continue
		}
		cred, err := wire.Auths[name].credential()
		if err != nil || !cred.empty() {
			out = append(out, &login{key: k, file: f.name, label: name, cred: cred, err: err})
		}
	}
	return appendHelper(out, f, key{}, wire.CredsStore, "credsStore"), nil
}

func appendHelper(out []*login, f loginFile, k key, name, label string) []*login {
	if name == "" {
		return out
	}
	l := &login{key: k, file: f.name, label: label, helper: name}
	if strings.ContainsAny(name, `/\`) {
		l.err = hint.New("a helper's name cannot hold a path", "put the program on PATH, and name what follows %s in its name", helperPrefix)
	}
	return append(out, l)
}

// sortedKeys orders keys that may name one registry: docker's own key for Docker
// Hub, then hosts, then URLs, which docker reads only where there is no host.
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

func decodeLoginFile(f loginFile, src []byte) (wireFile, error) {
	var wire wireFile
	// Editors and shells on Windows put a byte order mark first.
	src = bytes.TrimSpace(bytes.TrimPrefix(src, []byte("\xef\xbb\xbf")))
	if len(src) == 0 {
		return wire, nil
	}
	err := json.Unmarshal(src, &wire)
	if err == nil && f.legacy && wire.Auths == nil {
		err = json.Unmarshal(src, &wire.Auths)
	}
	if err != nil {
		return wire, invalidLoginFile(f.name, src, err)
	}
	return wire, nil
}

// invalidLoginFile says where a file is wrong. The decoder's words are left out:
// they quote numbers, and a password may be one.
func invalidLoginFile(name string, src []byte, err error) error {
	offset := int64(len(src))
	problem := "it ends too early"
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typ):
		offset, problem = typ.Offset, "a value is of another type than in a login file"
	case errors.As(err, &syntax) && syntax.Offset < int64(len(src)):
		offset, problem = syntax.Offset, "it is not JSON"
	}
	line := 1 + bytes.Count(src[:min(max(offset, 0), int64(len(src)))], []byte("\n"))
	return hint.New(fmt.Sprintf("login file %s does not parse: line %d: %s", name, line, problem),
		"correct the file, or move it away and log in again, such as with: docker login REGISTRY")
}

// credential returns what the entry holds; the zero credential for one that is
// empty, as logging in with a helper leaves it behind.
func (w wireAuth) credential() (credential, error) {
	c := auth.Credential{
		Username:     w.Username,
		Password:     w.Password,
		RefreshToken: w.IdentityToken,
		AccessToken:  w.RegistryToken,
	}
	if w.Auth != "" {
		user, password, ok := decodeAuth(w.Auth)
		switch {
		case ok:
			c.Username, c.Password = user, password
		case c == auth.EmptyCredential:
			return credential{}, hint.New(`its "auth" is not the base64 form of USER:PASSWORD`, "log in again, such as with: docker login REGISTRY")
		}
	}
	return newCredential(c), nil
}

// decodeAuth reads USER:PASSWORD in base64. Only the password may hold colons.
func decodeAuth(s string) (user, password string, ok bool) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		if b, err = base64.RawStdEncoding.DecodeString(s); err != nil {
			return "", "", false
		}
	}
	user, password, ok = strings.Cut(string(b), ":")
	return user, strings.TrimRight(password, "\x00"), ok
}
