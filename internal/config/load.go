package config

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ocibridge/ocibridge/internal/files"
	"github.com/ocibridge/ocibridge/internal/hint"
)

// Environment has the variables and files that the configuration depends on. LookupEnv and
// ReadFile behave as in package os, errors included.
type Environment struct {
	LookupEnv func(string) (string, bool)
	ReadFile  func(string) ([]byte, error)
	Home      string // the user's folder; none when empty
	GOOS      string // as runtime.GOOS; decides where the file is, and how paths look
}

const (
	fileName = "ocibridge.hcl"
	variable = "OCIBRIDGE_CONFIG"

	// maxFile bounds the file. It has room for a few thousand provider blocks.
	maxFile = 256 << 10
)

// Load reads the file that name, or else the variable OCIBRIDGE_CONFIG, names. That file must
// exist. Without a name, Load reads the first existing file of [Environment.Places], and it
// is no error if none exists. An invalid file is an [*Error].
func Load(env Environment, name string) (*Config, error) {
	what := "the configuration file " + name
	if name == "" {
		name = env.getenv(variable)
		what = fmt.Sprintf("the configuration file %s, which %s names", name, variable)
	}
	if name == "" {
		return env.search()
	}
	src, err := env.ReadFile(name)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("%s: %w", what, files.Cause(err)), "correct its name; with none, %s is looked for in its usual places", fileName)
	}
	return Parse(env, name, src)
}

// search reads the first file that exists. A file that cannot be read is an error, because
// the next one may contain other settings.
func (env Environment) search() (*Config, error) {
	for _, name := range env.Places() {
		src, err := env.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, hint.Wrap(fmt.Errorf("the configuration file %s: %w", name, files.Cause(err)), "make it readable, or name another one in %s", variable)
		}
		return Parse(env, name, src)
	}
	return &Config{}, nil
}

// Places returns the files that Load tries without a name, in order: in the working folder,
// in the user's configuration folder, in the system's.
func (env Environment) Places() []string {
	places, paths := []string{fileName}, files.Paths(env.GOOS)
	if env.GOOS == "windows" {
		if dir := env.getenv("APPDATA"); dir != "" {
			places = append(places, paths.Join(dir, "ocibridge", fileName))
		}
		return places
	}
	if dir := env.getenv("XDG_CONFIG_HOME"); strings.HasPrefix(dir, "/") {
		places = append(places, paths.Join(dir, "ocibridge", fileName))
	} else if env.Home != "" {
		places = append(places, paths.Join(env.Home, ".config", "ocibridge", fileName))
	}
	return append(places, "/etc/ocibridge/"+fileName)
}

func (env Environment) getenv(name string) string {
	v, _ := env.LookupEnv(name)
	return v
}

// beside resolves a path relative to the folder of a file.
func (env Environment) beside(file, path string) string {
	return files.Paths(env.GOOS).Beside(file, path)
}
