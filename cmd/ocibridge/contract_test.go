package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/docs"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
)

// contract contains arguments of a command for each exit status. Words are separated by
// spaces.
type contract struct {
	ok      string
	fails   string // exits with 1; "": the command does not fail in a test
	usage   string // exits with 2
	pending string // exits with 3; "": the command has no --detailed-exitcode
	// textOnly is set if the command has no --output.
	textOnly bool
}

// contracts contains every command. Its schema in docs/reference/output.schema.json has the name of the
// command, with dashes in place of spaces.
var contracts = map[string]contract{
	"push": {ok: "push --release-dir dist --as W@1.0.0 --public-key key.asc --data data", fails: "push --release-dir missing --as W@1.0.0 --public-key key.asc --data data", usage: "push",
		pending: "push --release-dir dist --as W@1.0.0 --public-key key.asc --data empty --dry-run --detailed-exitcode"},
	"sync": {ok: "sync --config sync.hcl --data synced", fails: "sync --data synced", usage: "sync --prune-limit 3",
		pending: "sync --config sync.hcl --data empty --dry-run --detailed-exitcode"},
	"remove": {ok: "remove W@1.0.0 --data data --dry-run", fails: "remove W@9.9.9 --data data", usage: "remove",
		pending: "remove W@1.0.0 --data data --dry-run --detailed-exitcode"},
	"approve": {ok: "approve W@1.0.0 --data data --key sign.pem", fails: "approve W@9.9.9 --data data --key sign.pem", usage: "approve",
		pending: "approve W@1.0.0 --data data --key sign.pem --revoke --dry-run --detailed-exitcode"},
	"copy": {ok: "copy W --data data --to oci:bundle", fails: "copy W@9.9.9 --data data --to oci:bundle", usage: "copy W",
		pending: "copy W --data data --to oci:new --dry-run --detailed-exitcode"},
	"gc": {ok: "gc --data data", fails: "gc --template localhost:1/${hostname}/${namespace}/${type}", usage: "gc --wait 0s",
		pending: "gc --data garbage --dry-run --detailed-exitcode"},
	"module":         {ok: "module", usage: "module psuh", textOnly: true},
	"module list":    {ok: "module list --data data", fails: "module list W/aws --template localhost:1/${namespace}/${name}", usage: "module list widget"},
	"module inspect": {ok: "module inspect W/aws@1.0.0 --data data", fails: "module inspect W/aws@9.9.9 --data data", usage: "module inspect"},
	"module verify":  {ok: "module verify --data data", fails: "module verify W/aws@9.9.9 --data data", usage: "module verify widget"},
	"module push": {ok: "module push mirror --as W/aws@1.0.0 --data data", fails: "module push missing --as W/aws@1.0.0 --data data", usage: "module push dist",
		pending: "module push mirror --as W/aws@1.1.0 --data data --dry-run --detailed-exitcode"},
	"cache":        {ok: "cache", usage: "cache lsit", textOnly: true},
	"cache list":   {ok: "cache list", fails: "cache list --config wrong.hcl", usage: "cache list a"},
	"cache warm":   {ok: "cache warm config --config cached.hcl --data data", fails: "cache warm missing --config cached.hcl --data data", usage: "cache warm --output yaml"},
	"cache verify": {ok: "cache verify", fails: "cache verify --config wrong.hcl", usage: "cache verify a"},
	"cache prune": {ok: "cache prune", fails: "cache prune --config wrong.hcl", usage: "cache prune a",
		pending: "cache prune --config cached.hcl --all --dry-run --detailed-exitcode"},
	"list":          {ok: "list --data data", fails: "list W --template localhost:1/${namespace}/${type}", usage: "list widget"},
	"inspect":       {ok: "inspect W@1.0.0 --data data", fails: "inspect W@9.9.9 --data data", usage: "inspect"},
	"verify":        {ok: "verify --data data", fails: "verify W-absent --data data", usage: "verify widget"},
	"usage":         {ok: "usage requests.log", fails: "usage missing.log", usage: "usage --of widget requests.log"},
	"lock":          {ok: "lock config --data data", fails: "lock missing --data data", usage: "lock", pending: "lock other --data data --dry-run --detailed-exitcode"},
	"doctor":        {ok: "doctor W --data data", fails: "doctor W --template localhost:1/${namespace}/${type}", usage: "doctor W W"},
	"fingerprint":   {ok: "fingerprint key.asc", fails: "fingerprint missing.asc", usage: "fingerprint"},
	"config check":  {ok: "config check sync.hcl", fails: "config check wrong.hcl", usage: "config check a b"},
	"config show":   {ok: "config show --config sync.hcl", fails: "config show --config wrong.hcl", usage: "config show a"},
	"config client": {ok: "config client --url https://gateway.example/", fails: "config client --config wrong.hcl", usage: "config client --for nobody"},
	"serve":         {ok: "serve --listen localhost:0 --data data", fails: "serve --config wrong.hcl", usage: "serve a"},
	"login":         {ok: "login --help", fails: "login localhost:1 --username a --password-stdin", usage: "login", textOnly: true},
	"logout":        {ok: "logout --help", fails: "logout localhost:1", usage: "logout", textOnly: true},
	"version":       {ok: "version", usage: "version a"},
	"config":        {ok: "config", usage: "config chekc", textOnly: true},
	"exec":          {ok: "exec --data data -- true", fails: "exec --config wrong.hcl -- true", usage: "exec", textOnly: true},
	"help":          {ok: "help push", usage: "help pussh", textOnly: true},
	"completion":    {ok: "completion bash", usage: "completion bush", textOnly: true},
	"man":           {ok: "man ../pages", fails: "man key.asc/pages", usage: "man", textOnly: true},
	"ocibridge":     {ok: "--help", usage: "pussh", textOnly: true},
}

// TestEveryCommandHasAContract shows that the table contains every command, and that every
// command with --output has a schema.
func TestEveryCommandHasAContract(t *testing.T) {
	missing := maps.Clone(contracts)
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		name := strings.TrimPrefix(cmd.CommandPath(), "ocibridge ")
		c, ok := contracts[name]
		delete(missing, name)
		switch {
		case !ok:
			t.Errorf("contracts has no %q: add it, and its schema to docs/reference/output.schema.json", name)
		case c.textOnly != (cmd.Flags().Lookup("output") == nil):
			t.Errorf("%s: whether it has --output is not as in contracts", name)
		case cmd.Flags().Lookup("detailed-exitcode") != nil && c.pending == "":
			t.Errorf("%s: contracts has no arguments with which it exits with 3", name)
		}
		if name != "completion" { // cobra's own subcommands
			for _, sub := range cmd.Commands() {
				check(sub)
			}
		}
	}
	check(newRootCommand())
	topic, _ := docs.Find("output")
	sentence := regexp.MustCompile("(?s)\n\n([^.]*) have `--detailed-exitcode`").FindStringSubmatch(topic.Text())
	for name, c := range contracts {
		if named := sentence != nil && strings.Contains(sentence[1], "`"+name+"`"); named != (c.pending != "") {
			t.Errorf("docs/reference/output.md: %s has --detailed-exitcode: %v", name, c.pending != "")
		}
	}
	for name := range missing {
		t.Errorf("there is no command %s", name)
	}
}

// TestContracts runs every command, with and without --output json. It shows the exit
// statuses that docs/reference/output.md documents. With --output json, standard output is exactly one
// document that fits the schema, also after an error and an interrupt. The document contains
// the error that standard error shows.
func TestContracts(t *testing.T) {
	testkit.LeaveToAll(t)
	schema := closedSchema(t)
	contractFolder(t)
	for _, name := range slices.Sorted(maps.Keys(contracts)) {
		c := contracts[name]
		for _, tt := range []struct {
			args   string
			status int
		}{{c.ok, 0}, {c.fails, exitFailed}, {c.usage, exitUsage}, {c.usage + " --unknown-flag", exitUsage}, {c.pending, exitPending}} {
			if tt.args == "" || c.textOnly && strings.HasSuffix(tt.args, "--unknown-flag") {
				continue
			}
			t.Run(strings.ReplaceAll(tt.args, "/", "_"), func(t *testing.T) {
				got := runHere(t, t.Context(), tt.args, false)
				got.check(t, tt.status)
				if tt.status == exitUsage && got.stdout != "" {
					t.Errorf("standard output of a wrong command line:\n%s", got.stdout)
				}
				if c.textOnly {
					return
				}
				got = runHere(t, t.Context(), tt.args, true)
				got.check(t, tt.status)
				got.checkDocument(t, schema, name)
			})
		}
		if c.textOnly {
			continue
		}
		t.Run(name+" interrupted", func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(interruption{syscall.SIGINT})
			got := runHere(t, ctx, c.ok, true)
			if got.status != 0 { // a command can end before it notices
				got.check(t, exitSignal+int(syscall.SIGINT))
			}
			got.checkDocument(t, schema, name)
		})
	}
}

// TestSettingsThatCannotBeRead shows that every command that reads a settings file fails with an error and a hint if the
// file is invalid, missing or unreadable, and does nothing else. Other commands ignore the file.
func TestSettingsThatCannotBeRead(t *testing.T) {
	schema := closedSchema(t)
	contractFolder(t)
	must(t, os.Symlink("loop.hcl", "loop.hcl"))
	before := filesBelow(t)
	withoutFile := strings.NewReplacer("--config sync.hcl", "", "--config cached.hcl", "", "check sync.hcl", "check")
	for name, c := range contracts {
		cmd, _, err := newRootCommand().Find(strings.Fields(name))
		must(t, err)
		line := c.ok
		if cmd.Flags().Lookup("config") != nil && strings.HasSuffix(line, "--help") {
			line = c.fails
		}
		for _, tt := range []struct{ variable, file, flag string }{
			{"OCIBRIDGE_CONFIG", "wrong.hcl", "config"},
			{"OCIBRIDGE_CONFIG", "missing.hcl", "config"},
			{"OCIBRIDGE_CONFIG", "dist", "config"},
			{"OCIBRIDGE_CONFIG", "loop.hcl", "config"},
			{"TF_CLI_CONFIG_FILE", "wrong.hcl", "config"},
			{"OCIBRIDGE_CA_FILE", "wrong.hcl", "plain-http"}, // the flag of commands that connect to registries
			{"OCIBRIDGE_CA_FILE", "loop.hcl", "plain-http"},
		} {
			reads := cmd.Flags().Lookup(tt.flag) != nil
			if tt.variable != "OCIBRIDGE_CONFIG" && (!reads || name == "config check") {
				continue
			}
			t.Run(fmt.Sprintf("%s %s=%s", name, tt.variable, tt.file), func(t *testing.T) {
				t.Setenv(tt.variable, tt.file)
				got := runHere(t, t.Context(), withoutFile.Replace(line), false)
				if !reads {
					got.check(t, 0)
					return
				}
				got.check(t, exitFailed)
				if said := lastLines.FindStringSubmatch(got.stderr); said == nil || !strings.Contains(said[1], tt.file) || said[2] == "" || got.stdout != "" {
					t.Errorf("the error does not name %s, or has no hint:\n%s%s", tt.file, got.stdout, got.stderr)
				}
				if !c.textOnly {
					got = runHere(t, t.Context(), withoutFile.Replace(line), true)
					got.check(t, exitFailed)
					got.checkDocument(t, schema, name)
				}
			})
		}
	}
	if after := filesBelow(t); !slices.Equal(after, before) {
		t.Errorf("files before %q\nand after %q", before, after)
	}
}

// filesBelow returns the names of all files in the current folder.
func filesBelow(t *testing.T) (names []string) {
	t.Helper()
	must(t, filepath.WalkDir(".", func(name string, _ fs.DirEntry, err error) error {
		names = append(names, name)
		return err
	}))
	return names
}

// TestExitStatusesAreDocumented shows that docs/reference/output.md lists the exit statuses.
func TestExitStatusesAreDocumented(t *testing.T) {
	var got []string
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(readFile(t, "docs/reference/output.md"), -1) {
		got = append(got, row[1])
	}
	want := fmt.Sprint([]int{0, exitFailed, exitUsage, exitPending, exitSignal + int(syscall.SIGINT), exitSignal + int(syscall.SIGTERM)})
	if fmt.Sprint(got) != want {
		t.Errorf("docs/reference/output.md lists %v, want %s", got, want)
	}
}

// contractFolder creates the files that the arguments in contracts name, and changes to their
// folder.
func contractFolder(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, variablePrefix) || strings.HasPrefix(name, "TF_") {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
	for _, name := range []string{"HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"} {
		t.Setenv(name, filepath.Join(dir, "home"))
	}
	signer, err := pgp.NewSigner("Acme")
	must(t, err)
	r := release.For(t, release.Spec{Host: widgetHost, Namespace: "acme", Type: "widget", Version: "1.0.0", Signer: signer,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"terraform-provider-widget": []byte("widget")}}}})
	must(t, r.WriteDir("dist"))
	pkg := r.Packages[0]
	_, private, err := ed25519.GenerateKey(nil)
	must(t, err)
	locked := fmt.Sprintf("provider %q {\n  version = \"1.0.0\"\n  hashes = [\n    \"zh:%s\",\n  ]\n}\n", widgetHost+"/acme/widget", pkg.SHA256)
	mirror := filepath.Join("mirror", widgetHost, "acme", "widget")
	for name, text := range map[string]string{
		"key.asc": signer.ArmoredPublicKey(), "sign.pem": string(approvals.PrivatePEM(t, private)), "home/empty": "", "wrong.hcl": "no",
		"requests.log":               `{"time":"2026-11-01T12:00:00Z","level":"INFO","msg":"request","method":"GET","path":"/p.zip","status":200,"client":"10.0.0.1:4000","provider":"` + widgetHost + `/acme/widget","version":"1.0.0","sent":"whole"}` + "\n",
		"cached.hcl":                 "gateway {\n  cache {\n    directory = \"./kept\"\n  }\n}\n",
		"sync.hcl":                   fmt.Sprintf("provider %q {\n  versions = \">= 0\"\n  from     = \"./mirror\"\n}\ntrust \"*/*/*\" {\n  allow_unsigned = true\n}\n", widgetHost+"/acme/widget"),
		"config/.terraform.lock.hcl": locked, "other/.terraform.lock.hcl": locked,
		filepath.Join(mirror, "index.json"): `{"versions": {"1.0.0": {}}}`,
		filepath.Join(mirror, "1.0.0.json"): fmt.Sprintf(`{"archives": {"linux_amd64": {"url": %q, "hashes": ["zh:%s"]}}}`, pkg.Filename, pkg.SHA256),
		filepath.Join(mirror, pkg.Filename): string(pkg.Data),
	} {
		must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must(t, os.WriteFile(name, []byte(text), 0o600))
	}
	for _, line := range []string{contracts["push"].ok, strings.Replace(contracts["push"].ok, "--data data", "--data garbage", 1), "remove W@1.0.0 --data garbage", contracts["module push"].ok, contracts["cache warm"].ok} {
		runHere(t, t.Context(), line, false).check(t, 0)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ran is the result of a command that ran in this process.
type ran struct {
	status         int
	stdout, stderr string
}

// runHere runs a command in this process. It interrupts serve when serve has written its
// address. In the arguments, W stands for the address of a provider.
func runHere(t *testing.T, ctx context.Context, line string, asJSON bool) ran {
	t.Helper()
	var args []string
	for word := range strings.FieldsSeq(line) {
		args = append(args, regexp.MustCompile(`^W\b`).ReplaceAllLiteralString(word, widgetHost+"/acme/widget"))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stdout, stderr bytes.Buffer
	var out io.Writer = &stdout
	if args[0] == "serve" {
		out = writerFunc(func(p []byte) (int, error) { defer cancel(); return stdout.Write(p) })
	}
	if asJSON {
		args = append(args, "--output", "json")
	}
	status := execute(ctx, args, out, &stderr)
	return ran{status, stdout.String(), stderr.String()}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

var lastLines = regexp.MustCompile(`(?m)^error: (.+)\n(?:hint: (.+)\n)?\z`)

// check checks the exit status, and that standard error ends with an error if the command
// failed.
func (r ran) check(t *testing.T, status int) {
	t.Helper()
	if failed := status != 0 && status != exitPending; r.status != status || lastLines.MatchString(r.stderr) != failed {
		t.Errorf("status %d, want %d; stdout\n%s\nstderr\n%s", r.status, status, r.stdout, r.stderr)
	}
}

// checkDocument checks that standard output is one JSON document that fits the schema of the
// command, and contains the error on standard error, if there is one.
func (r ran) checkDocument(t *testing.T, schema jsonschema.Schema, command string) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(r.stdout))
	doc := struct{ Error *errorMember }{}
	if err := dec.Decode(&doc); err != nil {
		t.Fatalf("%v:\n%s", err, r.stdout)
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Errorf("more than one document:\n%s", r.stdout)
	}
	line := lastLines.FindStringSubmatch(r.stderr)
	if (line == nil) != (doc.Error == nil) || line != nil && (line[1] != doc.Error.Message || line[2] != doc.Error.Hint) {
		t.Errorf("the error of the document is %+v; stderr\n%s", doc.Error, r.stderr)
	}
	var instance any
	must(t, json.Unmarshal([]byte(r.stdout), &instance))
	schema.Ref = "#/$defs/" + strings.ReplaceAll(command, " ", "-")
	definition, err := schema.Resolve(nil)
	must(t, err)
	if err := definition.Validate(instance); err != nil {
		t.Errorf("%v\n%s", err, r.stdout)
	}
}

// closedSchema returns the documented schema, which allows later versions to add members, with
// one change: it allows only documented members.
func closedSchema(t *testing.T) jsonschema.Schema {
	t.Helper()
	var doc any
	must(t, json.Unmarshal([]byte(readFile(t, "docs/reference/output.schema.json")), &doc))
	closeObjects(doc)
	data, err := json.Marshal(doc)
	must(t, err)
	var out jsonschema.Schema
	must(t, json.Unmarshal(data, &out))
	return out
}

func closeObjects(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			closeObjects(item)
		}
	case map[string]any:
		for _, item := range v {
			closeObjects(item)
		}
		if _, ok := v["additionalProperties"]; !ok && v["type"] == "object" {
			v["additionalProperties"] = false
		}
	}
}
