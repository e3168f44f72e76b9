package deploy_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestActionExecutes shows that the action runs its commands in the working directory, and that the first failure
// ends the step with the command's exit status. The commands see the job's own variables.
func TestActionExecutes(t *testing.T) {
	t.Parallel()
	release := publishBridge(t)
	for name, c := range map[string]struct {
		run    string
		status int
		want   string
	}{
		"several lines":   {"echo one\necho two in ${PWD##*/}", 0, "one\ntwo in infra\n"},
		"a status":        {"echo one\nexit 7", 7, "one\n"},
		"the job's env":   {"echo $RUN $TEMPLATE", 0, "mine yours\n"},
		"a first failure": {"echo one\nfalse | true\necho two", 1, "one\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRunner(t)
			r.env = []string{"RUN=mine", "TEMPLATE=yours"}
			clients.Must(t, os.Mkdir(filepath.Join(r.dir, "infra"), 0o755))
			out, err := r.run("exec", release.with("run", c.run, "template", "localhost:1/${hostname}/${namespace}/${type}", "working-directory", "infra"))
			out, note, _ := strings.Cut(out, "note: the command requested nothing from exec")
			if status(err) != c.status || !strings.HasSuffix(out, ")\n"+c.want) || (note != "") != (c.status != 0) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// status returns the exit status of a command that has ended with err.
func status(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// pushed has a registry with the author's provider, and a folder with a configuration that uses the provider. The
// provider's origin is down.
func pushed(t *testing.T) (a author, dir string) {
	t.Helper()
	r := newRunner(t)
	a = newAuthor(t, r.dir)
	r.login(a.registry.Host, registryUser, registryPassword)
	inputs := map[string]string{"as": ownProvider, "template": a.template, "public-key": "release-key.asc"}
	r.path = filepath.Dir(command(t, "ocibridge").Path) + string(os.PathListSeparator) + r.path
	if out, err := r.run("push", inputs); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	clients.Must(t, a.Close())
	dir = t.TempDir()
	infra := filepath.Join(dir, "infra")
	clients.Must(t, os.Mkdir(infra, 0o755))
	clients.Must(t, os.WriteFile(filepath.Join(infra, "main.tf"), []byte(world.UseNull("3.2.4")), 0o644))
	return a, dir
}

// clientEnv returns the environment of Terraform and OpenTofu. The CLI configuration keeps exec from looking for
// the provider's origin in the network.
func (a author) clientEnv(t *testing.T) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cli.tfrc")
	clients.Must(t, os.WriteFile(file, []byte(a.HostBlock()), 0o600))
	return []string{"CHECKPOINT_DISABLE=1", "TF_CLI_CONFIG_FILE=" + file}
}

// wantLocked checks that the lock file in a folder has the signed checksums of all packages.
func (a author) wantLocked(t *testing.T, dir string) {
	t.Helper()
	ws := &clients.Workspace{Dir: dir}
	signed := 0
	for _, h := range ws.MustLock(t)[world.Null].Hashes {
		if strings.HasPrefix(h, "zh:") {
			signed++
		}
	}
	if signed < a.packages {
		t.Errorf("the lock file has %d signed checksums", signed)
	}
}

// TestActionInstallsProviders shows that Terraform and OpenTofu install from the registry in the action, with the
// login of docker/login-action. The template is an input of the action, or in ocibridge.hcl.
func TestActionInstallsProviders(t *testing.T) {
	t.Parallel()
	a, dir := pushed(t)
	release := publishBridge(t)
	settings := fmt.Sprintf("oci_mirror {\n  repository_template = %q\n}\n", a.template)
	for client, c := range map[string]struct{ template, file string }{
		"terraform": {a.template, ""},
		"tofu":      {"", settings},
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			r := newRunner(t)
			r.env, r.path = a.clientEnv(t), clientPath(t)
			clients.Must(t, os.CopyFS(r.dir, os.DirFS(dir)))
			infra := filepath.Join(r.dir, "infra")
			clients.Must(t, os.WriteFile(filepath.Join(infra, "ocibridge.hcl"), []byte(c.file), 0o644))
			r.login(a.registry.Host, registryUser, registryPassword)
			commands := client + " init -no-color\n" + client + " plan -no-color"
			out, err := r.run("exec", release.with("template", c.template, "working-directory", "infra", "run", commands))
			if err != nil || !strings.Contains(out, "1 to add") {
				t.Fatalf("%v\n%s", err, out)
			}
			a.wantLocked(t, infra)
		})
	}
}

// TestGitLabInstallsProviders shows that the example in docs/howto/ci.md installs from the registry, and plans.
func TestGitLabInstallsProviders(t *testing.T) {
	t.Parallel()
	a, dir := pushed(t)
	dir = filepath.Join(dir, "infra")
	variables := append(a.clientEnv(t), "CI_REGISTRY="+a.registry.Host, "CI_REGISTRY_USER="+registryUser, "CI_REGISTRY_PASSWORD="+registryPassword)
	out, err := gitlab(t, dir, gitlabExample(t, a.template, publishBridge(t)), "plan", variables...)
	if err != nil || !strings.Contains(out, "1 to add") {
		t.Errorf("%v\n%s", err, out)
	}
	a.wantLocked(t, dir)
}
