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
)

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
