package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/origins/closure"
	"github.com/ocibridge/ocibridge/internal/origins/gitfiles"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/gitserver"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/templates"
)

// missingOf is the progress of a push that keeps what is missing.
type missingOf struct{ missing []string }

func (*missingOf) Event(pusher.Event)          {}
func (*missingOf) Warn(string)                 {}
func (*missingOf) Done(*transfer.PushedModule) {}
func (p *missingOf) Missing(m closure.Missing) { p.missing = append(p.missing, m.String()) }

// repositories returns an empty registry with repositories for the modules of the bench.
func (b *moduleBench) repositories() *registry.Repositories {
	b.t.Helper()
	to, err := registry.Open(registry.Options{DataFolder: b.t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { to.Close() })
	// A repository cannot have the name of a host with a port.
	template, err := templates.Parse(string(embedded.Host)+"/${namespace}/${name}/${system}", module.Selector{Include: []module.Pattern{module.MustParsePattern(b.at + "/*/*/*")}})
	if err != nil {
		b.t.Fatal(err)
	}
	to.Templates = templates.Set{template}
	return to
}

// TestClosureWithoutSomeModules shows that a module whose called versions cannot be stored is stored without them, that the
// stored ones among them are followed, and that a version that the user names is an error.
func TestClosureWithoutSomeModules(t *testing.T) {
	b := newModuleBench(t)
	broken := map[string]struct {
		location string
		err      error
	}{
		"archive": {"https://HOST/bad.tar.gz", moduleorigin.ErrArchive},
		"denied":  {"git::https://HOST/denied/x", gitfiles.ErrDenied},
		"folder":  {"git::https://HOST/git/good//none?ref=main", moduleorigin.ErrNoFolder},
		"gone":    {"", origin.ErrVersionNotFound},
		"hg":      {"hg::https://HOST/x", moduleorigin.ErrLocation},
		"ref":     {"git::https://HOST/git/good?ref=none", gitfiles.ErrNoRef},
		"refused": {"git::https://HOST/git/refused?ref=main", gitfiles.ErrRefused},
		"server":  {"git::https://HOST/git/none", gitfiles.ErrNoRepository},
		"twins":   {"git::https://HOST/git/good?ref=main", moduleorigin.ErrTwins},
	}
	call := func(name string) string {
		return fmt.Sprintf("module %q {\n  source = \"%s/called/%s/aws\"\n}\n", name, b.at, name)
	}
	b.git.Commit(t, "good", gitserver.Tree{"main.tf": "# good\n"})
	b.git.Commit(t, "refused", gitserver.Tree{"main.tf": "# x\n", ".gitattributes": "*.tf working-tree-encoding=none\n"})
	b.git.Commit(t, "stored", gitserver.Tree{"main.tf": call("deeper")})
	b.locations["twins v1.0.0"] = "git::https://HOST/git/refused?ref=main"
	names := slices.Sorted(maps.Keys(broken))
	text := call("good") + call("stored")
	for _, name := range names {
		if text += call(name); broken[name].location != "" {
			b.locations[name] = broken[name].location
		}
	}
	b.git.Commit(t, "top", gitserver.Tree{"main.tf": text})
	for _, name := range []string{"top", "good", "stored", "deeper"} {
		b.locations[name] = "git::https://HOST/git/" + name + "?ref=main"
	}
	b.locations["deeper"] = b.locations["good"]

	to := b.repositories()
	push := func(name string, follow bool) (string, []string, error) {
		q := query.Query[module.Address]{Address: module.MustParseAddress(b.at + "/called/" + name + "/aws"), Version: provider.MustParseVersion("1.0.0")}
		m := transfer.Modules{Origin: &moduleorigin.Origin{Registry: b.registry}, Requests: []query.Query[module.Address]{q}, Closure: follow}
		progress := &missingOf{}
		results, err := m.Push(t.Context(), to, pusher.Options{}, progress)
		var pushed []string
		for _, r := range results {
			pushed = append(pushed, r.Repository.String())
		}
		return strings.Join(pushed, " "), progress.missing, err
	}
	if _, _, err := push("stored", false); err != nil {
		t.Fatal(err)
	}
	b.locations["stored"] += "-gone"

	pushed, missing, err := push("top", true)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"top", "good", "deeper"} {
		if !strings.Contains(pushed, "/called/"+name+"/") {
			t.Errorf("%s is not among the pushed %s", name, pushed)
		}
	}
	if len(missing) != len(names) {
		t.Errorf("%d are missing, want %d:\n%s", len(missing), len(names), strings.Join(missing, "\n"))
	}
	for i, name := range names {
		at := fmt.Sprintf("/called/top/aws 1.0.0, main.tf:%d: ", 7+3*i)
		if !slices.ContainsFunc(missing, func(m string) bool {
			return strings.Contains(m, at) && strings.Contains(m, "/called/"+name+"/aws: ") && strings.Contains(m, broken[name].err.Error())
		}) {
			t.Errorf("%s: not missing at %s with %v:\n%s", name, at, broken[name].err, strings.Join(missing, "\n"))
		}
		if _, _, err := push(name, true); !errors.Is(err, broken[name].err) {
			t.Errorf("%s is named: %v, want %v", name, err, broken[name].err)
		}
	}
	if _, _, err := push("stored", true); !errors.Is(err, gitfiles.ErrNoRef) {
		t.Errorf("a stored version is named whose tag is gone: %v", err)
	}
}

// TestManyZipsOfAClosure shows that a closure keeps a limited number of zips, and fetches the others again to store them.
func TestManyZipsOfAClosure(t *testing.T) {
	testkit.LeaveToAll(t)
	const many, kept = 105, 100
	b := newModuleBench(t)
	tree, text := gitserver.Tree{}, ""
	for i := range many - 1 {
		name := fmt.Sprintf("m%d", i)
		tree[name+"/main.tf"] = "# " + name + "\n"
		b.locations[name] = "git::https://HOST/git/all//" + name + "?ref=main"
		text += fmt.Sprintf("module %q {\n  source = \"%s/called/%s/aws\"\n}\n", name, b.at, name)
	}
	tree["top/main.tf"] = text
	b.git.Commit(t, "all", tree)
	b.locations["top"] = "git::https://HOST/git/all//top?ref=main"
	to := b.repositories()
	push := func(dryRun bool) (results []*transfer.PushedModule) {
		q := query.Query[module.Address]{Address: module.MustParseAddress(b.at + "/called/top/aws"), Version: provider.MustParseVersion("1.0.0")}
		m := transfer.Modules{Origin: &moduleorigin.Origin{Registry: b.registry}, Requests: []query.Query[module.Address]{q}, Closure: true, DryRun: dryRun}
		b.requests = nil
		results, err := m.Push(t.Context(), to, pusher.Options{}, &missingOf{})
		if err != nil || len(results) != many {
			t.Fatalf("%d results, %v", len(results), err)
		}
		return results
	}
	for _, r := range push(true) {
		if r.Status != pusher.Pushed || r.Entries != many {
			t.Errorf("planned: %+v", r)
		}
	}
	if n := strings.Count(strings.Join(b.requests, " "), "git-upload-pack"); n != many {
		t.Errorf("a dry run fetched %d times", n)
	}
	for _, r := range push(false) {
		if r.Status != pusher.Pushed || r.Entries != many {
			t.Errorf("pushed: %+v", r)
		}
	}
	if n := strings.Count(strings.Join(b.requests, " "), "git-upload-pack"); n != many+many-kept {
		t.Errorf("a push fetched %d times", n)
	}
	for _, r := range push(false) {
		if r.Status != pusher.Unchanged {
			t.Errorf("again: %+v", r)
		}
	}
}

// TestNeededWithoutRegistry shows that a provider is missing if its host does not exist, or has no provider registry.
func TestNeededWithoutRegistry(t *testing.T) {
	b := newModuleBench(t)
	transport := b.transport.Clone()
	transport.DialContext = func(ctx context.Context, network, at string) (net.Conn, error) {
		if strings.HasPrefix(at, "gone.example:") {
			return nil, &net.DNSError{Err: "no such host", Name: "gone.example", IsNotFound: true}
		}
		return new(net.Dialer).DialContext(ctx, network, at)
	}
	t.Cleanup(transport.CloseIdleConnections)
	client := origin.NewRegistry(origin.RegistryOptions{Transport: transport})
	t.Cleanup(client.HTTP().CloseIdleConnections)
	dir := t.TempDir()
	text := fmt.Sprintf("terraform {\n  required_providers {\n    a = { source = \"%s/acme/a\" }\n    b = { source = \"gone.example/acme/b\" }\n  }\n}\n", b.at)
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	progress := &missingOf{}
	needed, err := transfer.NeededBy(t.Context(), dir, &moduleorigin.Origin{Registry: client}, &registry.Repositories{}, pusher.Options{}, false, false, progress)
	if err != nil {
		t.Fatal(err)
	}
	defer needed.Close()
	got := strings.Join(progress.missing, "\n")
	for _, want := range []string{"main.tf:3: " + b.at + "/acme/a: ", "main.tf:4: gone.example/acme/b: ", "no such host"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if len(progress.missing) != 2 || len(needed.Requests) != 0 {
		t.Errorf("%v, missing\n%s", needed.Requests, got)
	}
}
