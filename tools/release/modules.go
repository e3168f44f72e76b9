package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// module is a Go module that is linked into the program.
type module struct {
	Path, Version, Sum string
	Dir                string
	Licence            string // an SPDX expression
	Texts              []string
}

// standard is the name of the standard library, which is not a module.
const standard = "std"

// modulesOf returns the modules that are linked into a program, with their licences.
func modulesOf(b *builder, program string) ([]module, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	modules := []module{{Path: standard, Version: strings.TrimPrefix(info.GoVersion, "go")}}
	for _, d := range info.Deps {
		if d.Replace != nil {
			return nil, fmt.Errorf("%s is replaced by %s", d.Path, d.Replace.Path)
		}
		modules = append(modules, module{Path: d.Path, Version: d.Version, Sum: d.Sum})
	}
	return modules, locate(b, modules)
}

// linked returns the modules that are linked into the program for any platform.
func linked(b *builder) ([]module, error) {
	found := map[string]module{standard: {Path: standard}}
	for _, platform := range b.platforms {
		system, architecture, _ := strings.Cut(platform, "_")
		out, err := b.runEnv([]string{"GOOS=" + system, "GOARCH=" + architecture}, "go", "list", "-deps",
			"-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", "./cmd/ocibridge")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(out)) {
			if path, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				found[path] = module{Path: path, Version: version}
			}
		}
	}
	var modules []module
	for _, m := range found {
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return modules, locate(b, modules)
}

// locate finds the folders of the modules, and reads their licences.
func locate(b *builder, modules []module) error {
	args := []string{"list", "-m", "-json"}
	for _, m := range modules {
		if m.Path != standard {
			args = append(args, m.Path)
		}
	}
	out, err := b.run("go", args...)
	if err != nil {
		return err
	}
	dirs := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Dir string }
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		dirs[m.Path] = m.Dir
	}
	root, err := b.run("go", "env", "GOROOT")
	if err != nil {
		return err
	}
	dirs[standard] = strings.TrimSpace(string(root))
	for i := range modules {
		m := &modules[i]
		if m.Dir = dirs[m.Path]; m.Dir == "" {
			return fmt.Errorf("%s is not in the module cache: go mod download", m.Path)
		}
		if err := m.read(); err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
	}
	return nil
}

// read reads the module's licence files. The licences of the module's documents (.docs)
// do not apply to the program.
func (m *module) read() error {
	files, err := os.ReadDir(m.Dir)
	if err != nil {
		return err
	}
	var licences []string
	for _, f := range files {
		name := strings.ToUpper(f.Name())
		is := func(prefixes ...string) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		}
		if f.IsDir() || strings.HasSuffix(name, ".GO") || strings.HasSuffix(name, ".DOCS") || !is("LICENSE", "LICENCE", "UNLICENSE", "COPYING", "NOTICE", "PATENTS") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(m.Dir, f.Name()))
		if err != nil {
			return err
		}
		m.Texts = append(m.Texts, string(text))
		if is("NOTICE", "PATENTS") {
			continue
		}
		found := recognise(string(text))
		if len(found) == 0 {
			return fmt.Errorf("%s is a licence that nothing here knows", f.Name())
		}
		licences = append(licences, found...)
	}
	if len(licences) == 0 {
		return errors.New("there is no licence in its folder")
	}
	slices.Sort(licences)
	m.Licence = strings.Join(slices.Compact(licences), " AND ")
	return nil
}
