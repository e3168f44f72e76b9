package deploy_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// image is the content of a container file as deploycheck decodes it.
type image struct {
	Args   map[string]string
	Stages []struct {
		Name, Base string
		Steps      []instruction
	}
}

type instruction struct {
	Name, Run, From, Owner string
	Words                  []string
	Values                 map[string]string
}

func containerFile(t *testing.T) image {
	t.Helper()
	text, err := os.ReadFile("container/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	return checked[image](t, "dockerfile", text)
}

func TestContainerFile(t *testing.T) {
	t.Parallel()
	file := containerFile(t)
	last := file.Stages[len(file.Stages)-1]
	if last.Base != "scratch" {
		t.Errorf("the image is made from %s", last.Base)
	}
	words := map[string]string{}
	for _, step := range last.Steps {
		words[step.Name] = strings.Join(step.Words, " ")
	}
	for name, want := range map[string]string{"USER": "65532:65532", "ENTRYPOINT": "/usr/bin/ocibridge", "CMD": "serve", "VOLUME": "/var/lib/ocibridge /var/cache/ocibridge"} {
		if words[name] != want {
			t.Errorf("%s is %q, want %q", name, words[name], want)
		}
	}
	// Images are built with the same Go version as releases.
	if got := file.Args["GO_IMAGE"]; !strings.HasSuffix(got, ":"+strings.TrimPrefix(goVersion(t), "go")) {
		t.Errorf("GO_IMAGE is %s, and tests run with %s", got, goVersion(t))
	}
}

func goVersion(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOVERSION").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestContainerChecks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"no version":      {"FROM golang\n", "exact version"},
		"a moving tag":    {"FROM golang:1.26\n", "exact version"},
		"a secret":        {"FROM scratch\nENV API_TOKEN=x\n", "SecretsUsedInArgOrEnv"},
		"no such command": {"FROM scratch\nRUNS x\n", "unknown instruction"},
		"a shell between": {"FROM scratch\nUSER 1\nCMD serve\n", "JSONArgsRecommended"},
	} {
		cmd := command(t, "deploycheck", "dockerfile", "-")
		cmd.Stdin = strings.NewReader(c.text)
		t.Run(name, func(t *testing.T) { refused(t, cmd, c.want) })
	}
}

// buildImage builds the image without a container engine. This machine replaces the base image. buildImage runs
// the commands of the first stage on a copy of the tree, and copies the files of the last stage into a new
// root. It returns the new root and the environment of the image.
func buildImage(t *testing.T) (root string, env []string) {
	t.Helper()
	file := containerFile(t)
	src, root := t.TempDir(), t.TempDir()
	copyTree(t, src, dockerignore(t))
	for _, step := range file.Stages[0].Steps {
		env = append(env, assignments(step)...)
		if step.Run == "" {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", step.Run)
		cmd.Dir = src
		cmd.Env = append(append(os.Environ(), env...), "TARGETOS="+runtime.GOOS, "TARGETARCH="+runtime.GOARCH, "GOTOOLCHAIN=local", "GOFLAGS=", "GOWORK=off")
		output(t, cmd)
	}
	env = nil
	for _, step := range file.Stages[1].Steps {
		switch step.Name {
		case "ENV":
			env = append(env, assignments(step)...)
		case "COPY":
			from, ok := strings.CutPrefix(step.Words[0], "/src/")
			if step.From != file.Stages[0].Name || !ok {
				t.Fatalf("COPY %v from %q", step.Words, step.From)
			}
			copyInto(t, filepath.Join(src, from), filepath.Join(root, step.Words[1]), step.Owner)
		}
	}
	return root, env
}

func assignments(step instruction) (out []string) {
	if step.Name != "ENV" && step.Name != "ARG" {
		return nil
	}
	for name, value := range step.Values {
		out = append(out, name+"="+value)
	}
	return out
}

// dockerignore returns the paths that container engines exclude from a build.
func dockerignore(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	leave := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			leave[line] = true
		}
	}
	return leave
}

// copyTree copies the files under version control to another folder. It leaves out the top-level folders that
// leave contains.
func copyTree(t *testing.T, to string, leave map[string]bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir, cmd.Env = "..", testkit.GitEnv(os.Environ())
	for name := range strings.SplitSeq(strings.TrimRight(string(output(t, cmd)), "\x00"), "\x00") {
		if top, _, _ := strings.Cut(name, "/"); leave[top] {
			continue
		}
		data, err := os.ReadFile(filepath.Join("..", name))
		if os.IsNotExist(err) {
			continue // the file was deleted, but is still in the index of git
		}
		if err == nil {
			err = os.MkdirAll(filepath.Join(to, path.Dir(name)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// copyInto copies the content of a folder, including modes. It changes the owner only if this process is root.
func copyInto(t *testing.T, from, to, owner string) {
	t.Helper()
	uid, gid := 0, 0
	if owner != "" {
		if _, err := fmt.Sscanf(owner, "%d:%d", &uid, &gid); err != nil {
			t.Fatalf("the owner %q is not given by numbers", owner)
		}
	}
	err := filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == from {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		relative, _ := filepath.Rel(from, name)
		target := filepath.Join(to, relative)
		if d.IsDir() {
			err = os.MkdirAll(target, 0o700)
		} else if data, rerr := os.ReadFile(name); rerr != nil {
			err = rerr
		} else {
			err = os.WriteFile(target, data, 0o600)
		}
		if err == nil {
			err = os.Chmod(target, info.Mode())
		}
		if err == nil && os.Getuid() == 0 {
			err = os.Chown(target, uid, gid)
		}
		return err
	})
	if err == nil {
		err = os.Chmod(to, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// project is the content of a compose file as deploycheck decodes it.
type project struct {
	Services map[string]struct {
		Command     []string
		Environment map[string]string
		User        string
		Healthcheck struct{ Test []string }
		Volumes     []struct{ Type, Source, Target string }
		Tmpfs       []string
	}
}

func composed(t *testing.T) (p project) {
	t.Helper()
	if err := json.Unmarshal(output(t, command(t, "deploycheck", "compose", "compose/compose.yaml")), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCompose(t *testing.T) {
	t.Parallel()
	services := composed(t).Services
	for _, name := range []string{"registry", "sync", "gateway"} {
		if _, ok := services[name]; !ok {
			t.Errorf("no service %s", name)
		}
	}
	output(t, command(t, "ocibridge", "config", "check", "compose/ocibridge.hcl"))
}

func TestComposeChecks(t *testing.T) {
	t.Parallel()
	good, err := os.ReadFile("compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ from, to, want string }{
		"unknown setting": {"cap_drop:", "cap_drops:", "cap_drops"},
		"no such volume":  {"volumes:\n  data: {}", "volumes:\n  datum: {}", "data"},
		"no such service": {"depends_on:\n      registry:", "depends_on:\n      registries:", "registries"},
		"writable":        {"read_only: true", "read_only: false", "writable"},
		"root":            {`user: "65532:65532"`, `user: "0"`, "root"},
		"image":           {"registry:3.0.0", "registry:3", "exact version"},
		"port":            {"127.0.0.1:8443", "8443", "open to the network"},
	} {
		cmd := command(t, "deploycheck", "compose", "-")
		cmd.Stdin = strings.NewReader(strings.Replace(string(good), c.from, c.to, 1))
		t.Run(name, func(t *testing.T) { refused(t, cmd, c.want) })
	}
}
