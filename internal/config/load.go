package config

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// Environment has the variables and files that the configuration depends on. LookupEnv and
// ReadFile behave as in package os, errors included. Nil means that there are no variables,
// or no files.
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
	src, err := env.readFile(name)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("%s: %w", what, cause(err)), "correct its name; with none, %s is looked for in its usual places", fileName)
	}
	return Parse(env, name, src)
}

// search reads the first file that exists. A file that cannot be read is an error, because
// the next one may contain other settings.
func (env Environment) search() (*Config, error) {
	for _, name := range env.Places() {
		src, err := env.readFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, hint.Wrap(fmt.Errorf("the configuration file %s: %w", name, cause(err)), "make it readable, or name another one in %s", variable)
		}
		return Parse(env, name, src)
	}
	return &Config{}, nil
}

// Places returns the files that Load tries without a name, in order: in the working folder,
// in the user's configuration folder, in the system's.
func (env Environment) Places() []string {
	places := []string{fileName}
	if env.GOOS == "windows" {
		if dir := env.getenv("APPDATA"); dir != "" {
			places = append(places, env.join(dir, "ocibridge", fileName))
		}
		return places
	}
	if dir := env.getenv("XDG_CONFIG_HOME"); strings.HasPrefix(dir, "/") {
		places = append(places, env.join(dir, "ocibridge", fileName))
	} else if env.Home != "" {
		places = append(places, env.join(env.Home, ".config", "ocibridge", fileName))
	}
	return append(places, "/etc/ocibridge/"+fileName)
}

// cause drops the path that a PathError repeats.
func cause(err error) error {
	var perr *fs.PathError
	if errors.As(err, &perr) {
		return perr.Err
	}
	return err
}

func (env Environment) lookupEnv(name string) (string, bool) {
	if env.LookupEnv == nil {
		return "", false
	}
	return env.LookupEnv(name)
}

func (env Environment) getenv(name string) string {
	v, _ := env.lookupEnv(name)
	return v
}

func (env Environment) readFile(name string) ([]byte, error) {
	if env.ReadFile == nil {
		return nil, fs.ErrNotExist
	}
	return env.ReadFile(name)
}

func (env Environment) separators() string {
	if env.GOOS == "windows" {
		return `\/`
	}
	return "/"
}

// join joins a path in the syntax of GOOS. Package filepath only knows the system that the
// program runs on.
func (env Environment) join(elem ...string) string {
	for i := range elem[:len(elem)-1] {
		elem[i] = strings.TrimRight(elem[i], env.separators())
	}
	return strings.Join(elem, env.separators()[:1])
}

// isAbs reports whether a path is absolute.
func (env Environment) isAbs(path string) bool {
	if env.GOOS == "windows" {
		return strings.HasPrefix(path, `\`) || strings.HasPrefix(path, "/") || len(path) > 2 && path[1] == ':' && strings.ContainsRune(`\/`, rune(path[2]))
	}
	return strings.HasPrefix(path, "/")
}

// beside resolves a path relative to the folder of a file.
func (env Environment) beside(file, path string) string {
	i := strings.LastIndexAny(file, env.separators())
	switch {
	case i < 0 || env.isAbs(path):
		return path
	case i == 0:
		return env.separators()[:1] + path
	}
	return env.join(file[:i], path)
}
