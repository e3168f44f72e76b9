package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// pageBlock returns the part of docs/howto/deployment.md that a pattern's group matches.
func pageBlock(t *testing.T, pattern string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/howto/deployment.md")
	clients.Must(t, err)
	m := regexp.MustCompile(pattern).FindStringSubmatch(string(text))
	if m == nil {
		t.Fatalf("docs/howto/deployment.md has no %s", pattern)
	}
	return m[1]
}

// TestDeploymentValues renders the chart with the arguments and values in docs/howto/deployment.md.
func TestDeploymentValues(t *testing.T) {
	t.Parallel()
	values := filepath.Join(t.TempDir(), "values.yaml")
	clients.Must(t, os.WriteFile(values, []byte(pageBlock(t, "(?s)```yaml\n(image:.*?)```")), 0o600))
	args := strings.Fields(pageBlock(t, `(?m)^helm install (.*)$`))
	for i, arg := range args {
		args[i] = strings.NewReplacer("deploy/helm/", "helm/", "values.yaml", values).Replace(arg)
	}
	out := output(t, command(t, "helm", append([]string{"template", "--kube-version", kubeVersions[0]}, args...)...))
	if !strings.Contains(string(out), "registry.example.com/ocibridge:") || !strings.Contains(string(out), "harbor.example.com/providers/${hostname}") {
		t.Errorf("rendered:\n%s", out)
	}
}

// TestDeploymentContainer checks the configuration for the container in docs/howto/deployment.md.
func TestDeploymentContainer(t *testing.T) {
	t.Parallel()
	settings := pageBlock(t, "(?s)\n## Container\n.*?\n```hcl\n(# ocibridge.hcl\n.*?)```")
	checkConfig(t, strings.ReplaceAll(settings, "tls/tls.pem", "tls/tls.crt"))
}

// TestDeploymentUnits runs the commands for systemd in docs/howto/deployment.md, in a root folder of their own.
// Its systemctl only checks that each named unit is installed, and its login only for which registry and file it is.
func TestDeploymentUnits(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	const functions = `install() { # the last argument is below $ROOT
	for last; do :; done
	mkdir -p "$ROOT${last%/*}"
	set -- "$@" "$ROOT$last"
	command install "${@:1:$#-2}" "${@:$#}"
}
ocibridge() { [ "$* $DOCKER_CONFIG" = "login registry.example.com /etc/ocibridge/credentials" ]; }
systemctl() {
	for unit; do
		case $unit in *.service | *.timer) [ -f "$ROOT/etc/systemd/system/$unit" ] || { echo "no $unit"; exit 1; } ;; esac
	done
}
`
	clone := filepath.Join(root, "clone")
	clients.Must(t, os.CopyFS(filepath.Join(clone, "deploy", "systemd"), os.DirFS("systemd")))
	clients.Must(t, os.Mkdir(filepath.Join(clone, "bin"), 0o700))
	settings := pageBlock(t, "(?s)\n## systemd\n.*?\n```hcl\n(# ocibridge.hcl\n.*?)```")
	checkConfig(t, strings.NewReplacer("/run/credentials/ocibridge.service/tls.pem", "/etc/ocibridge/tls.crt", "/run/credentials/ocibridge.service", "/etc/ocibridge").Replace(settings))
	for _, name := range []string{"bin/ocibridge", "ocibridge.hcl", "tls.pem", "tls.key"} {
		clients.Must(t, os.WriteFile(filepath.Join(clone, name), nil, 0o600))
	}
	commands := pageBlock(t, "(?s)\n## systemd\n.*?\n```sh\n(.*?)```")
	cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-c", functions+commands)
	cmd.Dir, cmd.Env = clone, append(os.Environ(), "ROOT="+root)
	output(t, cmd)
	for file, mode := range map[string]os.FileMode{
		"usr/local/bin/ocibridge": 0o755, "etc/ocibridge/ocibridge.hcl": 0o644, "etc/systemd/system/ocibridge.service": 0o644,
		"etc/ocibridge/credentials": 0o700 | os.ModeDir, "etc/ocibridge/credentials/tls.pem": 0o600, "etc/ocibridge/credentials/tls.key": 0o600,
	} {
		if info, err := os.Stat(filepath.Join(root, file)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v, want the mode %v", file, info, err, mode)
		}
	}
}
