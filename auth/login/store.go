package login

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Stored says where [Logins.Store] has stored a login, or where [Logins.Remove] has removed it.
type Stored struct {
	File   string      // the login file
	Helper string      // the name after docker-credential- of the helper that File names; "" if the login is in File itself
	Mode   fs.FileMode // the permissions of File if the login is in File itself
}

// String describes where the login is.
func (s Stored) String() string {
	if s.Helper != "" {
		return fmt.Sprintf("the helper %s%s, which %s names", helperPrefix, s.Helper, s.File)
	}
	return s.File
}

// ErrNotLoggedIn means that there is no login to remove.
var ErrNotLoggedIn = errors.New("not logged in")

// Store stores a user name and a password for r and the repositories below it, or for the whole
// registry if r has no name. It does not check them. It writes where docker writes: to the helper
// that the login file names for the registry, or to the login file itself. The file is the file
// that REGISTRY_AUTH_FILE names, config.json in the folder that DOCKER_CONFIG names, or
// ~/.docker/config.json. Other content of the file stays, and so do its permissions. A new file is
// readable by its owner only. If docker edits the file at the same time, one of the two changes may
// be lost.
func (s *Logins) Store(ctx context.Context, r ociaddr.Repository, username string, password Secret) (Stored, error) {
	e, err := s.opts.Environment.openLoginFile(r)
	if err != nil {
		return Stored{}, err
	}
	switch {
	case e.helper == "":
		entry, err := json.Marshal(wireAuth{Auth: base64.StdEncoding.EncodeToString([]byte(username + ":" + password.Reveal()))})
		if err != nil {
			return Stored{}, err
		}
		if e.has(entry) {
			return e.stored(), nil // the file may be read-only
		}
		e.remove()
		e.auths[e.written] = entry
		return e.stored(), e.write()
	case r.Name != "":
		return Stored{}, hint.New(fmt.Sprintf("%s keeps logins for whole registries only", e.stored()),
			"store the login in an oci_credentials block, or name another file in REGISTRY_AUTH_FILE")
	}
	if err := s.helpers.store(ctx, e.helper, e.written, username, password); err != nil {
		return Stored{}, fmt.Errorf("%s: %w", e.stored(), err)
	}
	// A login in the file, or under another name in the helper, would be found first. Some helpers,
	// such as docker-credential-osxkeychain, have one entry for both names. That entry holds the
	// new login already, and stays.
	stored := auth.Credential{Username: username, Password: password.Reveal()}
	for _, server := range serverNames(r.Registry) {
		if server == e.written {
			continue
		}
		if other, err := s.helpers.run(ctx, e.helper, server); err == nil && !other.empty() && other.reveal() != stored {
			_ = s.helpers.erase(ctx, e.helper, server)
		}
	}
	if e.remove() {
		return e.stored(), e.write()
	}
	return e.stored(), nil
}

// Remove removes what [Logins.Store] has stored for the repository or registry. It returns
// [ErrNotLoggedIn] if there is nothing to remove.
func (s *Logins) Remove(ctx context.Context, r ociaddr.Repository) (Stored, error) {
	e, err := s.opts.Environment.openLoginFile(r)
	if err != nil {
		return Stored{}, err
	}
	found := false
	if e.helper != "" && r.Name == "" {
		for _, server := range serverNames(r.Registry) {
			cred, err := s.helpers.run(ctx, e.helper, server)
			if err == nil && !cred.empty() {
				found, err = true, s.helpers.erase(ctx, e.helper, server)
			}
			if err != nil {
				return Stored{}, fmt.Errorf("%s: %w", e.stored(), err)
			}
		}
	}
	switch {
	case e.remove():
		return e.stored(), e.write()
	case !found:
		return e.stored(), ErrNotLoggedIn
	}
	return e.stored(), nil
}

// loginFileEdit is a login file whose entry for one key is edited.
type loginFileEdit struct {
	name    string // as the user knows the file
	path    string // the target of name if name is a link
	mode    fs.FileMode
	content map[string]json.RawMessage
	auths   map[string]json.RawMessage
	key     key
	written string // the name of the entry, as docker writes it
	helper  string // for the key's registry; "" if the file names none
}

// openLoginFile reads the login file that docker would write, for an edit of the entry for a
// repository or registry.
func (env Environment) openLoginFile(r ociaddr.Repository) (*loginFileEdit, error) {
	name, err := env.writtenLoginFile()
	if err != nil {
		return nil, err
	}
	e := &loginFileEdit{name: name, path: name, mode: 0o600, key: key{host: r.Registry.Canonical(), path: r.Name}}
	if e.written = e.key.String(); e.key == (key{host: ociaddr.DockerHub}) {
		e.written = hubKey
	}
	if err := e.read(); err != nil {
		return nil, fmt.Errorf("the login file %s: %w", name, err)
	}
	return e, nil
}

// writtenLoginFile returns the login file that a new login is written to.
func (env Environment) writtenLoginFile() (string, error) {
	paths := files.Paths(env.GOOS)
	switch {
	case env.Variable("REGISTRY_AUTH_FILE") != "":
		return env.Variable("REGISTRY_AUTH_FILE"), nil
	case env.Variable("DOCKER_CONFIG") != "":
		return paths.Join(env.Variable("DOCKER_CONFIG"), "config.json"), nil
	case env.Home != "":
		return paths.Join(env.Home, ".docker", "config.json"), nil
	}
	return "", hint.New("the user has no home folder, in which the login file would be", "name a file in REGISTRY_AUTH_FILE")
}

// read reads the file, if it exists, and finds the helper for the key.
func (e *loginFileEdit) read() error {
	src, err := files.Read(e.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return files.Cause(err)
	default:
		if e.path, err = filepath.EvalSymlinks(e.name); err != nil {
			return files.Cause(err)
		}
		info, err := os.Stat(e.path)
		if err != nil {
			return files.Cause(err)
		}
		e.mode = info.Mode().Perm()
	}
	wire, err := decodeLoginFile(src, false)
	if err != nil {
		return err
	}
	e.helper = wire.helperFor(e.key.host)
	if e.helper != "" && !validHelper(e.helper) {
		return hint.New(fmt.Sprintf("it names the helper %q, which holds a path", e.helper), "%s", helperHelp)
	}
	if src = trimLoginFile(src); len(src) > 0 {
		if err := json.Unmarshal(src, &e.content); err != nil {
			return invalidLoginFile(src, err)
		}
	}
	if auths := e.content["auths"]; auths != nil {
		if err := json.Unmarshal(auths, &e.auths); err != nil {
			return invalidLoginFile(src, err)
		}
	}
	if e.content == nil { // there is no file, or it contains null
		e.content = map[string]json.RawMessage{}
	}
	if e.auths == nil {
		e.auths = map[string]json.RawMessage{}
	}
	return nil
}

// helperFor returns the helper that a login file names for a host, or "" if it names none.
func (w wireFile) helperFor(host ociaddr.Registry) string {
	for _, name := range sortedKeys(w.CredHelpers) {
		if k, ok := parseKey(name); ok && k.host == host && k.path == "" {
			return w.CredHelpers[name]
		}
	}
	return w.CredsStore
}

// stored describes where the login is.
func (e *loginFileEdit) stored() Stored {
	if e.helper != "" && e.key.path == "" {
		return Stored{File: e.name, Helper: e.helper}
	}
	return Stored{File: e.name, Mode: e.mode}
}

// has reports whether the file has exactly this entry for the key, and no other entry for it.
func (e *loginFileEdit) has(entry json.RawMessage) bool {
	rest := &loginFileEdit{key: e.key, auths: maps.Clone(e.auths)}
	var old, new wireAuth
	err := errors.Join(json.Unmarshal(e.auths[e.written], &old), json.Unmarshal(entry, &new))
	delete(rest.auths, e.written)
	return err == nil && old == new && !rest.remove()
}

// remove removes all entries for the key, however they are written. It reports whether there was
// an entry. Empty entries remain, because they hold no login.
func (e *loginFileEdit) remove() bool {
	before := len(e.auths)
	for name, entry := range e.auths {
		k, ok := parseKey(name)
		var w wireAuth
		if ok && k.host == e.key.host && k.path == e.key.path && (json.Unmarshal(entry, &w) != nil || w != (wireAuth{})) {
			delete(e.auths, name)
		}
	}
	return len(e.auths) < before
}

// write replaces the file in one step.
func (e *loginFileEdit) write() error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "\t")
	auths, err := json.Marshal(e.auths)
	if err == nil {
		e.content["auths"] = auths
		err = enc.Encode(e.content)
	}
	if err == nil {
		err = privatefolder.Write(e.path, out.Bytes())
	}
	if err == nil && e.mode != 0o600 {
		err = os.Chmod(e.path, e.mode)
	}
	if err != nil {
		return hint.Wrap(fmt.Errorf("write the login file %s: %w", e.name, files.Cause(err)), "make its folder writable, or name another file in REGISTRY_AUTH_FILE")
	}
	return nil
}

// Is reports whether effective, a result of [Logins.Effective], describes the login s.
func (s Stored) Is(effective string) bool {
	return strings.HasSuffix(strings.TrimSuffix(effective, ")"), " in "+s.File)
}

// StoredFor returns the registries and repository prefixes for which the login file has entries.
func (env Environment) StoredFor() []string {
	name, err := env.writtenLoginFile()
	if err != nil || env.ReadFile == nil {
		return nil
	}
	src, _ := env.ReadFile(name)
	wire, err := decodeLoginFile(src, false)
	if err != nil {
		return nil
	}
	var out []string
	for _, written := range slices.Concat(sortedKeys(wire.Auths), sortedKeys(wire.CredHelpers)) {
		if k, ok := parseKey(written); ok && !slices.Contains(out, k.String()) {
			out = append(out, k.String())
		}
	}
	return out
}
