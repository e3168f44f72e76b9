package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
)

// A runner runs composite actions as GitHub's runner does.
type runner struct {
	t    *testing.T
	dir  string // the workspace
	home string
	path string // PATH, with the folders that steps have added
	env  []string
}

func newRunner(t *testing.T) *runner {
	t.Helper()
	return &runner{t: t, dir: t.TempDir(), home: t.TempDir(), path: os.Getenv("PATH")}
}

// compositeAction is what deploycheck prints about an action.
type compositeAction struct {
	Inputs map[string]struct {
		Default  string `json:"default"`
		Required bool   `json:"required"`
	} `json:"inputs"`
	Runs struct {
		Steps []actionStep `json:"steps"`
	} `json:"runs"`
}

type actionStep struct {
	If  string            `json:"if"`
	Run string            `json:"run"`
	Dir string            `json:"working-directory"`
	Env map[string]string `json:"env"`
}

var inputExpression = regexp.MustCompile(`\$\{\{ inputs\.([a-z0-9-]+) \}\}`)

// evaluate replaces the expressions in a value.
func (a compositeAction) evaluate(t *testing.T, value string, inputs map[string]string) string {
	t.Helper()
	out := inputExpression.ReplaceAllStringFunc(value, func(expression string) string {
		name := inputExpression.FindStringSubmatch(expression)[1]
		declared, ok := a.Inputs[name]
		if !ok {
			t.Fatalf("%s: no such input", expression)
		}
		if set, ok := inputs[name]; ok {
			return set
		}
		return declared.Default
	})
	if strings.Contains(inputExpression.ReplaceAllString(value, ""), "${{") {
		t.Fatalf("%s: an expression that this runner does not know", value)
	}
	return out
}

// run runs the action deploy/github/NAME, and returns the output of its steps.
func (r *runner) run(name string, inputs map[string]string) (string, error) {
	r.t.Helper()
	folder, err := filepath.Abs("github/" + name)
	clients.Must(r.t, err)
	text, err := os.ReadFile(filepath.Join(folder, "action.yml"))
	clients.Must(r.t, err)
	action := checked[compositeAction](r.t, "action", text)
	var out bytes.Buffer
	for _, step := range action.Runs.Steps {
		if r.skips(step, inputs) {
			continue
		}
		if err := r.step(folder, action, step, inputs, &out); err != nil {
			return out.String(), err
		}
	}
	return out.String(), nil
}

// skips reports whether the condition of a step is false.
func (r *runner) skips(step actionStep, inputs map[string]string) bool {
	switch step.If {
	case "":
		return false
	case "inputs.run != ''":
		return inputs["run"] == ""
	}
	r.t.Fatalf("if: %s: a condition that this runner does not know", step.If)
	return true
}

// step runs one step. The folders that the step lists in GITHUB_PATH are on PATH in later steps.
func (r *runner) step(folder string, action compositeAction, step actionStep, inputs map[string]string, out *bytes.Buffer) error {
	temp := r.t.TempDir()
	script, added := filepath.Join(temp, "script.sh"), filepath.Join(temp, "path")
	clients.Must(r.t, os.WriteFile(script, []byte(step.Run), 0o600))
	env := []string{"PATH=" + r.path, "HOME=" + r.home, "GITHUB_ACTION_PATH=" + folder, "GITHUB_PATH=" + added, "RUNNER_TEMP=" + temp}
	env = append(env, r.env...)
	for name, value := range step.Env { // a step's variables override those of the job
		env = append(env, name+"="+action.evaluate(r.t, value, inputs))
	}
	cmd := exec.CommandContext(r.t.Context(), "bash", "--noprofile", "--norc", "-eo", "pipefail", script)
	cmd.Dir = filepath.Join(r.dir, action.evaluate(r.t, step.Dir, inputs))
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return err
	}
	text, _ := os.ReadFile(added) // the file is missing if the step has listed no folder
	for line := range strings.Lines(string(text)) {
		r.path = strings.TrimSuffix(line, "\n") + string(os.PathListSeparator) + r.path
	}
	return nil
}

// login writes the file that docker/login-action writes.
func (r *runner) login(host, user, password string) {
	r.t.Helper()
	folder := filepath.Join(r.home, ".docker")
	clients.Must(r.t, os.Mkdir(folder, 0o700))
	clients.Must(r.t, os.WriteFile(filepath.Join(folder, "config.json"), []byte(dockerConfig(host, user, password)), 0o600))
}

// sign runs the step of docs/howto/ci.md that signs a release.
func (r *runner) sign(secretKey string) {
	r.t.Helper()
	text, err := os.ReadFile("../docs/howto/ci.md")
	clients.Must(r.t, err)
	m := regexp.MustCompile(`      - run: \|\n((?: {10}.*\n)+)        env:\n          SIGNING_KEY:`).FindStringSubmatch(string(text))
	if m == nil {
		r.t.Fatal("docs/howto/ci.md has no step that signs")
	}
	step := actionStep{Run: strings.ReplaceAll(m[1], "          ", ""), Env: map[string]string{"SIGNING_KEY": secretKey}}
	var out bytes.Buffer
	if err := r.step("", compositeAction{}, step, nil, &out); err != nil {
		r.t.Fatalf("%v\n%s", err, out.String())
	}
}

var actions = []string{"exec", "push"}

// TestActions shows that the actions keep to GitHub's schema, and that they use each input that they declare.
func TestActions(t *testing.T) {
	t.Parallel()
	for _, name := range actions {
		text, err := os.ReadFile("github/" + name + "/action.yml")
		clients.Must(t, err)
		for input := range checked[compositeAction](t, "action", text).Inputs {
			if !strings.Contains(string(text), "${{ inputs."+input+" }}") {
				t.Errorf("%s: nothing uses the input %s", name, input)
			}
		}
	}
}

func TestActionChecks(t *testing.T) {
	t.Parallel()
	good, err := os.ReadFile("github/push/action.yml")
	clients.Must(t, err)
	for name, c := range map[string]struct{ from, to, want string }{
		"an unknown key":       {"      env:", "      envs:", "Unknown Property envs"},
		"a step without shell": {"      shell: bash\n", "", "no script for bash"},
		"another shell":        {"shell: bash", "shell: pwsh", "no script for bash"},
		"an action of node":    {"using: composite", "using: node20", "node"},
		"an injection":         {`"$TEMPLATE"`, "${{ inputs.template }}", "expression in a script"},
	} {
		cmd := command(t, "deploycheck", "action", "-")
		cmd.Stdin = strings.NewReader(strings.Replace(string(good), c.from, c.to, 1))
		t.Run(name, func(t *testing.T) { refused(t, cmd, c.want) })
	}
}

// TestActionInstalls shows that the actions install exactly the release that the checksum pins.
func TestActionInstalls(t *testing.T) {
	t.Parallel()
	release := publish(t, []byte(versionScript))
	var r *runner
	for _, version := range []string{bridgeVersion, "v" + bridgeVersion} {
		r = newRunner(t)
		out, err := r.run("exec", release.with("version", version))
		if err != nil || !strings.Contains(out, "installed: version") {
			t.Fatalf("%s: %v\n%s", version, err, out)
		}
	}
	again := &runner{t: t, dir: r.dir, home: r.home, path: r.path}
	if out, err := again.run("exec", map[string]string{}); err != nil || !strings.Contains(out, "installed: version") {
		t.Errorf("the ocibridge on PATH: %v\n%s", err, out)
	}
}

// TestActionRefusesReleases shows that the actions refuse a release that the checksum does not pin, and never run its program.
func TestActionRefusesReleases(t *testing.T) {
	t.Parallel()
	evil := func(t *testing.T, p pinned) {
		clients.Must(t, os.WriteFile(filepath.Join(p.folder, bridgeArchive()), []byte("evil"), 0o644))
	}
	remove := func(t *testing.T, p pinned) { clients.Must(t, os.Remove(filepath.Join(p.folder, bridgeArchive()))) }
	none := func(*testing.T, pinned) {}
	for name, c := range map[string]struct {
		input, value string
		change       func(*testing.T, pinned)
		want         string
	}{
		"another checksum":    {"sha256", strings.Repeat("0", 64), none, "hint: set sha256 to the SHA-256 of the SHA256SUMS"},
		"no checksum":         {"sha256", "", none, "hint: set sha256 to the SHA-256 of http"},
		"another archive":     {"version", bridgeVersion, evil, "hint: check base-url: its archive is not the one of the release"},
		"a missing archive":   {"version", bridgeVersion, remove, "error: cannot download http"},
		"a missing release":   {"version", "9.9.9", none, "error: cannot download http"},
		"nothing to run with": {"version", "", none, "error: PATH has no ocibridge"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			release := publish(t, []byte(versionScript))
			c.change(t, release)
			out, err := newRunner(t).run("exec", release.with(c.input, c.value, "run", "echo it ran"))
			if err == nil || !strings.Contains(out, c.want) || strings.Contains(out, "installed:") || strings.Contains(out, "it ran") {
				t.Errorf("%v\n%s\nwant %q", err, out, c.want)
			}
		})
	}
}

// TestActionPushes shows that the action pushes a release folder that the pinned key signed in the job, with the login of
// docker/login-action.
func TestActionPushes(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	a := newAuthor(t, r.dir)
	r.login(a.registry.Host, registryUser, registryPassword)
	r.sign(a.secretKey(t, r.dir))
	release := publishBridge(t)
	other := pgp.For(t, "Another Publisher")
	clients.Must(t, os.WriteFile(filepath.Join(r.dir, "other.asc"), []byte(other.ArmoredPublicKey()), 0o644))
	for name, c := range map[string]struct{ input, value, want string }{
		"another key": {"public-key", "other.asc", "the signature was made by none of the keys offered"},
		"no key":      {"public-key", "", "no key to check the release's signature with"},
		"no template": {"template", "", "argument \"\" for \"--template\""},
		"no provider": {"as", "", "--release-dir does not say whose release it is"},
	} {
		inputs := release.with("as", ownProvider, "template", a.template, "public-key", "release-key.asc", c.input, c.value)
		if out, err := r.run("push", inputs); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	a.wantStored(t, false)
	out, err := r.run("push", release.with("as", ownProviderTag, "template", a.template, "public-key", "release-key.asc"))
	if err != nil || !strings.Contains(out, "signed by "+a.Signer.Fingerprint()) {
		t.Errorf("%v\n%s", err, out)
	}
	a.wantStored(t, true)
}

// TestExamplesOfActions shows that the workflows in docs/howto/ci.md are valid, and give the actions inputs that exist.
func TestExamplesOfActions(t *testing.T) {
	t.Parallel()
	project := t.TempDir()
	clients.Must(t, os.CopyFS(filepath.Join(project, "deploy", "github"), os.DirFS("github")))
	clients.Must(t, os.Mkdir(filepath.Join(project, ".git"), 0o755)) // actionlint looks for the project's root
	clients.Must(t, os.MkdirAll(filepath.Join(project, ".github", "workflows"), 0o755))
	lint := func(text string) *exec.Cmd {
		file := filepath.Join(project, ".github", "workflows", "example.yml")
		clients.Must(t, os.WriteFile(file, []byte(text), 0o644))
		cmd := command(t, "actionlint", "-shellcheck=", "-pyflakes=", file)
		cmd.Dir = project
		return cmd
	}
	workflows := 0
	for _, example := range examples(t) {
		if !strings.Contains(example, "\njobs:\n") {
			continue
		}
		workflows++
		local := replace(t, example, `ocibridge/ocibridge/(deploy/github/\w+)@\S+`, "./$1")
		output(t, lint(local))
		refused(t, lint(replace(t, local, `          template:`, "          templates:")), `input "templates" is not defined`)
	}
	if workflows != len(actions) {
		t.Errorf("docs/howto/ci.md has %d workflows", workflows)
	}
}
