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
	"maps"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// login is one source of a credential: an entry of a login file, a block of a
// configuration, variables, or a helper that one of these names.
type login struct {
	key    key
	label  string // the key as written, or the setting that names the helper
	source string // in words, for [login.String]
	place  place
	helper string // the rest of docker-credential-...; "" where the credential is at hand
	cred   credential
	err    error // what is wrong with the entry; it matters only when chosen
	// except are registries that it is not for, though the key says so.
	except []key
	// written is the key of its entry in a login file; "" for credsStore.
	written string
	// miss says why OpenTofu does not find it, whatever the repository; "" where it does.
	miss string
}

// specificity is that of its key, but for what it is not for.
func (l *login) specificity(r ociaddr.Repository) int {
	if slices.ContainsFunc(l.except, func(k key) bool { return k.specificity(r) != noMatch }) {
		return noMatch
	}
	return l.key.specificity(r)
}

// place is the kind of place that a login stands in. What to do about one that
// is refused depends on it.
type place int

const (
	inFile place = iota
	inBlock
	inVariables
)

// helperLogin makes a source of a helper; setting says in words what names it.
func helperLogin(k key, helper, setting string, in place) *login {
	return &login{
		key: k, label: setting, place: in, helper: helper,
		source: fmt.Sprintf("the helper %s%s (%s)", helperPrefix, helper, setting),
	}
}

// String says in words where the credential comes from.
func (l *login) String() string { return l.source }

// get returns the credential, the zero one where a helper has none.
func (l *login) get(ctx context.Context, helpers *helperRunner, registry ociaddr.Registry) (credential, error) {
	if l.helper != "" && l.err == nil {
		return helpers.get(ctx, l.helper, registry)
	}
	return l.cred, l.err
}

// loginFile is a place where a login file may be.
type loginFile struct {
	name string
	// text is the content of a variable of that name, in the place of a file.
	text string
	// legacy is ~/.dockercfg, which holds the entries without "auths" around them.
	legacy bool
	// named is a file that the user asked for by a variable.
	named bool
	// required is a file that a block names: without it, nothing is right.
	required bool
	ours     bool // that block stands in our configuration file
}

// String says in words what it is.
func (f loginFile) String() string {
	if f.text != "" {
		return "the variable " + f.name
	}
	return "the login file " + f.name
}

// loginFiles returns where login files are looked for, in order: the user's own
// choice, then those of podman and its kin by containers-auth.json(5), then
// docker's, of which a variable with the content comes first.
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
	if text := env.getenv("DOCKER_AUTH_CONFIG"); text != "" {
		add(loginFile{name: "DOCKER_AUTH_CONFIG", text: text})
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
	bare        bool                // the entries stood without "auths" around them
}

type wireAuth struct {
	Auth          string `json:"auth"` // base64 of USER:PASSWORD
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"` // an OAuth2 refresh token
	RegistryToken string `json:"registrytoken"` // a bearer token
}

// parse adds the logins of a file. For one registry a helper of its own
// (credHelpers) comes before an entry (auths), other than in OpenTofu: logging in
// with a helper leaves the entry of an earlier login behind. The helper for all
// (credsStore) comes last, as in OpenTofu and other than in docker. An empty name in
// credHelpers keeps a registry from the helper for all, as in docker.
func (s *survey) parse(f loginFile, src []byte) error {
	wire, err := decodeLoginFile(f, src)
	if err != nil {
		return err
	}
	before := len(s.logins) + len(s.empty)
	fileMiss := f.openTofuMiss(s.env)
	if wire.bare {
		fileMiss = cmp.Or(fileMiss, "OpenTofu reads no file without \"auths\"")
	}
	var except []key
	for _, name := range sortedKeys(wire.CredHelpers) {
		k, ok := parseKey(name)
		setting := fmt.Sprintf("credHelpers %q in %s", name, f.name)
		switch {
		case !ok:
		case wire.CredHelpers[name] == "":
			except = append(except, k)
			s.empty = append(s.empty, empty{source: setting, reason: "it is empty, which keeps credsStore from it", key: &k})
		default:
			l := s.addHelper(k, wire.CredHelpers[name], setting)
			l.written, l.miss = name, fileMiss
		}
	}
	for _, name := range sortedKeys(wire.Auths) {
		k, ok := parseKey(name)
		if !ok {
			continue
		}
		source := fmt.Sprintf("the login for %s in %s", name, f.name)
		cred, err := wire.Auths[name].credential()
		if err == nil && cred.empty() {
			s.empty = append(s.empty, empty{source: source, reason: "it is empty, as logging in with a helper leaves it", key: &k})
			continue
		}
		s.logins = append(s.logins, &login{
			key: k, label: name, source: source, cred: cred, err: err,
			written: name, miss: cmp.Or(fileMiss, wire.Auths[name].openTofuMiss()),
		})
	}
	if wire.CredsStore != "" {
		l := s.addHelper(key{}, wire.CredsStore, "credsStore in "+f.name)
		l.except, l.miss = except, fileMiss
	}
	if len(s.logins)+len(s.empty) == before {
		s.empty = append(s.empty, empty{source: f.String(), reason: "it holds no login"})
	}
	return nil
}

// addHelper adds a helper that a login file names.
func (s *survey) addHelper(k key, name, setting string) *login {
	l := helperLogin(k, name, setting, inFile)
	if !validHelper(name) {
		l.err = hint.New("a helper's name cannot hold a path", "%s", helperHelp)
	}
	s.logins = append(s.logins, l)
	return l
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

// CheckLoginFile checks the content of a login file, as far as it is checked before
// an entry is used. It quotes nothing of it.
func CheckLoginFile(src []byte) error {
	_, err := decodeLoginFile(loginFile{}, src)
	return err
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
		wire.bare = true
		err = json.Unmarshal(src, &wire.Auths)
	}
	if err != nil {
		return wire, invalidLoginFile(src, err)
	}
	return wire, nil
}

// invalidLoginFile says where a file is wrong. The decoder's words are left out:
// they quote numbers, and a password may be one.
func invalidLoginFile(src []byte, err error) error {
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
	return hint.New(fmt.Sprintf("it does not parse: line %d: %s", line, problem),
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
