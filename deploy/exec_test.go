package deploy_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
)

// execScript runs the command that "ocibridge exec" would run, and prints the arguments.
const execScript = `#!/bin/sh
[ "$1" = exec ] || exit 0
echo "arguments: $*"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
`

// TestActionExecutes shows which command the action gives to ocibridge exec, and that a failure ends the step with
// the command's exit status.
func TestActionExecutes(t *testing.T) {
	t.Parallel()
	release := publish(t, []byte(execScript))
	for name, c := range map[string]struct {
		run, template string
		status        int
		want, not     string
	}{
		"several lines":   {"echo one\necho two in ${PWD##*/}", "ghcr.io/${type}", 0, "one\ntwo in infra\n", "none"},
		"a template":      {"true", "ghcr.io/${type}", 0, "arguments: exec --template ghcr.io/${type} -- bash", "none"},
		"no template":     {"true", "", 0, "arguments: exec -- bash", "none"},
		"a status":        {"exit 7", "", 7, "", "none"},
		"a first failure": {"false | true\necho unreachable", "", 1, "", "\nunreachable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRunner(t)
			clients.Must(t, os.Mkdir(filepath.Join(r.dir, "infra"), 0o755))
			out, err := r.run("exec", release.with("run", c.run, "template", c.template, "working-directory", "infra"))
			if status(err) != c.status || !strings.Contains(out, c.want) || strings.Contains(out, c.not) {
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
