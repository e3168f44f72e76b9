package login

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

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
	if variables == nil {
		variables = &source{name: "the variables " + variableRegistry + " and " + variableRegistry + "_...", absent: "not set"}
	}
	s = append(s, variables)
	locations := opts.Environment.loginFiles()
	if d := opts.Defaults; d != nil {
		if d.Helper != "" {
			l := helperLogin(key{}, d.Helper, "oci_default_credentials"+at(d.Origin), inBlock)
			l.miss = blockMiss(d.InCLIConfig)
			s = append(s, l)
		}
		if !d.Discover || d.Files != nil && len(d.Files) == 0 {
			s = append(s, &source{name: "login files of docker and compatible tools", absent: "not looked for, as the oci_default_credentials block" + at(d.Origin) + " says"})
		}
		locations = d.files(locations)
	}
	return s.read(locations, opts)
}

// files returns the login files to read. usual are the login files to read if the block
// names no files.
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
// that a block names is an error. Other files that do not exist are skipped. read logs a
// warning if a variable names the missing file. Other files that cannot be read or parsed
// are skipped with a warning, because the right login may be in a different file.
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
