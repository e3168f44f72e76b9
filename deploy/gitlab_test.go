package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// gitlab runs a job of the configuration with gitlab-ci-local, in the folder dir, and returns the job's output.
// gitlab-ci-local resolves the include, and checks the configuration by GitLab's JSON schema.
func gitlab(t *testing.T, dir, configuration, job string, variables ...string) (string, error) {
	t.Helper()
	component, err := os.ReadFile("gitlab/ocibridge.yml")
	clients.Must(t, err)
	write := func(name, text string, mode os.FileMode) {
		clients.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		clients.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), mode))
	}
	write("ocibridge.yml", string(component), 0o644)
	write(".gitlab-ci.yml", configuration, 0o644)
	// gitlab-ci-local copies files into containers with rsync. These jobs have no container.
	write(".git/programs/rsync", "#!/bin/sh\n", 0o755)
	env := testkit.GitEnv([]string{"PATH=" + filepath.Join(dir, ".git/programs") + string(os.PathListSeparator) + clientPath(t), "HOME=" + t.TempDir()})
	run := func(program string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, args := range [][]string{
		{"init", "-q"},
		{"remote", "add", "origin", "https://gitlab.example.com/acme/infra.git"},
		{"-c", "user.name=acme", "-c", "user.email=acme@example.com", "commit", "-q", "--allow-empty", "-m", "first"},
	} {
		if out, err := run("git", args...); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	program := filepath.Join(clients.GitLabCILocal(t), "gitlab-ci-local", "src", "index.js")
	args := []string{program, job}
	for _, v := range variables {
		args = append(args, "--variable", v)
	}
	return run(clients.Program(t, "node").Path, args...)
}

// clientPath returns a PATH with the clients.
func clientPath(t *testing.T) string {
	t.Helper()
	return filepath.Dir(clients.Terraform(t).Path) + string(os.PathListSeparator) + os.Getenv("PATH")
}

// gitlabExample returns the GitLab configuration in docs/howto/ci.md, for a given template and release. Its jobs run
// without containers.
func gitlabExample(t *testing.T, template string, release pinned) string {
	t.Helper()
	for _, example := range examples(t) {
		if strings.HasPrefix(example, "include:") {
			return replace(t, example,
				`(?m)remote: .*$`, "local: ocibridge.yml",
				`version: .*`, "version: "+bridgeVersion+"\n      base-url: "+release.url,
				`"0{64}"`, `"`+release.sum+`"`,
				`template: .*`, "template: "+strings.ReplaceAll(template, "$", "$$"),
				`(?m)^  image:\n    name: .*\n    entrypoint: .*\n`, "",
				`(?m)^  image: .*\n`, "",
				`(?m)^    - apk add .*\n`, "",
				`acme/widget@`, "acme/null@",
			)
		}
	}
	t.Fatal("docs/howto/ci.md has no GitLab configuration")
	return ""
}

// TestGitLabInstalls shows that GitLab's job has the same installation as the actions.
func TestGitLabInstalls(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("github/install.sh")
	clients.Must(t, err)
	_, installation, _ := strings.Cut(string(script), "\nset -eu\n")
	job, err := os.ReadFile("gitlab/ocibridge.yml")
	clients.Must(t, err)
	if !strings.Contains(strings.ReplaceAll(string(job), "\n      ", "\n"), "<<'INSTALL'\nset -eu\n"+installation+"INSTALL\n") {
		t.Error("gitlab/ocibridge.yml does not contain the script github/install.sh")
	}
}

// TestGitLabPushes shows that the example in docs/howto/ci.md signs and pushes a release folder, with the job's own login and with
// the login in DOCKER_AUTH_CONFIG.
func TestGitLabPushes(t *testing.T) {
	t.Parallel()
	release := publishBridge(t)
	own := func(host, password string) []string {
		return []string{"CI_REGISTRY=" + host, "CI_REGISTRY_USER=" + registryUser, "CI_REGISTRY_PASSWORD=" + password}
	}
	ownLogin := func(host string) []string { return own(host, registryPassword) }
	for name, c := range map[string]struct {
		version string
		login   func(host string) []string
	}{
		"the job's own login": {bridgeVersion, ownLogin},
		"DOCKER_AUTH_CONFIG": {bridgeVersion, func(host string) []string {
			return append(own(host, "wrong"), "DOCKER_AUTH_CONFIG="+dockerConfig(host, registryUser, registryPassword))
		}},
		"a version with a v": {"v" + bridgeVersion, ownLogin},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			a := newAuthor(t, dir)
			key := filepath.Join(t.TempDir(), "key.asc")
			clients.Must(t, os.WriteFile(key, []byte(a.secretKey(t, dir)), 0o600))
			variables := append(c.login(a.registry.Host), "CI_COMMIT_TAG=v3.2.4", "SIGNING_KEY="+key)
			configuration := replace(t, gitlabExample(t, a.template, release), `version: .*`, "version: "+c.version)
			out, err := gitlab(t, dir, configuration, "release", variables...)
			if err != nil || !strings.Contains(out, "signed by "+a.Signer.Fingerprint()) {
				t.Errorf("%v\n%s", err, out)
			}
			a.wantStored(t, true)
		})
	}
}

// TestGitLabRefusesReleases shows that a job ends before its script if the release does not match.
func TestGitLabRefusesReleases(t *testing.T) {
	t.Parallel()
	release := publish(t, []byte(versionScript))
	release.sum = strings.Repeat("0", 64)
	out, err := gitlab(t, t.TempDir(), gitlabExample(t, "localhost:1/${type}", release), "release", "CI_COMMIT_TAG=v3.2.4")
	if err == nil || !strings.Contains(out, "hint: set sha256 to the SHA-256 of the SHA256SUMS") || strings.Contains(out, "installed:") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestGitLabRefusesKeys shows that the job of docs/howto/ci.md ends before gpg reads a private key that is not in a file.
func TestGitLabRefusesKeys(t *testing.T) {
	t.Parallel()
	release := publish(t, []byte(versionScript))
	for name, variables := range map[string][]string{
		"a plain variable": {"SIGNING_KEY=-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nsecret"},
		"no variable":      nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			configuration := gitlabExample(t, "localhost:1/${type}", release)
			out, err := gitlab(t, t.TempDir(), configuration, "release", append(variables, "CI_COMMIT_TAG=v3.2.4")...)
			if err == nil || !strings.Contains(out, "> SIGNING_KEY must be a variable of the type File") || strings.Contains(out, "BEGIN PGP") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestGitLabChecks shows that gitlab-ci-local refuses keys that GitLab does not know.
func TestGitLabChecks(t *testing.T) {
	t.Parallel()
	configuration := replace(t, gitlabExample(t, "localhost:1/${type}", pinned{}), `extends:`, "extend:")
	if out, err := gitlab(t, t.TempDir(), configuration, "release"); err == nil || !strings.Contains(out, "'extend' property is not expected") {
		t.Errorf("%v\n%s", err, out)
	}
}
