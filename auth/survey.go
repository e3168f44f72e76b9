package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// survey is every source of logins that was looked at.
type survey struct {
	logins []*login // the ones to be preferred first, of equally specific ones
	empty  []empty
}

// empty is a source that was looked at and has no login.
type empty struct {
	source string
	reason string
	key    *key // what it would be for; nil for anything
}

// newSurvey looks for logins where the options say, in order of precedence:
// blocks, then variables, then the helper for all registries, then login files.
func newSurvey(opts Options) (*survey, error) {
	s := &survey{}
	for _, l := range opts.Explicit {
		if err := l.Validate(); err != nil {
			return nil, err
		}
		s.logins = append(s.logins, l.login())
	}
	variables, err := opts.Environment.variableLogin()
	switch {
	case err != nil:
		return nil, err
	case variables != nil:
		s.logins = append(s.logins, variables)
	default:
		s.empty = append(s.empty, empty{source: "the variables " + variableRegistry + " and " + variableRegistry + "_...", reason: "not set"})
	}
	files := opts.Environment.loginFiles()
	if d := opts.Defaults; d != nil {
		if err := d.Validate(); err != nil {
			return nil, err
		}
		if d.Helper != "" {
			s.logins = append(s.logins, helperLogin(key{}, d.Helper, "oci_default_credentials"+at(d.Origin), inBlock))
		}
		if !d.Discover || d.Files != nil && len(d.Files) == 0 {
			s.empty = append(s.empty, empty{source: "login files of docker and its kin", reason: "not looked for, as the oci_default_credentials block" + at(d.Origin) + " says"})
		}
		files = d.files(files)
	}
	if err := s.read(files, opts); err != nil {
		return nil, err
	}
	return s, nil
}

// files returns the login files to read where usual are the usual ones.
func (d *Defaults) files(usual []loginFile) []loginFile {
	switch {
	case !d.Discover:
		return nil
	case d.Files == nil:
		return usual
	}
	var out []loginFile
	for _, name := range d.Files {
		out = append(out, loginFile{name: name, required: true})
	}
	return out
}

// read reads the login files. One that is not there is passed over, with a
// warning if a variable names it; one that a block names, and any other that
// cannot be read, is an error.
func (s *survey) read(files []loginFile, opts Options) error {
	env := opts.Environment
	if env.ReadFile == nil {
		return nil
	}
	for _, f := range files {
		src, err := env.ReadFile(f.name)
		switch {
		case err == nil:
			if err := s.parse(f, src); err != nil {
				return err
			}
		case f.required:
			return hint.Wrap(fmt.Errorf("read login file %s: %w", f.name, withoutPath(err)),
				"the oci_default_credentials block%s names it in docker_style_config_files", at(opts.Defaults.Origin))
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
			if f.named {
				opts.Log.Warn("the login file that REGISTRY_AUTH_FILE names does not exist", "file", f.name)
			}
			s.empty = append(s.empty, empty{source: "the login file " + f.name, reason: "it does not exist"})
		default:
			return hint.Wrap(fmt.Errorf("read login file %s: %w", f.name, withoutPath(err)),
				"make the file readable, or name another one in REGISTRY_AUTH_FILE or DOCKER_CONFIG")
		}
	}
	return nil
}
