// Package deploy_test checks the deployment files with the programs that read them. It uses only programs that
// need no cluster and no container engine. These are helm, systemd, the parsers of BuildKit and compose, the
// types of Kubernetes, and ocibridge itself.
package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// TestMain stats every file that the programs in these tests read, so that go test runs the tests again when a
// file has changed.
func TestMain(m *testing.M) {
	for _, folder := range []string{".", "../.github", "../.tools/stamps"} {
		if err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path)
			}
			return err
		}); err != nil && !(folder == "../.tools/stamps" && errors.Is(err, fs.ErrNotExist)) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// command returns a command that runs the named program. If the program is missing, the test ends.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	find := clients.Find
	if name == "ocibridge" {
		find = func(string) (clients.Client, error) { return clients.Bridge() }
	}
	program, err := find(name)
	clients.Must(t, err)
	cmd := exec.CommandContext(t.Context(), program.Path, args...)
	home := t.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	return cmd
}

// output runs cmd, and returns the command's standard output. If cmd fails, the test fails immediately.
func output(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes()
}

// refused runs cmd, and checks that it fails with an error that contains want.
func refused(t *testing.T, cmd *exec.Cmd, want string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("%s: no error, want one with %q", strings.Join(cmd.Args, " "), want)
	} else if !strings.Contains(string(out), want) {
		t.Errorf("%s: %s, want %q", strings.Join(cmd.Args, " "), out, want)
	}
}

// checked runs deploycheck with the given standard input, and returns the decoded file.
func checked[T any](t *testing.T, kind string, stdin []byte) (read T) {
	t.Helper()
	cmd := command(t, "deploycheck", kind, "-")
	cmd.Stdin = bytes.NewReader(stdin)
	if err := json.Unmarshal(output(t, cmd), &read); err != nil {
		t.Fatal(err)
	}
	return read
}

var configFile = regexp.MustCompile(`"/etc/ocibridge/[^"]+"`)

// checkConfig checks with ocibridge that text is a valid ocibridge.hcl. It provides the files below
// /etc/ocibridge that text names.
func checkConfig(t *testing.T, text string, env ...string) {
	t.Helper()
	folder, ca := t.TempDir(), tlsca.For(t)
	cert, err := ca.Issue("providers.example.com")
	if err != nil {
		t.Fatal(err)
	}
	crt, key, err := cert.WriteFiles(folder)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, data string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	files := map[string]string{
		"ca.crt": write("ca.crt", string(ca.CertPEM())), "tls.crt": crt, "tls.key": key,
		"capability.keys": write("capability.keys", strings.Repeat("0123456789abcdef", 4)),
	}
	text = configFile.ReplaceAllStringFunc(text, func(quoted string) string {
		return strconv.Quote(files[filepath.Base(strings.Trim(quoted, `"`))])
	})
	file := write("ocibridge.hcl", text)
	cmd := command(t, "ocibridge", "config", "check", file)
	cmd.Env = append(cmd.Env, env...)
	output(t, cmd)
}

// shutdownSeconds is the default number of seconds that a stopping gateway gives running downloads to complete.
const shutdownSeconds = int(config.DefaultShutdownTimeout / time.Second)
