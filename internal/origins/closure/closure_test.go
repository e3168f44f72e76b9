package closure_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/origins/closure"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

const host = "registry.acme.example/"

// memory is an origin in memory. The keys are NAMESPACE/NAME/SYSTEM@VERSION of modules at host, or an address with another
// host. Each value is a text with files: a line "-- NAME" begins a file. A text that begins with = is a stored version.
type memory struct {
	modules  map[string]string
	packages atomic.Int64 // how many packages were read
}

func address(name string) module.Address {
	if strings.Count(name, "/") == 2 {
		name = host + name
	}
	return module.MustParseAddress(name)
}

func (m *memory) Versions(_ context.Context, a module.Address) (out []closure.Offer, err error) {
	for key, text := range m.modules {
		if name, version, _ := strings.Cut(key, "@"); address(name) == a {
			out = append(out, closure.Offer{Version: provider.MustParseVersion(version), Stored: strings.HasPrefix(text, "=")})
		}
	}
	if out == nil {
		return nil, fmt.Errorf("%s: %w", a, closure.ErrAbsent)
	}
	return out, nil
}

func (m *memory) Package(ctx context.Context, a module.Address, v provider.Version) (*closure.Package, error) {
	m.packages.Add(1)
	for key, text := range m.modules {
		name, version, _ := strings.Cut(key, "@")
		if address(name) != a || version != v.String() {
			continue
		}
		text = strings.TrimPrefix(text, "=")
		switch text {
		case "broken":
			return nil, fmt.Errorf("%w: its location is of the kind hg", closure.ErrAbsent)
		case "down":
			return nil, fmt.Errorf("%w: timeout", closure.ErrFailed)
		}
		root, text, _ := strings.Cut(text, "|")
		return closure.Read(ctx, files(text), root)
	}
	return nil, fmt.Errorf("%s %s: %w", a, v, closure.ErrAbsent)
}

// files returns the files in a text.
func files(text string) fs.FS {
	out := fstest.MapFS{}
	for _, part := range strings.Split(text, "-- ")[1:] {
		name, content, _ := strings.Cut(part, "\n")
		out[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return out
}

// call returns the text of a module block. Its name is that of the source.
func call(source, version string) string {
	if version != "" {
		version = fmt.Sprintf("  version = %q\n", version)
	}
	return fmt.Sprintf("module \"m\" {\n  source = %q\n%s}\n", source, version)
}

// follow returns the releases and what is missing, each sorted and without the usual host.
func follow(t *testing.T, m map[string]string, o closure.Options) (releases, missing string, result *closure.Result) {
	t.Helper()
	o.Origin = &memory{modules: m}
	return followed(t, o)
}

func followed(t *testing.T, o closure.Options) (releases, missing string, result *closure.Result) {
	t.Helper()
	result, err := closure.Follow(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var found, lost []string
	for _, r := range result.Releases {
		found = append(found, strings.ReplaceAll(r.Module.String()+"@"+r.Version.String(), host, ""))
	}
	for _, x := range result.Missing {
		lost = append(lost, strings.ReplaceAll(x.String(), host, ""))
	}
	if len(slices.Compact(slices.Sorted(slices.Values(found)))) != len(found) {
		t.Errorf("a release is there twice: %q", found)
	}
	slices.Sort(found)
	slices.Sort(lost)
	return strings.Join(found, " "), strings.Join(lost, "\n"), result
}

func start(releases ...string) (out closure.Options) {
	for _, r := range releases {
		name, version, _ := strings.Cut(r, "@")
		out.Starts = append(out.Starts, closure.Release{Module: address(name), Version: provider.MustParseVersion(version)})
	}
	return out
}

func TestFollow(t *testing.T) {
	const empty = "|-- main.tf\n"
	for _, tt := range []struct {
		about         string
		modules       map[string]string
		starts        string
		want, missing string
	}{
		{"twelve modules in three levels", map[string]string{
			"a/top/x@1.0.0":   "|-- main.tf\n" + call(host+"a/m1/x", "~> 1.0") + call(host+"a/m2/x", "") + call("./modules/net", "") + "-- modules/net/net.tofu\n" + call(host+"a/m3/x//modules/sub", "2.0.0"),
			"a/m1/x@1.9.0":    "|-- main.tf.json\n" + `{"module": {"l": {"source": "` + host + `a/l1/x", "version": ">= 1.0, < 2.0"}}}`,
			"a/m1/x@2.0.0":    "|-- main.tf\n" + call(host+"a/never/x", ""),
			"a/m2/x@3.0.0":    "src|-- src/main.tf\n" + call("../shared", "") + "-- shared/main.tf\n" + call(host+"a/l2/x", "") + "-- main.tf\n" + call(host+"a/never/x", ""),
			"a/m3/x@2.0.0":    "|-- main.tf\n" + call(host+"a/never/x", "") + "-- modules/sub/main.tf\n" + call("../other", "") + call(host+"a/l3/x", "") + "-- modules/other/main.tf\n" + call(host+"a/l4/x", "") + "-- modules/unused/main.tf\n" + call(host+"a/never/x", ""),
			"a/l1/x@1.5.0":    "|-- main.tf\n" + call(host+"a/e1/x", ""),
			"a/l2/x@1.0.0":    "|-- main.tf\n" + call(host+"a/e2/x", ""),
			"a/l3/x@1.0.0":    "|-- main.tf\n" + call(host+"a/e3/x", ""),
			"a/l4/x@1.0.0":    "|-- main.tf\n" + call(host+"a/e4/x", "") + "-- examples/all/main.tf\n" + call(host+"a/never/x", "") + "-- x.tftest.hcl\nrun \"a\" {\n module {\n source = \"" + host + "a/never/x\"\n}\n}\n",
			"a/e1/x@1.0.0":    empty,
			"a/e2/x@1.0.0":    empty,
			"a/e3/x@1.0.0":    empty,
			"a/e4/x@1.0.0":    empty,
			"a/never/x@1.0.0": empty,
		}, "a/top/x@1.0.0", "a/e1/x@1.0.0 a/e2/x@1.0.0 a/e3/x@1.0.0 a/e4/x@1.0.0 a/l1/x@1.5.0 a/l2/x@1.0.0 a/l3/x@1.0.0 a/l4/x@1.0.0 a/m1/x@1.9.0 a/m2/x@3.0.0 a/m3/x@2.0.0 a/top/x@1.0.0", ""},
		{"a version that is there for another reason does not count", map[string]string{
			"a/a/x@1.0.0": "|-- main.tf\n" + call(host+"a/b/x", ">= 1.0"),
			"a/b/x@1.0.0": empty, "a/b/x@2.0.0": "|-- main.tf\n" + call(host+"a/c/x", ""), "a/c/x@1.0.0": empty,
		}, "a/a/x@1.0.0 a/b/x@1.0.0", "a/a/x@1.0.0 a/b/x@1.0.0 a/b/x@2.0.0 a/c/x@1.0.0", ""},
		{"each constraint has its own newest version", map[string]string{
			"a/a/x@1.0.0": "|-- main.tf\n" + call(host+"a/b/x", "~> 1.0") + call(host+"a/b/x", "~> 2.0") + call(host+"a/b/x", ">= 1.0, != 3.0.0"),
			"a/b/x@1.2.0": "|-- main.tf\n" + call(host+"a/c/x", "1.0.0"), "a/b/x@1.1.0": empty, "a/b/x@2.1.0": "|-- main.tf\n" + call(host+"a/c/x", "2.0.0"), "a/b/x@3.0.0": empty,
			"a/c/x@1.0.0": empty, "a/c/x@2.0.0": empty,
		}, "a/a/x@1.0.0", "a/a/x@1.0.0 a/b/x@1.2.0 a/b/x@2.1.0 a/c/x@1.0.0 a/c/x@2.0.0", ""},
		{"another folder of a version that is there", map[string]string{
			"a/a/x@1.0.0": "|-- main.tf\n" + call(host+"a/b/x", "") + call(host+"a/d/x", ""),
			"a/b/x@1.0.0": "|-- main.tf\n-- sub/main.tf\n" + call(host+"a/c/x", ""),
			"a/d/x@1.0.0": "|-- main.tf\n" + call(host+"a/b/x//./sub/", ""), "a/c/x@1.0.0": empty,
		}, "a/a/x@1.0.0", "a/a/x@1.0.0 a/b/x@1.0.0 a/c/x@1.0.0 a/d/x@1.0.0", ""},
		{"the submodules of a start", map[string]string{
			"a/a/x@1.0.0": "src|-- src/modules/s/main.tf\n" + call(host+"a/b/x", "") + "-- src/modules/s/deeper/main.tf\n" + call(host+"a/never/x", "") + "-- modules/t/main.tf\n" + call(host+"a/never/x", ""),
			"a/b/x@1.0.0": empty, "a/never/x@1.0.0": empty,
		}, "a/a/x@1.0.0", "a/a/x@1.0.0 a/b/x@1.0.0", ""},
		{"prereleases", map[string]string{
			"a/a/x@1.0.0": "|-- main.tf\n" + call(host+"a/b/x", ">= 1.0") + call(host+"a/c/x", "2.0.0-beta.1") + call(host+"a/d/x", "") + call(host+"a/e/x", ">= 1.0, 2.0.0-beta.1") + call(host+"a/f/x", "v2.0.0-beta.1"),
			"a/b/x@1.0.0": empty, "a/b/x@2.0.0-rc.1": empty, "a/c/x@1.0.0": empty, "a/c/x@2.0.0-beta.1": empty, "a/c/x@2.0.0-beta.2": empty,
			"a/d/x@1.0.0-rc.1": empty, "a/e/x@2.0.0-beta.1": empty, "a/f/x@2.0.0-beta.1": empty,
		}, "a/a/x@1.0.0", "a/a/x@1.0.0 a/b/x@1.0.0 a/c/x@2.0.0-beta.1 a/f/x@2.0.0-beta.1",
			"a/a/x 1.0.0, main.tf:12: a/e/x: a/e/x: it has no version that the constraint \">= 1.0, 2.0.0-beta.1\" allows\na/a/x 1.0.0, main.tf:9: a/d/x: a/d/x: it has no release"},
		{"the constraint syntax of modules", map[string]string{
			"a/a/x@1.0.0": "|-- main.tf\n" + call(host+"a/b/x", "~> 1"), "a/b/x@1.0.0": empty, "a/b/x@2.0.0": empty,
		}, "a/a/x@1.0.0", "a/a/x@1.0.0 a/b/x@2.0.0", ""},
		{"cycles", map[string]string{
			"a/a/x@1.0.0": "|-- main.tf\n" + call("./.", "") + call(host+"a/b/x", "") + call("./m", "") + "-- m/main.tf\n" + call("../", ""),
			"a/b/x@1.0.0": "|-- main.tf\n" + call(host+"a/a/x", "") + call(host+"a/b/x//sub", "") + "-- sub/main.tf\n" + call(host+"a/b/x", ""),
		}, "a/a/x@1.0.0", "a/a/x@1.0.0 a/b/x@1.0.0", ""},
		{"twins that differ in case", map[string]string{
			"a/a/x@1.0.0":       "|-- main.tf\n" + call(host+"Azure/Net/x", "") + call(host+"azure/net/x", ""),
			"Azure/Net/x@1.0.0": empty, "azure/net/x@1.0.0": empty,
		}, "a/a/x@1.0.0", "Azure/Net/x@1.0.0 a/a/x@1.0.0 azure/net/x@1.0.0", ""},
		{"what OpenTofu alone reads", map[string]string{
			"a/a/x@1.0.0": "|-- main.tf\n" + call(host+"a/b/x", "") + "-- main.tofu\n" + call(host+"a/c/x", ""), "a/b/x@1.0.0": empty, "a/c/x@1.0.0": empty,
		}, "a/a/x@1.0.0", "a/a/x@1.0.0 a/b/x@1.0.0 a/c/x@1.0.0", ""},
		{"what is missing", map[string]string{
			"a/a/x@1.0.0": "|-- main.tf\n" + call("git::https://me:secret@git.example/x.git?ref=v1&token=secret", "") + // line 1
				call("${path.module}/x", "") + call("https://web.example/x.zip?sig=secret", "") + call("github.com/acme/x", "") + // 4, 7, 10
				"module \"m\" {\n}\n" + call("../out", "") + call("./none", "") + call(host+"a/gone/x", "") + // 13, 15, 18, 21
				call(host+"a/b/x", "~> 9.0") + call(host+"a/b/x//none", "") + call(host+"a/c/x", "") + call(host+"a/b/x", "nonsense") + // 24, 28, 31, 34
				"module \"m\" {\n source = \"" + host + "a/b/x\"\n version = var.v\n}\n" + call("/abs", "") + call(host+"a/b/x//../up", ""), // 38, 42, 45
			"a/b/x@1.0.0": empty, "a/c/x@1.0.0": "broken",
		}, "a/a/x@1.0.0", "a/a/x@1.0.0 a/b/x@1.0.0", `a/a/x 1.0.0, main.tf:10: github.com/acme/x: it is not in a module registry, so clients fetch it from there themselves
a/a/x 1.0.0, main.tf:13: the module block has no source
a/a/x 1.0.0, main.tf:15: ../out: it is outside the module's package
a/a/x 1.0.0, main.tf:18: ./none: the module's package has no .tf or .tofu file there
a/a/x 1.0.0, main.tf:1: git::https://git.example/x.git?ref=v1: it is not in a module registry, so clients fetch it from there themselves
a/a/x 1.0.0, main.tf:21: a/gone/x: a/gone/x: not available
a/a/x 1.0.0, main.tf:24: a/b/x: a/b/x: it has no version that the constraint "~> 9.0" allows
a/a/x 1.0.0, main.tf:28: a/b/x//none: 1.0.0 has no .tf or .tofu file there
a/a/x 1.0.0, main.tf:31: a/c/x: 1.0.0: not available: its location is of the kind hg
a/a/x 1.0.0, main.tf:34: a/b/x: a/b/x: its version constraint "nonsense" is not valid
a/a/x 1.0.0, main.tf:38: a/b/x: the version is no constant
a/a/x 1.0.0, main.tf:42: /abs: it is not in a module registry, so clients fetch it from there themselves
a/a/x 1.0.0, main.tf:45: a/b/x//../up: it is not in a module registry, so clients fetch it from there themselves
a/a/x 1.0.0, main.tf:4: the source is no constant
a/a/x 1.0.0, main.tf:7: https://web.example/x.zip: it is not in a module registry, so clients fetch it from there themselves`},
		{"files that are not read", map[string]string{
			"a/a/x@1.0.0": "|-- main.tf\nmodule \"m\" {\n x = " + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "\n}\n",
		}, "a/a/x@1.0.0", "a/a/x@1.0.0", "a/a/x 1.0.0, main.tf:1: it was not read: the block has more than 12000 words and signs, 1000 parts of texts, 64 nested brackets or 131072 bytes"},
		{"sources without a host, at the registry of the start", map[string]string{
			"registry.opentofu.org/a/a/x@1.0.0": "|-- main.tf\n" + call("a/b/x", ""), "registry.opentofu.org/a/b/x@1.0.0": empty, "registry.terraform.io/a/b/x@2.0.0": empty,
		}, "registry.opentofu.org/a/a/x@1.0.0", "registry.opentofu.org/a/a/x@1.0.0 registry.opentofu.org/a/b/x@1.0.0", ""},
		{"sources without a host, at both registries", map[string]string{
			"a/a/x@1.0.0": "|-- main.tf\n" + call("a/b/x", ""), "registry.opentofu.org/a/b/x@1.0.0": empty, "registry.terraform.io/a/b/x@2.0.0": empty,
		}, "a/a/x@1.0.0", "a/a/x@1.0.0 registry.opentofu.org/a/b/x@1.0.0 registry.terraform.io/a/b/x@2.0.0", ""},
	} {
		t.Run(tt.about, func(t *testing.T) {
			got, missing, result := follow(t, tt.modules, start(strings.Fields(tt.starts)...))
			if got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
			if missing != tt.missing {
				t.Errorf("missing are\n%s\nwant\n%s", missing, tt.missing)
			}
			if err := result.Check(); (err != nil) != (tt.missing != "") || err != nil && hint.Of(err) == "" {
				t.Errorf("strict: %v", err)
			}
		})
	}
}

// TestVersionsThatCannotBeBrought shows that clients then select the next older version, which is followed, and that a stored
// version is never passed over for an older one.
func TestVersionsThatCannotBeBrought(t *testing.T) {
	const empty, refused, down = "|-- main.tf\n", ": not available: its location is of the kind hg", ": not available: its origin failed: timeout"
	child := "|-- main.tf\n" + call(host+"a/c/x", "")
	for _, tt := range []struct {
		about         string
		calls         string
		versions      map[string]string // of a/b/x
		want, missing string
		read          int64 // packages
	}{
		{"the next older version", call(host+"a/b/x", "~> 1.0"), map[string]string{"2.0.0": empty, "1.2.0": "broken", "1.1.0": child, "1.0.0": empty},
			"a/b/x@1.1.0 a/c/x@1.0.0", "main.tf:1: a/b/x: 1.2.0" + refused + "; clients get 1.1.0 instead", 4},
		{"the stored version", call(host+"a/b/x", "~> 1.0"), map[string]string{"1.2.0": "broken", "1.1.0": "=" + child, "1.0.0": empty},
			"a/b/x@1.1.0 a/c/x@1.0.0", "main.tf:1: a/b/x: 1.2.0" + refused + "; clients get 1.1.0 instead", 4},
		{"a stored version that cannot be read", call(host+"a/b/x", ""), map[string]string{"1.1.0": "=broken", "1.0.0": child},
			"", "main.tf:1: a/b/x: 1.1.0" + refused, 2},
		{"an origin that is down", call(host+"a/b/x", ""), map[string]string{"1.3.0": "down", "1.2.0": child, "1.1.0": "=" + empty, "1.0.0": "=" + child},
			"a/b/x@1.1.0", "main.tf:1: a/b/x: 1.3.0" + down + "; clients get 1.1.0 instead", 3},
		{"an origin that is down, and nothing stored", call(host+"a/b/x", ""), map[string]string{"1.3.0": "down", "1.2.0": child},
			"", "main.tf:1: a/b/x: 1.3.0" + down, 2},
		{"refused, and then down", call(host+"a/b/x", ""), map[string]string{"1.3.0": "broken", "1.2.0": "down", "1.1.0": child},
			"", "main.tf:1: a/b/x: 1.3.0" + refused, 3},
		{"too many", call(host+"a/b/x", ""), map[string]string{"1.6.0": "broken", "1.5.0": "broken", "1.4.0": "broken", "1.3.0": "broken", "1.2.0": "broken", "1.1.0": child},
			"", "main.tf:1: a/b/x: 1.6.0" + refused, 6},
		{"too many, and one stored", call(host+"a/b/x", ""), map[string]string{"1.6.0": "broken", "1.5.0": "broken", "1.4.0": "broken", "1.3.0": "broken", "1.2.0": "broken", "1.1.0": child, "1.0.0": "=" + child},
			"a/b/x@1.0.0 a/c/x@1.0.0", "main.tf:1: a/b/x: 1.6.0" + refused + "; clients get 1.0.0 instead", 8},
		{"several constraints and folders", call(host+"a/b/x", "~> 1.1") + call(host+"a/b/x", "1.2.0") + call(host+"a/b/x//modules/s", "~> 1.1") + call(host+"a/b/x", ">= 1.0"),
			map[string]string{"1.2.0": "broken", "1.1.0": empty + "-- modules/s/main.tf\n" + call(host+"a/c/x", ""), "1.0.0": empty},
			"a/b/x@1.1.0 a/c/x@1.0.0", "main.tf:13: a/b/x: 1.2.0" + refused + "; clients get 1.1.0 instead\n" +
				"main.tf:1: a/b/x: 1.2.0" + refused + "; clients get 1.1.0 instead\nmain.tf:5: a/b/x: 1.2.0" + refused, 4},
		{"found out before", call(host+"a/d/x", "") + call(host+"a/b/x", "~> 1.1"), map[string]string{"1.2.0": "broken", "1.1.0": child},
			"a/b/x@1.1.0 a/c/x@1.0.0 a/d/x@1.0.0", "main.tf:4: a/b/x: 1.2.0" + refused + "; clients get 1.1.0 instead\n" +
				"a/d/x 1.0.0, main.tf:1: a/b/x: 1.2.0" + refused + "; clients get 1.1.0 instead", 5},
	} {
		t.Run(tt.about, func(t *testing.T) {
			m := &memory{modules: map[string]string{
				"a/a/x@1.0.0": "|-- main.tf\n" + tt.calls, "a/c/x@1.0.0": empty, "a/d/x@1.0.0": "|-- main.tf\n" + call(host+"a/b/x", ""),
			}}
			for v, text := range tt.versions {
				m.modules["a/b/x@"+v] = text
			}
			o := start("a/a/x@1.0.0")
			o.Origin = m
			got, missing, _ := followed(t, o)
			if want := strings.TrimSpace("a/a/x@1.0.0 " + tt.want); got != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
			if missing = strings.ReplaceAll(missing, "a/a/x 1.0.0, ", ""); missing != tt.missing {
				t.Errorf("missing are\n%s\nwant\n%s", missing, tt.missing)
			}
			if n := m.packages.Load(); n != tt.read {
				t.Errorf("%d packages were read, want %d", n, tt.read)
			}
		})
	}
}

// TestOrder shows that a caller comes before what it calls, and that each found version names its caller.
func TestOrder(t *testing.T) {
	m := &memory{modules: map[string]string{
		"a/a/x@1.0.0": "|-- b.tf\n\n" + call(host+"a/b/x", ""), "a/b/x@1.0.0": "|-- c.tf\n" + call(host+"a/c/x", "") + call(host+"a/c/x", "1.0.0"), "a/c/x@1.0.0": "|-- main.tf\n",
	}}
	o := start("a/a/x@1.0.0")
	o.Origin = m
	result, err := closure.Follow(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(fmt.Sprint(result.Releases[1].By, "; ", result.Releases[2].By), host, "")
	if got != "a/a/x 1.0.0, b.tf:2; a/b/x 1.0.0, c.tf:1" {
		t.Errorf("callers: %s", got)
	}
	if n := m.packages.Load(); n != 3 {
		t.Errorf("%d packages were read", n)
	}
}

// TestErrors shows which errors end a closure.
func TestErrors(t *testing.T) {
	o := start("a/a/x@1.0.0")
	o.Origin = &memory{modules: map[string]string{"a/a/x@1.0.0": "broken"}}
	if _, err := closure.Follow(t.Context(), o); !errors.Is(err, closure.ErrAbsent) {
		t.Errorf("a start that is absent: %v", err)
	}
	o.Origin = failing{&memory{modules: map[string]string{"a/a/x@1.0.0": "|-- main.tf\n" + call(host+"a/b/x", "")}}}
	if _, err := closure.Follow(t.Context(), o); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "main.tf:1") {
		t.Errorf("an origin that fails: %v", err)
	}
	for about, origin := range map[string]closure.Origin{"a chain": endless{"%d"}, "many": endless{"b%d"}} {
		o.Origin = origin
		if _, err := closure.Follow(t.Context(), o); !errors.Is(err, closure.ErrTooLarge) || hint.Of(err) == "" {
			t.Errorf("%s without end: %v", about, err)
		}
	}
}

// TestCost shows that a folder that is called many times is followed once, and that nothing is written for what exceeds the
// list of what is missing.
func TestCost(t *testing.T) {
	testkit.LeaveToAll(t)
	const many = 4_000
	o := start("a/a/x@1.0.0")
	o.Origin = &memory{modules: map[string]string{
		"a/a/x@1.0.0": "|-- main.tf\n" + strings.Repeat(call(host+"a/b/x//s", ""), many),
		"a/b/x@1.0.0": "|-- s/main.tf\n" + strings.Repeat(call("./none", ""), many),
	}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	result, err := closure.Follow(t.Context(), o)
	runtime.ReadMemStats(&after)
	if err != nil || len(result.Missing) != 1_000 || len(result.Releases) != 2 {
		t.Fatalf("%v, %+v", err, result)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 200<<20 {
		t.Errorf("%d MiB were allocated", allocated>>20)
	}
}

// TestCancelled shows that a closure ends with its context, even if nothing more is asked of the origin.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := start("a/a/x@1.0.0")
	o.Origin = cancelling{&memory{modules: map[string]string{"a/a/x@1.0.0": "|-- main.tf\n"}}, cancel}
	if _, err := closure.Follow(ctx, o); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// cancelling is an origin whose user gives up during the first package.
type cancelling struct {
	*memory
	cancel func()
}

func (c cancelling) Package(ctx context.Context, a module.Address, v provider.Version) (*closure.Package, error) {
	defer c.cancel()
	return c.memory.Package(ctx, a, v)
}

// failing is an origin that cannot list versions.
type failing struct{ *memory }

func (failing) Versions(context.Context, module.Address) ([]closure.Offer, error) {
	return nil, fs.ErrPermission
}

// endless is an origin in which each module calls another one, or many others.
type endless struct{ form string }

func (endless) Versions(context.Context, module.Address) ([]closure.Offer, error) {
	return []closure.Offer{{Version: provider.MustParseVersion("1.0.0")}}, nil
}

func (e endless) Package(ctx context.Context, a module.Address, _ provider.Version) (*closure.Package, error) {
	text := ""
	for i := range 30 {
		text += call(host+"a/"+a.Name()+fmt.Sprintf(e.form, i)+"/x", "")
		if e.form[0] == '%' {
			break
		}
	}
	return closure.Read(ctx, files("-- main.tf\n"+text), "")
}

// TestReadIsBounded shows that a package with too many declarations is refused.
func TestReadIsBounded(t *testing.T) {
	text := &strings.Builder{}
	for i := range 20 {
		fmt.Fprintf(text, "-- f%d/main.tf\n%s", i, strings.Repeat(call("a/"+strings.Repeat("b", 1_900)+"/c", "1.0.0"), 100))
	}
	if _, err := closure.Read(t.Context(), files(text.String()), ""); !errors.Is(err, closure.ErrTooLarge) {
		t.Errorf("many calls: %v", err)
	}
	text.Reset()
	for i := range 10 {
		fmt.Fprintf(text, "-- f%d/main.tf\n%s", i, strings.Repeat("module \"a\" {\n  source = \"./b\"\n  x = ["+strings.Repeat("1,", 5_000)+"]\n}\n", 5))
	}
	if _, err := closure.Read(t.Context(), files(text.String()), ""); !errors.Is(err, closure.ErrTooLarge) {
		t.Errorf("calls of many words: %v", err)
	}
}

// TestConfiguration shows what init in a folder needs.
func TestConfiguration(t *testing.T) {
	const lock = "provider \"registry.opentofu.org/hashicorp/null\" {\n  version = \"3.2.1\"\n  hashes = [\"h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"]\n}\n"
	modules := map[string]string{
		"registry.opentofu.org/a/b/x@1.0.0": "|-- main.tf\nterraform {\n required_providers {\n  null = { source = \"hashicorp/null\" }\n  widget = { source = \"registry.acme.example/acme/widget\", version = \"< 3.0\" }\n }\n}\n" + call(host+"a/c/x", ""),
		"registry.terraform.io/a/b/x@1.0.0": "|-- main.tf\n",
		"a/c/x@1.0.0":                       "|-- main.tf\nresource \"time_sleep\" \"x\" {}\nresource \"terraform_data\" \"x\" {}\n",
		"a/c/x@2.0.0":                       "|-- main.tf\n", "a/t/x@1.0.0": "|-- main.tf\n",
	}
	main := map[string]string{
		"main.tf": "terraform {\n required_providers {\n  widget = { source = \"registry.acme.example/acme/widget\", version = \"~> 2.1\" }\n }\n}\nresource \"widget_x\" \"y\" {}\n" +
			call("./sub", "") + call("git::https://git.example/x", ""),
		"sub/main.tf":        "resource \"random_id\" \"x\" {}\n" + call("a/b/x", "1.0.0") + "terraform {\n required_providers {\n  bad = { source = \"a/b/c/d\" }\n  built = { source = \"terraform.io/builtin/terraform\" }\n }\n}\n",
		"tests/a.tftest.hcl": "run \"a\" {\n module {\n  source = \"" + host + "a/t/x\"\n }\n}\n",
		"other/main.tf":      call("a/never/x", ""),
	}
	for _, tt := range []struct {
		about, lock, providers, modules, missing string
	}{
		{"with a lock file", lock, "registry.acme.example/acme/widget[~> 2.1, < 3.0] registry.opentofu.org/hashicorp/random[>= 0.0.0]",
			"a/c/x 2.0.0, a/t/x 1.0.0, registry.opentofu.org/a/b/x 1.0.0", "main.tf:10: git::https://git.example/x: it is not in a module registry, so clients fetch it from there themselves\nsub/main.tf:8: a/b/c/d: it is no address of a provider"},
		{"without a lock file", "", "registry.acme.example/acme/widget[~> 2.1, < 3.0] registry.opentofu.org/hashicorp/null[>= 0.0.0] registry.opentofu.org/hashicorp/random[>= 0.0.0] registry.terraform.io/hashicorp/null[>= 0.0.0] registry.terraform.io/hashicorp/random[>= 0.0.0]",
			"a/c/x 2.0.0, a/t/x 1.0.0, registry.opentofu.org/a/b/x 1.0.0, registry.terraform.io/a/b/x 1.0.0", "main.tf:10: git::https://git.example/x: it is not in a module registry, so clients fetch it from there themselves\nsub/main.tf:8: a/b/c/d: it is no address of a provider"},
	} {
		t.Run(tt.about, func(t *testing.T) {
			dir := t.TempDir()
			written := maps.Clone(main)
			if tt.lock != "" {
				written[".terraform.lock.hcl"] = tt.lock
			}
			for name, text := range written {
				name = filepath.Join(dir, filepath.FromSlash(name))
				if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			n, err := closure.Configuration(t.Context(), dir, &memory{modules: modules}, 0)
			if err != nil {
				t.Fatal(err)
			}
			var providers, found, missing []string
			for _, p := range n.Providers {
				providers = append(providers, fmt.Sprintf("%s%v", p.Address, p.Versions))
			}
			for _, m := range n.Modules {
				found = append(found, strings.ReplaceAll(m.Release.String(), host, ""))
			}
			for _, m := range n.Missing {
				missing = append(missing, strings.ReplaceAll(m.String(), filepath.ToSlash(dir)+"/", ""))
			}
			slices.Sort(found)
			for what, pair := range map[string][2]string{
				"providers": {strings.Join(providers, " "), tt.providers}, "modules": {strings.Join(found, ", "), tt.modules}, "missing": {strings.Join(missing, "\n"), tt.missing},
			} {
				if pair[0] != pair[1] {
					t.Errorf("%s:\n got %s\nwant %s", what, pair[0], pair[1])
				}
			}
			if (n.Lock != "") != (tt.lock != "") {
				t.Errorf("lock file %q", n.Lock)
			}
		})
	}
	if _, err := closure.Configuration(t.Context(), t.TempDir(), &memory{}, 0); err == nil || hint.Of(err) == "" {
		t.Errorf("an empty folder: %v", err)
	}
}

// TestManyConstraints shows that the requirements of many modules for one provider have no limit of length together, and that
// one that is not valid is named.
func TestManyConstraints(t *testing.T) {
	write := func(last string) *closure.Needs {
		dir := t.TempDir()
		calls := ""
		for i := range 200 {
			name := fmt.Sprintf("m%d", i)
			calls += fmt.Sprintf("module %q {\n  source = \"./%s\"\n}\n", name, name)
			version := fmt.Sprintf(">= 1.0.%d, < 3.0.0", i)
			if i == 199 {
				version = last
			}
			text := fmt.Sprintf("terraform {\n  required_providers {\n    w = { source = \"%sacme/w\", version = %q }\n  }\n}\n", host, version)
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, name), 0o700), os.WriteFile(filepath.Join(dir, name, "main.tf"), []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(calls), 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := closure.Configuration(t.Context(), dir, &memory{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	n := write("!= 2.9.0")
	if len(n.Missing) != 0 || len(n.Providers) != 1 || len(n.Providers[0].Versions) < 2 {
		t.Fatalf("%+v", n)
	}
	var versions []provider.Version
	for _, v := range []string{"1.0.5", "1.0.198", "2.8.0", "2.9.0", "3.0.0"} {
		versions = append(versions, provider.MustParseVersion(v))
	}
	if newest, _, ok := n.Providers[0].Newest(versions); !ok || newest.String() != "2.8.0" {
		t.Errorf("%s, %v", newest, ok)
	}
	if _, none, ok := n.Providers[0].Newest(versions[:1]); ok || none.IsZero() {
		t.Errorf("%s, %v", none, ok)
	}
	n = write(">>> 1")
	if len(n.Providers) != 0 || len(n.Missing) != 1 || !strings.Contains(n.Missing[0].String(), "m199/main.tf:3: "+host+"acme/w: invalid version constraint") {
		t.Errorf("%+v", n)
	}
}

// TestRequirements shows which providers a requirement means.
func TestRequirements(t *testing.T) {
	defaults := []svchost.Hostname{"registry.opentofu.org"}
	for source, want := range map[string]string{
		"hashicorp/null": "[registry.opentofu.org/hashicorp/null]", "a.example/acme/x": "[a.example/acme/x]", "terraform.io/builtin/terraform": "[]", "a b/c": "[]",
	} {
		if got := fmt.Sprint(closure.Requirement{Source: source}.Addresses(defaults)); got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
	}
}
