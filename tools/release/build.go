package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// documents are the files in every archive. README.md links to the files in docs.
var documents = []string{"README.md", "CHANGELOG.md", "LICENSE", "SECURITY.md", "docs/*.md", "docs/*/*.md", "docs/*/*.hcl", "docs/*/*.json", "docs/images/*.png"}

// host is the platform of this machine.
const host = runtime.GOOS + "_" + runtime.GOARCH

// build builds the release into o.out.
func build(o options, goCache string) error {
	// 1. The version of the release, and its time.
	b := builder{options: o, goCache: goCache}
	if err := b.identify(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "ocibridge-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	// 2. The files that all archives share. The program prints its own completions, and writes its manual pages.
	common, err := b.documents()
	if err != nil {
		return err
	}
	program := filepath.Join(temp, host)
	fmt.Fprintf(os.Stderr, "release: compiling for %s, to print completions and manual pages\n", host)
	if err := b.compile(host, program); err != nil {
		return err
	}
	completions, err := b.completions(program)
	if err != nil {
		return err
	}
	pages, err := b.manPages(program, filepath.Join(temp, "man"))
	if err != nil {
		return err
	}
	common = slices.Concat(common, completions, pages)
	// 3. An archive and an SBOM for each platform.
	var sums []string
	for i, platform := range o.platforms {
		fmt.Fprintf(os.Stderr, "release: %s, %d of %d\n", platform, i+1, len(o.platforms))
		files, err := b.platform(platform, common, filepath.Join(temp, platform))
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		for name, data := range files {
			if err := os.WriteFile(filepath.Join(o.out, name), data, 0o644); err != nil {
				return err
			}
			sums = append(sums, fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name))
		}
	}
	// 4. The checksums of the archives and SBOMs, sorted by file name.
	slices.SortFunc(sums, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	if err := os.WriteFile(filepath.Join(o.out, "SHA256SUMS"), []byte(strings.Join(sums, "")), 0o644); err != nil {
		return err
	}
	fmt.Printf("%s", strings.Join(sums, ""))
	return nil
}

type builder struct {
	options
	goCache string
	time    time.Time
}

// identify sets the version and the time from the checkout, unless a flag gives them.
func (b *builder) identify() error {
	if b.version == "" {
		out, err := b.run("tools/version.sh")
		if err != nil {
			return fmt.Errorf("the version is unknown; give -version: %w", err)
		}
		b.version = strings.TrimSpace(string(out))
	}
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		out, err := b.run("git", "log", "-1", "--format=%ct")
		if err != nil {
			return fmt.Errorf("of when is it? SOURCE_DATE_EPOCH says it: %w", err)
		}
		epoch = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	b.time = time.Unix(seconds, 0).UTC()
	return nil
}

// run runs a program in the project's folder. The environment of the program contains no
// settings of the caller that could change the build.
func (b *builder) run(name string, args ...string) ([]byte, error) {
	return b.runEnv(nil, name, args...)
}

func (b *builder) runEnv(env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = b.root
	for _, v := range os.Environ() {
		switch key, _, _ := strings.Cut(v, "="); key {
		case "GOFLAGS", "GOEXPERIMENT", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOFIPS140", "GODEBUG", "GOCACHE", "GOENV", "GOWORK", "GIT_DIR", "GIT_WORK_TREE":
		default:
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "GOENV=off", "GOWORK=off", "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0")
	if b.goCache != "" {
		cmd.Env = append(cmd.Env, "GOCACHE="+b.goCache)
	}
	cmd.Env = append(cmd.Env, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// compile builds the program for a platform.
func (b *builder) compile(platform, to string) error {
	system, architecture, ok := strings.Cut(platform, "_")
	if !ok {
		return fmt.Errorf("write it as OS_ARCH")
	}
	_, err := b.runEnv([]string{"GOOS=" + system, "GOARCH=" + architecture}, "go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -buildid= -X main.version="+b.version, "-o", to, "./cmd/ocibridge")
	return err
}

func (b *builder) documents() (entries []entry, err error) {
	for _, pattern := range documents {
		names, err := filepath.Glob(filepath.Join(b.root, pattern))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			relative, err := filepath.Rel(b.root, name)
			if err != nil {
				return nil, err
			}
			if entries, err = add(entries, name, filepath.ToSlash(relative), 0o644); err != nil {
				return nil, err
			}
		}
	}
	return entries, nil
}

func add(entries []entry, file, name string, mode os.FileMode) ([]entry, error) {
	data, err := os.ReadFile(file)
	return append(entries, entry{name: name, mode: mode, data: data}), err
}

// completions returns the shell completions that the program prints on this machine.
func (b *builder) completions(program string) (entries []entry, err error) {
	for shell, suffix := range map[string]string{"bash": "bash", "zsh": "zsh", "fish": "fish", "powershell": "ps1"} {
		out, err := b.run(program, "completion", shell)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: "completions/ocibridge." + suffix, mode: 0o644, data: out})
	}
	return entries, nil
}

// manPages returns the manual pages that the program writes into folder on this machine.
func (b *builder) manPages(program, folder string) (entries []entry, err error) {
	if _, err := b.run(program, "man", folder); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.1"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if entries, err = add(entries, file, "man/man1/"+filepath.Base(file), 0o644); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// platform returns the archive and the SBOM of a platform. The keys are the file names.
func (b *builder) platform(platform string, common []entry, program string) (map[string][]byte, error) {
	if platform != host { // build has already compiled the program for the host
		if err := b.compile(platform, program); err != nil {
			return nil, err
		}
	}
	modules, err := modulesOf(b, program)
	if err != nil {
		return nil, err
	}
	texts, err := licenceTexts(b, modules)
	if err != nil {
		return nil, err
	}
	entries := append(slices.Clone(common), entry{name: "THIRD-PARTY-LICENCES.txt", mode: 0o644, data: texts})
	binary, name := "ocibridge", fmt.Sprintf("ocibridge_%s_%s", strings.TrimPrefix(b.version, "v"), platform)
	pack, suffix := tarball, ".tar.gz"
	switch {
	case strings.HasPrefix(platform, "windows_"):
		binary, pack, suffix = "ocibridge.exe", zipfile, ".zip"
	case strings.HasPrefix(platform, "linux_"):
		units, err := filepath.Glob(filepath.Join(b.root, "deploy/systemd/*"))
		if err != nil {
			return nil, err
		}
		for _, unit := range units {
			if entries, err = add(entries, unit, "systemd/"+filepath.Base(unit), 0o644); err != nil {
				return nil, err
			}
		}
	}
	if entries, err = add(entries, program, binary, 0o755); err != nil {
		return nil, err
	}
	archive, err := pack(name, entries, b.time)
	if err != nil {
		return nil, err
	}
	bom, err := sbom(b, modules, platform)
	return map[string][]byte{name + suffix: archive, name + ".cdx.json": bom}, err
}
