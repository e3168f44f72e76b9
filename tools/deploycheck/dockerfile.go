package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
	"github.com/opencontainers/go-digest"
)

// containerFile contains the instructions of a container file, in order.
type containerFile struct {
	Args   map[string]string `json:"args"`
	Stages []stage           `json:"stages"`
}

type stage struct {
	Name  string `json:"name"`
	Base  string `json:"base"`
	Steps []step `json:"steps"`
}

// step is one instruction. Only the fields for the instruction's kind are set.
type step struct {
	Name   string            `json:"name"`
	Run    string            `json:"run,omitempty"`
	Words  []string          `json:"words,omitempty"` // the sources and the destination of COPY, or the command of ENTRYPOINT and CMD
	From   string            `json:"from,omitempty"`
	Owner  string            `json:"owner,omitempty"`
	Values map[string]string `json:"values,omitempty"` // the values of ARG, ENV and LABEL
}

// dockerfile reads a container file with BuildKit's parser and linter.
func dockerfile(_ string, data []byte) (any, []error) {
	parsed, err := parser.Parse(bytes.NewReader(data))
	if err != nil {
		return nil, []error{err}
	}
	stages, args, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		return nil, []error{err}
	}
	errs := lint(data)
	file := containerFile{Args: map[string]string{}}
	for _, a := range args {
		for _, kv := range a.Args {
			file.Args[kv.Key] = kv.ValueString()
		}
	}
	names := map[string]bool{"scratch": true}
	for _, s := range stages {
		base, unset, err := expand(s.BaseName, file.Args)
		if err != nil || unset {
			errs = append(errs, fmt.Errorf("FROM %s: an argument is not set, or %v", s.BaseName, err))
		} else if !names[base] {
			if err := pinned(base); err != nil {
				errs = append(errs, err)
			}
		}
		names[s.Name] = true
		out := stage{Name: s.Name, Base: base}
		for _, c := range s.Commands {
			st, err := read(c)
			if err != nil {
				errs = append(errs, err)
			}
			out.Steps = append(out.Steps, st)
		}
		file.Stages = append(file.Stages, out)
	}
	return file, errs
}

// lint does the same as docker build --check. It converts the file for BuildKit, and
// applies all lint rules. It sends no requests to registries.
func lint(data []byte) (errs []error) {
	_, err := dockerfile2llb.Dockerfile2LLB(context.Background(), data, dockerfile2llb.ConvertOpt{
		MetaResolver: noRegistry{},
		AllStages:    true,
		Warn: func(rule, _, _, message string, _ []parser.Range) {
			errs = append(errs, fmt.Errorf("%s: %s", rule, message))
		},
	})
	if err != nil {
		errs = append(errs, err)
	}
	return errs
}

// noRegistry resolves every image to an empty configuration.
type noRegistry struct{}

func (noRegistry) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	const none = "{}"
	return ref, digest.FromString(none), []byte(none), nil
}

func expand(word string, args map[string]string) (string, bool, error) {
	var env []string
	for k, v := range args {
		env = append(env, k+"="+v)
	}
	result, err := shell.NewLex('\\').ProcessWordWithMatches(word, shell.EnvsFromSlice(env))
	return result.Result, len(result.Unmatched) > 0, err
}

func read(c instructions.Command) (step, error) {
	st := step{Name: strings.ToUpper(c.Name()), Values: map[string]string{}}
	switch c := c.(type) {
	case *instructions.RunCommand:
		if !c.PrependShell || len(c.CmdLine) != 1 {
			return st, fmt.Errorf("RUN in another form than that for the shell: %s", c)
		}
		st.Run = c.CmdLine[0]
	case *instructions.CopyCommand:
		st.From, st.Owner = c.From, c.Chown
		st.Words = append(append(st.Words, c.SourcePaths...), c.DestPath)
	case *instructions.ArgCommand:
		for _, kv := range c.Args {
			st.Values[kv.Key] = kv.ValueString()
		}
	case *instructions.EnvCommand:
		for _, kv := range c.Env {
			st.Values[kv.Key] = kv.Value
		}
	case *instructions.LabelCommand:
		for _, kv := range c.Labels {
			st.Values[kv.Key] = kv.Value
		}
	case *instructions.EntrypointCommand:
		st.Words = c.CmdLine
	case *instructions.CmdCommand:
		st.Words = c.CmdLine
	case *instructions.HealthCheckCommand:
		st.Words = c.Health.Test
	case *instructions.UserCommand:
		st.Words = []string{c.User}
	case *instructions.WorkdirCommand:
		st.Words = []string{c.Path}
	case *instructions.VolumeCommand:
		st.Words = c.Volumes
	case *instructions.ExposeCommand:
		st.Words = c.Ports
	default:
		return st, fmt.Errorf("%s: an instruction that nothing here tests", st.Name)
	}
	return st, nil
}
