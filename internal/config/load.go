package config

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

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
// is no error if none exists. A file that cannot be read is an error, because the next one may
// contain other settings. An invalid file is an [*Error].
func Load(env Environment, name string) (*Config, error) {
	places, by := env.Places(), ""
	help := "make it readable, or name another one in " + variable
	if name == "" && env.getenv(variable) != "" {
		name, by = env.getenv(variable), ", which "+variable+" names"
	}
	if name != "" {
		places, help = []string{name}, fmt.Sprintf("correct its name; with none, %s is looked for in its usual places", fileName)
	}
	for _, place := range places {
		src, err := env.ReadFile(place)
		switch {
		case err == nil:
			return Parse(env, place, src)
		case name != "" || !errors.Is(err, fs.ErrNotExist):
			return nil, hint.Wrap(fmt.Errorf("the configuration file %s%s: %w", place, by, files.Cause(err)), "%s", help)
		}
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

// maxValueFile bounds the files that file() reads, which hold tokens and keys.
const maxValueFile = 64 << 10

// functions returns the functions that expressions may call.
func functions(env Environment, file string) *hcl.EvalContext {
	return &hcl.EvalContext{Functions: map[string]function.Function{
		"env":  textFunction("name", env.variable),
		"file": textFunction("path", func(path string) (string, error) { return env.content(env.beside(file, path)) }),
	}}
}

func textFunction(parameter string, f func(string) (string, error)) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: parameter, Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			s, err := f(args[0].AsString())
			if err != nil {
				return cty.NilVal, err
			}
			return cty.StringVal(s), nil
		},
	})
}

// variable returns the value of an environment variable. An unset variable is an error.
func (env Environment) variable(name string) (string, error) {
	v, ok := env.LookupEnv(name)
	switch {
	case !ok:
		return "", fmt.Errorf("the environment variable %s is not set", name)
	case !utf8.ValidString(v):
		return "", fmt.Errorf("the environment variable %s is not UTF-8", name)
	}
	return v, nil
}

// content returns a file's text without the last line end, because most programs end a file
// with one.
func (env Environment) content(name string) (string, error) {
	b, err := env.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("the file %s does not exist", name)
	case err != nil:
		return "", fmt.Errorf("read %s: %v", name, files.Cause(err))
	case len(b) > maxValueFile:
		return "", fmt.Errorf("the file %s has more than %d KiB", name, maxValueFile>>10)
	case !utf8.Valid(b):
		return "", fmt.Errorf("the file %s is not UTF-8", name)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
}
