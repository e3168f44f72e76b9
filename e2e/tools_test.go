package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// clientConfig returns what "config client" prints for a client of the gateway. If a token is required, the gateway's
// configuration says so.
func (s *scene) clientConfig(client, gateway string, tokens bool) string {
	s.t.Helper()
	text := "oci_mirror {\n  repository_template = \"ghcr.io/acme/${namespace}/${type}\"\n  include = [\"" + world.Host + "/*/*\"]\n}\n"
	if tokens {
		text += "gateway {\n  token \"ci\" {\n    sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n  }\n}\n"
	}
	r := s.run("config", "client", "--config", s.configured(text), "--for", client, "--url", gateway)
	if r.status != 0 {
		s.t.Fatalf("%s: %+v", client, r)
	}
	return r.stdout
}

// workflow is what the test uses of a workflow of GitHub Actions.
type workflow struct {
	Jobs map[string]struct {
		Steps []struct {
			Uses, Run string
			Env       map[string]string
		}
	}
}

// pipeline is what the test uses of the jobs of GitLab CI.
type pipeline map[string]struct {
	Image struct {
		Name       string
		Entrypoint []string
	}
	Variables    map[string]string
	BeforeScript []string `yaml:"before_script"`
	Script       []string
}

// TestPrintedJobs runs the jobs that "config client" prints for GitHub Actions and GitLab CI. Their steps run in the
// shell that these systems use, with the variables that they set. The jobs install the provider from the gateway.
func TestPrintedJobs(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	for name, gateway := range map[string]*world.Gateway{"open": s.serve("--data", s.data), "token": s.controlled("")} {
		tokens := name == "token"
		t.Run(name+"/github-actions", func(t *testing.T) {
			text := s.clientConfig("github-actions", root(gateway), tokens)
			file := filepath.Join(t.TempDir(), "workflow.yml")
			clients.Must(t, os.WriteFile(file, []byte(text), 0o600))
			lint := clients.Program(t, "actionlint")
			s.ws.MustRun(t, lint, "-shellcheck=", "-pyflakes=", file)
			var w workflow
			clients.Must(t, yaml.Unmarshal([]byte(text), &w))
			sh := s.newShell(t)
			if !strings.Contains(text, "uses: hashicorp/setup-terraform@") {
				t.Error("no step installs Terraform, which GitHub's runners lack")
			}
			for _, step := range w.Jobs["init"].Steps {
				sh.run(step.Run, step.Env, "${{ secrets.OCIBRIDGE_TOKEN }}")
			}
			sh.wantInstalled()
		})
		t.Run(name+"/gitlab-ci", func(t *testing.T) {
			var jobs pipeline
			clients.Must(t, yaml.UnmarshalStrict([]byte(s.clientConfig("gitlab-ci", root(gateway), tokens)), &jobs))
			sh := s.newShell(t)
			sh.ws.Env["OCIBRIDGE_TOKEN"] = acmeToken // a masked variable of the project
			j := jobs["init"]
			if !strings.HasPrefix(j.Image.Name, "hashicorp/terraform:") || !slices.Equal(j.Image.Entrypoint, []string{""}) {
				t.Errorf("the image is %+v", j.Image)
			}
			sh.run(strings.Join(slices.Concat(j.BeforeScript, j.Script), "\n"), j.Variables, "$OCIBRIDGE_TOKEN")
			sh.wantInstalled()
		})
	}
}

// shell runs the steps of a job.
type shell struct {
	t  *testing.T
	ws *clients.Workspace
}

func (s *scene) newShell(t *testing.T) *shell {
	ws := s.user("", nullVersion)
	clients.Must(t, ws.WriteCLIConfig("")) // the job has its own
	ws.Env["RUNNER_TEMP"], ws.Env["GITHUB_ENV"] = t.TempDir(), filepath.Join(t.TempDir(), "env")
	ws.Env["PATH"] = filepath.Dir(clients.Terraform(t).Path) + ":" + os.Getenv("PATH")
	clients.Must(t, os.WriteFile(ws.Env["GITHUB_ENV"], nil, 0o600))
	return &shell{t, ws}
}

// run runs a script with variables, in which secret becomes the token. It then reads the variables that the script has
// written for later steps.
func (sh *shell) run(script string, env map[string]string, secret string) {
	sh.t.Helper()
	if script == "" {
		return
	}
	bash, err := exec.LookPath("bash")
	clients.Must(sh.t, err)
	for name, value := range env {
		sh.ws.Env[name] = strings.ReplaceAll(value, secret, acmeToken)
	}
	sh.ws.MustRun(sh.t, clients.Client{Name: "bash", Path: bash}, "-e", "-c", script)
	text, err := os.ReadFile(sh.ws.Env["GITHUB_ENV"])
	clients.Must(sh.t, err)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		sh.ws.Env[name] = value
	}
}

func (sh *shell) wantInstalled() {
	sh.t.Helper()
	if got := sh.ws.MustLock(sh.t)[world.Null].Version; got != nullVersion {
		sh.t.Errorf("the job locks %q", got)
	}
}

// TestPrintedTerragrunt shows that Terraform and OpenTofu, which Terragrunt runs, install with the printed configuration.
func TestPrintedTerragrunt(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	gateway := s.controlled("")
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.user("", nullVersion)
		clients.Must(t, ws.WriteCLIConfig(strings.ReplaceAll(s.clientConfig("terragrunt", root(gateway), true), "TOKEN", acmeToken)))
		ws.MustRun(t, client, "init", "-no-color")
		if got := ws.MustLock(t)[world.Null].Version; got != nullVersion {
			t.Errorf("%s locks %q", client.Name, got)
		}
	}
}

// dependabot is the part of dependabot.yml that GitHub documents for private registries.
type dependabot struct {
	Version    int
	Registries map[string]struct{ Type, URL, Token string }
	Updates    []struct {
		Ecosystem  string `yaml:"package-ecosystem"`
		Directory  string
		Registries []string
		Schedule   struct{ Interval string }
	}
}

// TestPrintedDependabot shows that dependabot.yml has only keys and values that GitHub documents, and names the gateway.
func TestPrintedDependabot(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, tokens := range []bool{false, true} {
		var got dependabot
		clients.Must(t, yaml.UnmarshalStrict([]byte(s.clientConfig("dependabot", "https://gateway.example/", tokens)), &got))
		text, err := json.Marshal(got)
		clients.Must(t, err)
		want := `{"Version":2,"Registries":null,"Updates":[{"Ecosystem":"terraform","Directory":"/","Registries":null,"Schedule":{"Interval":"weekly"}}]}`
		if tokens {
			want = `{"Version":2,"Registries":{"ocibridge":{"Type":"terraform-registry","URL":"https://gateway.example","Token":"${{secrets.OCIBRIDGE_TOKEN}}"}},` +
				`"Updates":[{"Ecosystem":"terraform","Directory":"/","Registries":["ocibridge"],"Schedule":{"Interval":"weekly"}}]}`
		}
		if string(text) != want {
			t.Errorf("tokens %t: %s", tokens, text)
		}
	}
}
