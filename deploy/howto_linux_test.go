package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
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

// TestDeploymentUnits runs the commands for systemd in docs/howto/deployment.md, in a root folder of their own.
// Its systemctl only checks that each named unit is installed.
func TestDeploymentUnits(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	const functions = `install() { # the last argument is below $ROOT
	for last; do :; done
	mkdir -p "$ROOT${last%/*}"
	set -- "$@" "$ROOT$last"
	command install "${@:1:$#-2}" "${@:$#}"
}
systemctl() {
	for unit; do
		case $unit in *.service | *.timer) [ -f "$ROOT/etc/systemd/system/$unit" ] || { echo "no $unit"; exit 1; } ;; esac
	done
}
`
	clients.Must(t, os.CopyFS(filepath.Join(root, "release", "systemd"), os.DirFS("systemd")))
	for _, name := range []string{"ocibridge", "ocibridge.hcl"} {
		clients.Must(t, os.WriteFile(filepath.Join(root, "release", name), nil, 0o600))
	}
	commands := pageBlock(t, "(?s)\n## systemd\n\n```sh\n(.*?)```")
	cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-c", functions+commands)
	cmd.Dir, cmd.Env = filepath.Join(root, "release"), append(os.Environ(), "ROOT="+root)
	output(t, cmd)
	for _, file := range []string{"usr/local/bin/ocibridge", "etc/ocibridge/ocibridge.hcl", "etc/systemd/system/ocibridge.service"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Error(err)
		}
	}
}
