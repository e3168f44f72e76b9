package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// loginSources holds every source of logins that was examined.
type loginSources struct {
	env    Environment
	logins []*login // in order of precedence among equally specific logins
	empty  []emptySource
}

// emptySource is a source that was examined and has no login.
type emptySource struct {
	source string
	reason string
	key    *key  // the scope of the source; nil means any registry
	err    error // why the source could not be read, with a hint; nil if it could
}

// findSources collects the logins of all sources, in order of precedence: blocks, then
// variables, then the helper for all registries, then login files. The options must be
// valid.
func findSources(opts Options) (*loginSources, error) {
	s := &loginSources{env: opts.Environment}
	for _, l := range opts.Explicit {
		s.logins = append(s.logins, l.login())
	}
	variables, err := opts.Environment.variableLogin()
	switch {
	case err != nil:
		return nil, err
	case variables != nil:
		variables.miss = "OpenTofu does not know the variables " + variableRegistry + "_..."
		s.logins = append(s.logins, variables)
	default:
		s.empty = append(s.empty, emptySource{source: "the variables " + variableRegistry + " and " + variableRegistry + "_...", reason: "not set"})
	}
	files := opts.Environment.loginFiles()
	if d := opts.Defaults; d != nil {
		if d.Helper != "" {
			l := helperLogin(key{}, d.Helper, "oci_default_credentials"+at(d.Origin), inBlock)
			l.miss = blockMiss(d.InCLIConfig)
			s.logins = append(s.logins, l)
		}
		if !d.Discover || d.Files != nil && len(d.Files) == 0 {
			s.empty = append(s.empty, emptySource{source: "login files of docker and compatible tools", reason: "not looked for, as the oci_default_credentials block" + at(d.Origin) + " says"})
		}
		files = d.files(files)
	}
	if err := s.read(files, opts); err != nil {
		return nil, err
	}
	return s, nil
}

// files returns the login files to read, given the usual ones.
func (d *Defaults) files(usual []loginFile) []loginFile {
	switch {
	case !d.Discover:
		return nil
	case d.Files == nil:
		return usual
	}
	var out []loginFile
	for _, name := range d.Files {
		out = append(out, loginFile{name: name, required: true, ours: !d.InCLIConfig})
	}
	return out
}

// read reads the login files. Every problem with a file that a block names is an
// error. Other files that do not exist are skipped, with a warning if a variable names
// the file. If another file cannot be read or parsed, it is skipped with a warning, as
// in OpenTofu, because the right login may be in a different file.
func (s *loginSources) read(files []loginFile, opts Options) error {
	env := opts.Environment
	if env.ReadFile == nil {
		return nil
	}
	unparsable := "" // a file that makes OpenTofu ignore all login files
	for _, f := range files {
		src, err := []byte(f.text), error(nil)
		if f.text == "" {
			src, err = env.ReadFile(f.name)
		}
		absent := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
		if !absent && !f.required && (err != nil || !openTofuParses(src)) && slices.Contains(env.openTofuFiles(), f.name) {
			unparsable = f.name
		}
		if err != nil {
			err = hint.Wrap(fmt.Errorf("it was not read: %w", withoutPath(err)),
				"make the file readable, or name another one in REGISTRY_AUTH_FILE or DOCKER_CONFIG")
		} else {
			err = s.parse(f, src)
		}
		source := f.String()
		switch {
		case err == nil:
		case f.required:
			return hint.Replace(fmt.Errorf("%s: %w", source, err),
				"the oci_default_credentials block%s names it in docker_style_config_files: correct it, or take it out there", at(opts.Defaults.Origin))
		case absent:
			if f.named {
				opts.Log.Warn("the login file that REGISTRY_AUTH_FILE names does not exist", "file", f.name)
			}
			s.empty = append(s.empty, emptySource{source: source, reason: "it does not exist"})
		default:
			opts.Log.Warn("a login file cannot be used", "file", f.name, "error", err, "hint", hint.Of(err))
			s.empty = append(s.empty, emptySource{source: source, reason: err.Error(), err: err})
		}
	}
	for _, l := range s.logins {
		if unparsable != "" && l.kind == inFile && l.miss == "" {
			l.miss = "OpenTofu reads no login file while " + unparsable + " does not parse"
		}
	}
	return nil
}

// fault returns the error of the first source that could not be read, or nil.
func (s *loginSources) fault() error {
	for _, e := range s.empty {
		if e.err != nil {
			return fmt.Errorf("%s: %w", e.source, e.err)
		}
	}
	return nil
}
