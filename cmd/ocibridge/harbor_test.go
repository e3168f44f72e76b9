package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ocibridge/ocibridge/docs"
	testorigin "github.com/ocibridge/ocibridge/internal/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/testkit/quirks"
	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/internal/testkit/tlsca"
)

// TestHarborHowTo shows that the commands in docs/howto/harbor.md work. It runs the page's blocks in
// one shell. The registry imitates Harbor, and the part of Harbor's REST API that the page
// uses. Each block must print the lines that the page shows after the block. In these lines,
// "..." matches any text.
func TestHarborHowTo(t *testing.T) {
	topic, ok := docs.Find("harbor")
	if !ok {
		t.Fatal("no topic harbor")
	}
	h := newHarbor(t)
	var script strings.Builder
	var shown []string
	script.WriteString("set -eu\nrefused() { if \"$@\"; then echo \"not refused: $*\"; exit 1; fi; }\n")
	text := strings.NewReplacer("harbor.example.com", h.host, `"latestPushedK": 10`, `"latestPushedK": 2`).Replace(topic.Text())
	for _, b := range fenced.FindAllStringSubmatch(text, -1) {
		if b[1] == "text" {
			shown[len(shown)-1] = b[2]
			continue
		}
		if len(shown) == 0 {
			fmt.Fprintf(&script, "HARBOR_PASSWORD=%s OTHER_SECRET=other\n", adminPassword)
		}
		for _, before := range slices.Sorted(maps.Keys(extras)) {
			if strings.Contains(b[2], before) {
				fmt.Fprintf(&script, "echo; echo '%sbetween'\n%s", mark, extras[before])
			}
		}
		fmt.Fprintf(&script, "echo; echo '%s%d'\n%s", mark, len(shown), b[2])
		shown = append(shown, "")
	}
	fmt.Fprintf(&script, "echo; echo '%safter'\n%s", mark, lastExtra)

	cmd := exec.CommandContext(t.Context(), "sh", "-c", script.String())
	cmd.Dir, cmd.Env = h.home, h.environment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var outputs []string
	for part := range strings.SplitSeq(string(out), "\n"+mark) {
		if name, output, _ := strings.Cut(part, "\n"); name == strconv.Itoa(len(outputs)) {
			outputs = append(outputs, output)
		}
	}
	if len(shown) < 9 || len(outputs) != len(shown) {
		t.Fatalf("%d blocks, %d outputs:\n%s", len(shown), len(outputs), out)
	}
	for i, want := range shown {
		for _, problem := range []string{"warning:", "error:", `"errors"`} {
			if strings.Contains(outputs[i], problem) {
				t.Errorf("block %d has problems:\n%s", i+1, outputs[i])
			}
		}
		for line := range strings.Lines(want) {
			pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSuffix(line, "\n")), `\.\.\.`, ".*")
			if !regexp.MustCompile("(?m)^" + pattern + "$").MatchString(outputs[i]) {
				t.Errorf("block %d does not print %q:\n%s", i+1, line, outputs[i])
			}
		}
	}
	for _, refusal := range []string{"action: push", "action: delete", "4.0.3' configured as immutable"} {
		if !strings.Contains(string(out), refusal) {
			t.Errorf("nothing was refused with %q:\n%s", refusal, out)
		}
	}
	h.check()
}

var fenced = regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$")

const (
	mark          = "== block "
	adminPassword = "admin-pass"
	howToProvider = "registry.opentofu.org/hashicorp/random"
)

// extras maps a text to additional commands, which run before each block that contains the
// text.
var extras = map[string]string{
	// The robot for reading is not allowed to push, and the robot for pushing is not allowed
	// to prune.
	"'robot$providers+prune'": "docker login \"$HOST\" -u 'robot$providers+serve'\n" +
		"refused ocibridge push " + howToProvider + "@4.0.0\n" +
		"docker login \"$HOST\" -u 'robot$providers+push'\n" +
		"refused ocibridge sync --prune --config prune.hcl\n",
	// The push of 4.0.0 in two steps leaves an index without a tag. It also leaves an
	// ocibridge-state that is newer than 4.0.1.
	`project=$(harbor GET`: "ocibridge push " + howToProvider + "@4.0.1\n" +
		"ocibridge push " + howToProvider + "@4.0.0 --platform linux_amd64\n" +
		"ocibridge push " + howToProvider + "@4.0.0\n",
}

// lastExtra are commands that run after the last block. They push while the immutability rule
// applies.
var lastExtra = "ocibridge push " + howToProvider + "@4.0.2\n" +
	"ocibridge push " + howToProvider + "@4.0.2\n" +
	"ocibridge push " + howToProvider + "@4.0.3 --platform linux_amd64\n" +
	"refused ocibridge push " + howToProvider + "@4.0.3\n"

// harbor imitates Harbor with its REST API. It also has a home folder for the user who follows
// the page.
type harbor struct {
	t          *testing.T
	registry   *quirks.Registry
	home, host string
	origin     string // URL
	ca         string // file

	mu         sync.Mutex
	robots     map[string][]string // rights by name
	projects   map[string]harborProject
	retention  *harborRetention
	retained   []string // tags that the retention has left
	replicated int
	query      url.Values // the query of the request that a route is handling
}

func newHarbor(t *testing.T) *harbor {
	i := slices.IndexFunc(quirks.Profiles(), func(p quirks.Profile) bool { return p.Name == "harbor" })
	s := quirks.Profiles()[i].Settings
	s.User, s.Password = "admin", adminPassword
	h := &harbor{t: t, registry: quirks.For(t, s), home: t.TempDir(), robots: map[string][]string{}, projects: map[string]harborProject{}}
	ca := tlsca.For(t)
	config, err := ca.ServerConfig()
	if err != nil {
		t.Fatal(err)
	}
	if h.ca, err = ca.WriteFile(h.home); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	h.routes(mux)
	mux.Handle("/", h.registry)
	start := func(handler http.Handler) *httptest.Server {
		server := httptest.NewUnstartedServer(handler)
		server.TLS = config
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)
		return server
	}
	h.host = start(mux).Listener.Addr().String()
	signer := pgp.For(t, "Acme")
	var releases []*release.Release
	for _, v := range []string{"3.6.0", "3.7.1", "3.7.2", "4.0.0", "4.0.1", "4.0.2", "4.0.3"} {
		spec := release.Spec{Host: "registry.opentofu.org", Namespace: "hashicorp", Type: "random", Version: v, Signer: signer}
		for _, os := range []string{"linux", "darwin"} {
			spec.Contents = append(spec.Contents, release.Content{OS: os, Arch: "amd64", Files: map[string][]byte{"terraform-provider-random_v" + v: []byte(os)}})
		}
		releases = append(releases, release.For(t, spec))
	}
	h.origin = start(testorigin.New(testorigin.Options{}, releases...)).URL
	h.write("prune.hcl", "oci_mirror {\n  repository_template = \""+h.host+"/providers/${hostname}/${namespace}/${type}\"\n}\nprovider \""+howToProvider+"\" {\n  versions = \"~> 3.7\"\n}\n")
	h.write("cli.tfrc", fmt.Sprintf("host %q {\n  services = {\n    \"providers.v1\" = %q\n  }\n}\n", "registry.opentofu.org", h.origin+testorigin.ServicePath))
	return h
}

func (h *harbor) write(name, text string) {
	if err := os.WriteFile(filepath.Join(h.home, name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harbor) environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + h.home, "TMPDIR=" + h.t.TempDir(), "DOCKER_CONFIG=" + h.home,
		"SSL_CERT_FILE=" + h.ca, "TF_CLI_CONFIG_FILE=" + filepath.Join(h.home, "cli.tfrc"), "HOST=" + h.host,
	}
}

// check checks the robots, tags and projects that the page's requests have created.
func (h *harbor) check() {
	want := map[string][]string{
		"robot$providers+push": {"pull", "push"}, "robot$providers+serve": {"pull"}, "robot$providers+prune": {"pull", "push", "delete"}, "robot$list": {"pull"},
	}
	if !maps.EqualFunc(h.robots, want, slices.Equal) {
		h.t.Errorf("robots %v, want %v", h.robots, want)
	}
	if want := []string{"4.0.0", "4.0.1", "ocibridge-state"}; !slices.Equal(h.retained, want) {
		h.t.Errorf("the retention leaves %v, want %v", h.retained, want)
	}
	if h.projects["cache"].Registry == 0 || h.replicated != 1 {
		h.t.Errorf("projects %v, %d replications", h.projects, h.replicated)
	}
}

// curl implements the options of curl that the page uses.
func curl() {
	f := flag.NewFlagSet("curl", flag.ExitOnError)
	f.Bool("sS", false, "")
	user, method, header, data := f.String("u", "", ""), f.String("X", "", ""), f.String("H", "", ""), f.String("d", "", "")
	f.Parse(os.Args[1:])
	url := f.Arg(0)
	f.Parse(f.Args()[1:])
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	r, err := http.NewRequest(*method, url, strings.NewReader(*data))
	check(err)
	name, value, _ := strings.Cut(*header, ": ")
	r.Header.Set(name, value)
	name, value, _ = strings.Cut(*user, ":")
	r.SetBasicAuth(name, value)
	answer, err := http.DefaultClient.Do(r)
	check(err)
	_, err = io.Copy(os.Stdout, answer.Body)
	check(err)
}

// dockerLogin implements docker login HOST -u ROBOT. It reads the robot's secret from a file
// in the home folder.
func dockerLogin() {
	host, user := os.Args[2], os.Args[4]
	secret, err := os.ReadFile(filepath.Join(os.Getenv("HOME"), "secret-"+user))
	if err != nil {
		log.Fatal(err)
	}
	config := quirks.Access{User: user, Password: string(bytes.TrimSpace(secret))}.DockerConfig(host)
	if err := os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), []byte(config), 0o600); err != nil {
		log.Fatal(err)
	}
}
