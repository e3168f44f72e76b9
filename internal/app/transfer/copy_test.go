package transfer_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/stored"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// progress records the warnings and results of a transfer.
type progress struct {
	mu       sync.Mutex
	warnings []string
	done     []string
}

func (p *progress) Event(pusher.Event) {}

func (p *progress) Warn(s string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warnings = append(p.warnings, s)
}

func (p *progress) Done(r *pusher.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = append(p.done, r.Subject.Parts()[2]+" "+r.Version.String()+" "+string(r.Status))
}

// copies is a test that copies from the registry at the location "from" to the one at "to".
type copies struct {
	t        *testing.T
	from, to *stored.Registry
	progress *progress
	results  []*pusher.Result // of the last run
}

func newCopies(t *testing.T) *copies {
	return &copies{t: t, from: stored.For(t, "${namespace}/${type}"), to: stored.For(t, "copied/${namespace}/${type}")}
}

func registryAt(name string) transfer.Location {
	return transfer.Location{Kind: transfer.Template, Name: name}
}

// run copies the versions that the queries in args select. It returns the reported results.
func (c *copies) run(change func(*transfer.Copy), args ...string) (string, error) {
	c.t.Helper()
	c.progress = &progress{}
	run := transfer.Copy{
		From: registryAt("from"), To: registryAt("to"),
		Push:     pusher.Options{Jobs: 2, Policy: func(provider.Address) trust.Policy { return trust.Policy{} }},
		Progress: c.progress,
		Open: func(at transfer.Location, _ []subject.Address) (*registry.Repositories, error) {
			return map[string]*stored.Registry{"from": c.from, "to": c.to}[at.Name].Repositories, nil
		},
	}
	for _, s := range args {
		q, err := query.ParseEither(strings.ReplaceAll(s, "HOST", stored.Host))
		if err != nil {
			c.t.Fatal(err)
		}
		run.Queries = append(run.Queries, q)
	}
	if change != nil {
		change(&run)
	}
	copied, err := run.Run(c.t.Context())
	c.results = copied.Results
	if err == nil && len(copied.Failures) > 0 {
		err = copied.Failures[0].Err
	}
	return strings.Join(c.progress.done, ", "), err
}

func TestCopySelects(t *testing.T) {
	c := newCopies(t)
	c.from.Store("acme/null", "1.0.0")
	c.from.Store("acme/null", "1.1.0")
	widget := c.from.Store("acme/widget", "2.0.0")
	for _, step := range []struct {
		name   string
		args   []string
		change func(*transfer.Copy)
		want   string
		err    string
	}{
		{name: "an absent provider", args: []string{"HOST/acme/absent"}, err: "not found"},
		{name: "no match", args: []string{"HOST/acme/null@> 3.0"}, err: "version not found"},
		{name: "the newest match", args: []string{"HOST/acme/null@~> 1.0"}, want: "null 1.1.0 pushed"},
		{name: "all matches", args: []string{"HOST/acme/null@~> 1.0"}, change: func(c *transfer.Copy) { c.All = true }, want: "null 1.0.0 pushed, null 1.1.0 unchanged"},
		{name: "the configured providers", change: func(c *transfer.Copy) { c.Configured = []subject.Address{widget} }, want: "widget 2.0.0 pushed"},
		{name: "everything", want: "null 1.0.0 unchanged, null 1.1.0 unchanged, widget 2.0.0 unchanged"},
	} {
		got, err := c.run(step.change, step.args...)
		if got != step.want || (err == nil) != (step.err == "") || err != nil && (!strings.Contains(err.Error(), step.err) || hint.Of(err) == "") {
			t.Errorf("%s: %q, %v, want %q, %q", step.name, got, err, step.want, step.err)
		}
	}
}

func TestCopyOfNothing(t *testing.T) {
	c := newCopies(t)
	absent := provider.MustParseAddress(stored.Host + "/acme/absent")
	archive := filepath.Join(t.TempDir(), "bundle.tar")
	_, err := c.run(func(run *transfer.Copy) {
		run.Configured = []subject.Address{absent}
		run.To = transfer.Location{Kind: transfer.Archive, Name: archive}
	})
	if err == nil || err.Error() != "there is nothing to copy" || len(c.progress.warnings) != 1 || !strings.Contains(c.progress.warnings[0], "has no version of") {
		t.Errorf("%v, %q", err, c.progress.warnings)
	}
	if _, err := os.Stat(archive); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target was opened: %v", err)
	}
}

func TestCopyToItself(t *testing.T) {
	c := newCopies(t)
	c.from.Store("acme/null", "1.0.0")
	c.to = c.from
	if got, err := c.run(nil); !errors.Is(err, transfer.ErrSameRepository) || hint.Of(err) == "" || got != "" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestCopyThroughBundles shows that versions can be copied into a bundle, and from the
// bundle into a registry and into a mirror folder.
func TestCopyThroughBundles(t *testing.T) {
	for _, kind := range []transfer.Kind{transfer.Folder, transfer.Archive} {
		t.Run(string(kind), func(t *testing.T) {
			c := newCopies(t)
			c.from.Store("acme/null", "1.0.0")
			at := transfer.Location{Kind: kind, Name: filepath.Join(t.TempDir(), "bundle")}
			for _, step := range []struct{ from, to transfer.Location }{
				{registryAt("from"), at},
				{at, registryAt("to")},
				{at, transfer.Location{Kind: transfer.Mirror, Name: filepath.Join(t.TempDir(), "mirror")}},
			} {
				got, err := c.run(func(run *transfer.Copy) { run.From, run.To = step.from, step.to })
				if got != "null 1.0.0 pushed" || err != nil {
					t.Errorf("to %s: %q, %v", step.to.Kind, got, err)
				}
			}
		})
	}
}

// TestCopyOfLostRegistries shows the errors if the source cannot be read or the target
// cannot be written.
func TestCopyOfLostRegistries(t *testing.T) {
	c := newCopies(t)
	c.from.Store("acme/null", "1.0.0")
	c.to.Lose()
	if got, err := c.run(nil); got != "" || err == nil || !strings.Contains(err.Error(), "data folder is gone") {
		t.Errorf("to: %q, %v", got, err)
	}
	c.from.Lose()
	if _, err := c.run(nil); err == nil || !strings.Contains(err.Error(), "embedded cannot be listed: ") {
		t.Errorf("from: %v", err)
	}
}

// TestPushFromFolders shows that a push stores the releases in a mirror folder, and pushes
// no further release after a failure.
func TestPushFromFolders(t *testing.T) {
	c := newCopies(t)
	c.from.Store("acme/null", "1.0.0")
	c.from.Store("acme/widget", "2.0.0")
	dir := filepath.Join(t.TempDir(), "mirror")
	if _, err := c.run(func(run *transfer.Copy) { run.To = transfer.Location{Kind: transfer.Mirror, Name: dir} }); err != nil {
		t.Fatal(err)
	}
	src, err := transfer.MirrorDir(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	push := func(policy trust.Policy) (string, error) {
		p := &progress{}
		_, err := transfer.Push(t.Context(), src, c.to.Repositories, pusher.Options{Jobs: 1, Policy: func(provider.Address) trust.Policy { return policy }}, p)
		return strings.Join(p.done, ", "), err
	}
	if got, err := push(trust.Policy{}); got != "" || err == nil {
		t.Errorf("unsigned: %q, %v", got, err)
	}
	if got, err := push(trust.Policy{AllowUnsigned: true}); got != "null 1.0.0 pushed, widget 2.0.0 pushed" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestLocked(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), lockfile.Name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	entry := func(version, hashes string) string {
		return "provider \"" + stored.Host + "/acme/null\" {\n  version = \"" + version + "\"\n" + hashes + "}\n"
	}
	hashes := "  hashes = [\n    \"zh:" + strings.Repeat("a", 64) + "\",\n  ]\n"
	requests, _, err := transfer.Locked([]string{write(entry("1.0.0", hashes)), write(entry("2.0.0", hashes)), write(entry("1.0.0", hashes))})
	if err != nil || len(requests) != 2 || len(requests[0].Known) != 2 || len(requests[1].Known) != 1 || requests[1].Version.String() != "2.0.0" {
		t.Errorf("%+v, %v", requests, err)
	}
	for text, want := range map[string]string{entry("1.0.0", ""): "has no hashes there", "": "no provider is locked"} {
		if _, _, err := transfer.Locked([]string{write(text)}); err == nil || !strings.Contains(err.Error(), want) || hint.Of(err) == "" {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestOpenWants shows that provider blocks with the same folder share its source, and that
// a missing folder does not affect other blocks.
func TestOpenWants(t *testing.T) {
	dir := t.TempDir()
	block := func(typ string, from config.Source) config.Provider {
		return config.Provider{Address: provider.MustParseAddress(stored.Host + "/acme/" + typ), From: from}
	}
	c := &config.Config{
		Providers:   []config.Provider{block("a", config.Source{Folder: dir}), block("b", config.Source{Folder: dir}), block("c", config.Source{}), block("d", config.Source{Folder: dir + "/gone"})},
		PullThrough: &config.PullThrough{Enabled: true, Scope: pull.Scope{Selector: subject.Selector{Include: []subject.Pattern{provider.MustParsePattern(stored.Host + "/acme/c"), module.MustParsePattern(stored.Host + "/acme/m/aws")}}}},
	}
	for _, name := range []string{"m", "n"} {
		c.Modules = append(c.Modules, config.Module{Address: module.MustParseAddress(stored.Host + "/acme/" + name + "/aws")})
	}
	registry := origin.NewRegistry(origin.RegistryOptions{})
	w := transfer.OpenWants(c, transfer.AllBlocks(c), registry, "")
	defer w.Close()
	if w.Wants[0].Source != w.Wants[1].Source || w.Wants[2].Source != origin.Source(registry) {
		t.Errorf("%+v", w.Wants)
	}
	if _, err := w.Wants[3].Source.Versions(t.Context(), provider.MustParseAddress(stored.Host+"/acme/d")); err == nil || !strings.Contains(err.Error(), "provider block at") {
		t.Errorf("%v", err)
	}
	if w.Wants[1].Keep || !w.Wants[2].Keep || !w.Wants[4].Keep || w.Wants[5].Keep {
		t.Errorf("with pull-through: %+v", w.Wants)
	}
}

// TestCopyOfALostPlatform shows that a copy goes on after a version of which the source lacks a manifest, and then fails.
func TestCopyOfALostPlatform(t *testing.T) {
	c := newCopies(t)
	a := c.from.Store("acme/null", "1.0.0")
	c.from.Store("acme/null", "1.1.0")
	var lost ocispec.Descriptor
	c.from.Reindex(a, "1.0.0", func(index *ocispec.Index) {
		for i := range index.Manifests {
			if index.Manifests[i].Platform != nil { // without annotations, the manifest has to be read
				index.Manifests[i].Annotations, lost = nil, index.Manifests[i]
			}
		}
	})
	_, repo, err := c.from.Repository(t.Context(), a)
	if err == nil {
		err = repo.Manifests().Delete(t.Context(), lost)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range []string{"pushed", "unchanged"} {
		got, err := c.run(func(c *transfer.Copy) { c.Push.Jobs = 1 })
		if want := "null 1.0.0 " + status + ", null 1.1.0 " + status; got != want || !errors.Is(err, artifact.ErrMissing) || hint.Of(err) == "" {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
		if r := c.results[0]; len(r.Lost) != 1 || r.Lost[0].OS != lost.Platform.OS || len(r.Packages) == 0 {
			t.Errorf("%+v", r)
		}
	}
}
