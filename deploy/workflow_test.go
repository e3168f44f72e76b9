package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func workflows(t *testing.T) []string {
	t.Helper()
	ours, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(ours) < 2 {
		t.Fatalf("%v, %v", ours, err)
	}
	examples, err := filepath.Glob("ci/*.yml")
	if err != nil || len(examples) < 1 {
		t.Fatalf("%v, %v", examples, err)
	}
	return append(ours, examples...)
}

func TestWorkflows(t *testing.T) {
	t.Parallel()
	files := workflows(t)
	output(t, command(t, "actionlint", append([]string{"-shellcheck=", "-pyflakes="}, files...)...))
	output(t, command(t, "deploycheck", append([]string{"workflow"}, files...)...))
}

// TestWorkflowsAgree shows that all workflows use the same commit of an action, and the same Go version as
// images.
func TestWorkflowsAgree(t *testing.T) {
	t.Parallel()
	image := containerFile(t).Args["GO_IMAGE"]
	commits := map[string]string{}
	for _, file := range workflows(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`uses: ([^@\s]+)@(.*)`).FindAllStringSubmatch(string(text), -1) {
			if other, ok := commits[m[1]]; ok && other != m[2] {
				t.Errorf("%s: %s is %s, and elsewhere %s", file, m[1], m[2], other)
			}
			commits[m[1]] = m[2]
		}
		for _, m := range regexp.MustCompile(`go-version: "(.*)"`).FindAllStringSubmatch(string(text), -1) {
			if !strings.HasSuffix(image, ":"+m[1]) {
				t.Errorf("%s: Go %s, and images are built by %s", file, m[1], image)
			}
		}
	}
}

func TestWorkflowChecks(t *testing.T) {
	t.Parallel()
	good, err := os.ReadFile("../.github/workflows/release.yml")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ from, to, want string }{
		"a tag":             {"checkout@3d3c42e5aac5ba805825da76410c181273ba90b1", "checkout@v7", "not pinned by a commit"},
		"an unknown commit": {" # v7.0.1", "", "which version"},
		"all permissions":   {"permissions:\n  contents: read\n", "", "the job may do everything"},
		"write for all":     {"permissions:\n  contents: read\n", "permissions:\n  contents: write\n", "all its jobs"},
		"a needless write":  {"attestations: write", "issues: write", "issues: write"},
		"a token left":      {"persist-credentials: false", "persist-credentials: true", "token behind"},
		"no timeout":        {"    timeout-minutes: 60\n", "", "timeout-minutes"},
		"an injection":      {`"$GITHUB_REF_NAME"`, "${{ github.ref_name }}", "expression in a script"},
	} {
		cmd := command(t, "deploycheck", "workflow", "-")
		cmd.Stdin = strings.NewReader(strings.Replace(string(good), c.from, c.to, 1))
		t.Run(name, func(t *testing.T) { refused(t, cmd, c.want) })
	}
}
