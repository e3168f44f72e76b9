package login

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// source is where one credential comes from: an entry of a login file, a block of a
// configuration, environment variables, or a helper that a login file or a block names.
type source struct {
	key    key
	name   string // describes where the credential comes from
	kind   sourceKind
	helper string // the name after docker-credential-; "" if cred holds the credential
	cred   credential
	err    error // what is wrong with the source; reported only if the source is chosen

	absent  string // why the source has no login; "" if it has one
	except  []key  // registries for which the login is not used, although key matches them
	written string // the key as written in the login file; "" for credsStore
	miss    string // why OpenTofu never finds this login; "" if it might find it
}

// specificity returns the specificity of the login's key for the repository, or noMatch if the
// login excludes the registry.
func (l *source) specificity(r ociaddr.Repository) int {
	if slices.ContainsFunc(l.except, func(k key) bool { return k.specificity(r) != noMatch }) {
		return noMatch
	}
	return l.key.specificity(r)
}

// sourceKind is the kind of source that a login comes from. The hint for a refused login
// depends on it.
type sourceKind int

const (
	inFile sourceKind = iota
	inBlock
	inVariables
)

// helperLogin returns the login that a helper provides. setting describes the setting
// that names the helper.
func helperLogin(k key, helper, setting string, kind sourceKind, miss string) *source {
	return &source{key: k, kind: kind, helper: helper, miss: miss, name: fmt.Sprintf("the helper %s%s (%s)", helperPrefix, helper, setting)}
}

func (l *source) String() string { return l.name }

// get returns the credential for the registry, or the zero credential if a helper has none.
func (l *source) get(ctx context.Context, helpers *helperRunner, registry ociaddr.Registry) (credential, error) {
	if l.helper != "" && l.err == nil {
		return helpers.get(ctx, l.helper, registry)
	}
	return l.cred, l.err
}

// rank returns the logins that match the repository, most specific first. Equally
// specific logins keep their order. Sources without a login are omitted.
func rank(all []*source, r ociaddr.Repository) []*source {
	out := slices.DeleteFunc(slices.Clone(all), func(l *source) bool { return l.absent != "" || l.specificity(r) == noMatch })
	slices.SortStableFunc(out, func(a, b *source) int { return cmp.Compare(b.specificity(r), a.specificity(r)) })
	return out
}

// sources holds every source that was examined, including sources without a login.
// The order of the sources decides between equally specific logins.
type sources []*source

// findSources collects all sources of logins, in order of precedence: blocks, then
// variables, then the helper for all registries, then login files.
func findSources(opts Options) (sources, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	var s sources
	for _, l := range opts.Explicit {
		s = append(s, l.asSource())
	}
	variables, err := opts.Environment.variableLogin()
	if err != nil {
		return nil, err
	}
	s = append(s, variables)
	locations := opts.Environment.loginFiles()
	if d := opts.Defaults; d != nil {
		if d.Helper != "" {
			s = append(s, helperLogin(key{}, d.Helper, "oci_default_credentials"+at(d.Origin), inBlock, blockMiss(d.InCLIConfig)))
		}
		if !d.Discover || d.Files != nil && len(d.Files) == 0 {
			s = append(s, &source{name: "login files of docker and compatible tools", absent: "not looked for, as the oci_default_credentials block" + at(d.Origin) + " says"})
		}
		locations = d.files(locations)
	}
	return s.read(locations, opts)
}

// files returns the login files to read: the usual ones if the block names none.
func (d *Defaults) files(usual []loginFile) []loginFile {
	switch {
	case !d.Discover:
		return nil
	case d.Files == nil:
		return usual
	}
	var out []loginFile
	for _, name := range d.Files {
		openTofu := d.InCLIConfig || slices.ContainsFunc(usual, func(f loginFile) bool { return f.name == name && f.openTofu })
		out = append(out, loginFile{name: name, required: true, openTofu: openTofu})
	}
	return out
}

// read returns s with the logins in the login files appended. Every problem with a file
// that a block names is an error. Other files are skipped with a warning, because the right login
// may be in a different file. A usual file that does not exist needs no warning.
func (s sources) read(locations []loginFile, opts Options) (sources, error) {
	env := opts.Environment
	if env.ReadFile == nil {
		return s, nil
	}
	unparsable := "" // a file that makes OpenTofu ignore all login files
	for _, f := range locations {
		if f.skip {
			continue
		}
		src, err := []byte(f.text), error(nil)
		if f.text == "" {
			src, err = env.ReadFile(f.name)
		}
		missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
		if f.openTofu && !f.required && !missing && (err != nil || !openTofuParses(src)) {
			unparsable = f.name
		}
		var found []*source
		if err == nil {
			found, err = f.parse(src)
		} else {
			err = hint.Wrap(fmt.Errorf("it was not read: %w", files.Cause(err)),
				"make the file readable, or name another one in REGISTRY_AUTH_FILE or DOCKER_CONFIG")
		}
		switch {
		case err == nil:
			s = append(s, found...)
		case f.required:
			return nil, hint.Replace(fmt.Errorf("%s: %w", f, err),
				"the oci_default_credentials block%s names it in docker_style_config_files: correct it, or take it out there", at(opts.Defaults.Origin))
		case missing:
			if f.named {
				opts.Log.Warn("the login file that REGISTRY_AUTH_FILE names does not exist", "file", f.name)
			}
			s = append(s, &source{name: f.String(), absent: "it does not exist"})
		default:
			opts.Log.Warn("a login file cannot be used", "file", f.name, "error", err, "hint", hint.Of(err))
			s = append(s, &source{name: f.String(), absent: err.Error(), err: err})
		}
	}
	for _, l := range s {
		if unparsable != "" && l.kind == inFile && l.miss == "" {
			l.miss = "OpenTofu reads no login file while " + unparsable + " does not parse"
		}
	}
	return s, nil
}

// fault returns the error of the first source that could not be read, or nil.
func (s sources) fault() error {
	for _, l := range s {
		if l.absent != "" && l.err != nil {
			return fmt.Errorf("%s: %w", l, l.err)
		}
	}
	return nil
}

// key is the scope of a login: a whole registry, or the repositories of a registry
// under a path.
type key struct {
	host ociaddr.Registry // canonical; "" for every registry
	path string           // without leading and trailing slashes; "" for the whole registry
	url  bool             // the key was written with a scheme
}

// String describes the scope of the key.
func (k key) String() string {
	switch {
	case k.host == "":
		return "every registry"
	case k.path == "":
		return string(k.host)
	}
	return string(k.host) + "/" + k.path
}

// hubKey is the key under which docker stores the login for Docker Hub.
const hubKey = "https://index.docker.io/v1/"

// parseKey parses a key of "auths" or "credHelpers". A key is HOST, HOST/PREFIX as in
// containers-auth.json(5), or a URL as docker writes it. The path /v1/ or /v2/ is the
// path of the registry's API, not a prefix. parseKey returns false for a key without a
// host.
func parseKey(s string) (key, bool) {
	rest, isURL := cutScheme(strings.TrimSpace(s))
	host, path, _ := strings.Cut(rest, "/")
	if path == "v1/" || path == "v2/" || isURL && (path == "v1" || path == "v2") {
		path = ""
	}
	k := key{host: ociaddr.Registry(host).Canonical(), path: strings.Trim(path, "/"), url: isURL}
	return k, k.host != ""
}

func cutScheme(s string) (rest string, ok bool) {
	for _, scheme := range []string{"https://", "http://"} {
		if len(s) >= len(scheme) && strings.EqualFold(s[:len(scheme)], scheme) {
			return s[len(scheme):], true
		}
	}
	return s, false
}

// The specificity of a key for a repository, in ascending order.
const (
	noMatch      = iota
	everyHost    // a login for all registries
	hostByURL    // the host of a URL whose path does not match, because docker ignores the path
	wholeHost    // the whole registry
	firstSegment // the first segment of the repository's name; each further segment adds one
)

// specificity returns the specificity of the key for the repository.
func (k key) specificity(r ociaddr.Repository) int {
	switch {
	case k.host == "":
		return everyHost
	case k.host != r.Registry.Canonical():
		return noMatch
	case k.path == "":
		return wholeHost
	case r.Name == k.path || strings.HasPrefix(r.Name, k.path+"/"):
		return firstSegment + strings.Count(k.path, "/")
	case k.url:
		return hostByURL
	}
	return noMatch
}
