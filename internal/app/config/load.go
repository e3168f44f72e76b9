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

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// Environment gives access to the variables and files that the configuration depends on.
// LookupEnv and ReadFile behave like [os.LookupEnv] and [os.ReadFile], and return the same
// errors.
type Environment struct {
	LookupEnv func(string) (string, bool)
	ReadFile  func(string) ([]byte, error)
	// Mode returns the permission bits of a file. If it is nil, [Config.CheckFiles] checks no modes, as on Windows.
	Mode func(string) (fs.FileMode, error)
	// Above lists the folders above the working folder that Load searches for the file, nearest first; see [files.Above].
	// IsOwn is [files.IsOwn]. It is not called if Above is empty.
	Above []string
	IsOwn func(string) (bool, error)
	Home  string // the user's home folder; "" if there is none
	GOOS  string // like runtime.GOOS; it decides where the file is, and the syntax of paths
	Use   Use
}

// Use says which values of the gateway block a command uses. In a configuration that several
// machines share, the functions env and file may read variables and files that only the
// gateway's machine has. On other machines, only the commands that use these values fail.
type Use int

// The zero value is Serve.
const (
	Serve      Use = iota // every value is used
	OwnGateway            // like exec: the values that say how other machines reach a gateway are not used
	NoGateway             // only the values that say what the gateway serves, and at which address, are used
)

// needs reports whether a command uses the value at path.
func (u Use) needs(path string) bool {
	inner, isGateway := strings.CutPrefix(path, "gateway.")
	if u == Serve || !isGateway {
		return true
	}
	switch name, _, _ := strings.Cut(inner, "."); name {
	case "tls", "http", "metrics_listen", "redirect", "capability_key_file", "token", "oidc", "login":
		return false
	case "cache", "tag_ttl", "stale_if_error", "shutdown_delay", "shutdown_timeout":
		return u == OwnGateway
	}
	return true
}

// errMissing means that a variable is not set or that a file cannot be read. Both may exist on another machine.
var errMissing = errors.New("missing here")

// missingError makes an error match errMissing, and keeps the error's own text.
type missingError struct{ error }

// Is implements the interface of [errors.Is].
func (missingError) Is(target error) bool { return target == errMissing }

const (
	fileName = "ocibridge.hcl"
	variable = "OCIBRIDGE_CONFIG"

	// maxFile is the maximum size in bytes of the configuration file. A file of this size
	// holds a few thousand provider blocks.
	maxFile = 256 << 10
)

// Load reads the configuration file at the path name. If name is "", Load reads the file that
// the variable OCIBRIDGE_CONFIG names. A file that is named in one of these ways must exist.
// If no file is named, Load reads the first existing file of [Environment.Places]. It returns
// the zero configuration if none of these files exists. Load does not skip a file that exists
// but cannot be read, because the next file can contain other settings. For the same reason,
// a file above the working folder that belongs to another user is an error, as it is for git.
// For an invalid file, the error is an [*Error].
func Load(env Environment, name string) (*Config, error) {
	places, by := env.Places(), ""
	help := "make it readable, or name another one in " + variable
	if name == "" && env.getenv(variable) != "" {
		name, by = env.getenv(variable), ", which "+variable+" names"
	}
	if name != "" {
		places, help = []string{name}, fmt.Sprintf("correct its name; with none, %s is looked for in its usual places", fileName)
	}
	for i, place := range places {
		if name == "" && 0 < i && i <= len(env.Above) {
			if own, err := env.IsOwn(place); err == nil && !own {
				return nil, hint.New(fmt.Sprintf("the configuration file %s belongs to another user", place),
					"it was found above the working folder: if you trust it, name it in %s; else an empty %s in the working folder hides it", variable, fileName)
			}
		}
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

// Places returns the files that Load tries if no file is named, in order: in the working folder
// and above it, in the user's configuration folder, and in the system's configuration folder.
func (env Environment) Places() []string {
	places, paths := []string{fileName}, files.Paths(env.GOOS)
	for _, dir := range env.Above {
		places = append(places, paths.Join(dir, fileName))
	}
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

// beside resolves path. A relative path is relative to the folder that contains file.
func (env Environment) beside(file, path string) string {
	return files.Paths(env.GOOS).RelativeTo(file, path)
}

// maxValueFile is the maximum size in bytes of a file that the function file("PATH") reads.
// These files contain tokens and keys.
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
		return "", missingError{fmt.Errorf("the environment variable %s is not set", name)}
	case !utf8.ValidString(v):
		return "", fmt.Errorf("the environment variable %s is not UTF-8", name)
	}
	return v, nil
}

// content returns the text of a file. It drops the line end after the last line, because
// most programs write a line end there.
func (env Environment) content(name string) (string, error) {
	b, err := env.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", missingError{fmt.Errorf("the file %s does not exist", name)}
	case err != nil:
		return "", missingError{fmt.Errorf("read %s: %v", name, files.Cause(err))}
	case len(b) > maxValueFile:
		return "", fmt.Errorf("the file %s has more than %d KiB", name, maxValueFile>>10)
	case !utf8.Valid(b):
		return "", fmt.Errorf("the file %s is not UTF-8", name)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
}
