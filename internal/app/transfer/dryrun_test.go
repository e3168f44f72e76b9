package transfer_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/registries/bundle"
	"github.com/ocibridge/ocibridge/internal/test/testkit/stored"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// filesIn returns the names and sizes of all files in a folder that need not exist.
func filesIn(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && !d.IsDir() {
			fmt.Fprintln(&out, name, info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return out.String()
}

// effects describes what the results of a copy say about versions and packages.
func effects(results []*pusher.Result) string {
	var out []string
	for _, r := range results {
		line := fmt.Sprintf("%s %s %s %s", r.Subject.Parts()[2], r.Version, r.Status, r.Verdict)
		for _, p := range r.Packages {
			line += fmt.Sprintf(" %s:%d:%v:%v", p.Digest, p.Size, p.Sent, p.Omitted)
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// TestDryRun shows that a dry run predicts the results of a copy to each kind of location, and writes nothing.
func TestDryRun(t *testing.T) {
	linux := provider.MustParsePlatform("linux_amd64")
	for _, kind := range []transfer.Kind{transfer.Template, transfer.Folder, transfer.Archive, transfer.Mirror} {
		t.Run(string(kind), func(t *testing.T) {
			c := newCopies(t)
			c.from.Store("acme/null", "1.0.0")
			since := bundleAt(t, transfer.Folder)
			c.copySince(registryAt("from"), since, nothing)
			c.from.Store("acme/null", "1.1.0")
			c.from.Store("acme/widget", "2.0.0")
			to := bundleAt(t, kind)
			if kind == transfer.Template {
				to = registryAt("to")
			}
			both := func(change func(*transfer.Copy)) (string, error) {
				t.Helper()
				before, tags := filesIn(t, filepath.Dir(to.Name)), len(contents(t, c.to))
				_, errPlanned := c.run(func(run *transfer.Copy) {
					run.To, run.DryRun = to, true
					change(run)
				})
				planned := effects(c.results)
				if to.Kind != transfer.Template && filesIn(t, filepath.Dir(to.Name)) != before || len(contents(t, c.to)) != tags {
					t.Error("a dry run has written")
				}
				_, err := c.run(func(run *transfer.Copy) {
					run.To = to
					change(run)
				})
				if planned != effects(c.results) || fmt.Sprint(err) != fmt.Sprint(errPlanned) {
					t.Errorf("planned %v\n%s\ngot %v\n%s", errPlanned, planned, err, effects(c.results))
				}
				return planned, err
			}
			if kind == transfer.Archive {
				out, err := both(func(run *transfer.Copy) { run.Since = since })
				if err != nil || strings.Count(out, ":true:false") != 4 || strings.Count(out, ":false:true") != 2 {
					t.Errorf("%s, %v", out, err)
				}
				if _, err := both(func(*transfer.Copy) {}); !errors.Is(err, bundle.ErrExists) {
					t.Errorf("an existing archive: %v", err)
				}
				return
			}
			for _, step := range []struct {
				name   string
				change func(*transfer.Copy)
				sent   int
			}{
				{"one platform", func(run *transfer.Copy) { run.Platforms = []provider.Platform{linux} }, 3},
				{"the other platform", func(*transfer.Copy) {}, 3},
				{"again", func(*transfer.Copy) {}, 0},
			} {
				if out, err := both(step.change); err != nil || strings.Count(out, ":true:false") != step.sent {
					t.Errorf("%s: %s, %v", step.name, out, err)
				}
			}
		})
	}
}

// TestDryRunOfConflicts shows that a dry run fails like the copy if the destination has other packages.
func TestDryRunOfConflicts(t *testing.T) {
	c := newCopies(t)
	a := c.from.Store("acme/null", "1.0.0")
	c.copySince(registryAt("from"), registryAt("to"), nothing)
	c.to.Reindex(a, "1.0.0", stored.Swap)
	for _, dryRun := range []bool{true, false} {
		if _, err := c.run(func(run *transfer.Copy) { run.DryRun = dryRun }); !errors.Is(err, pusher.ErrConflict) {
			t.Errorf("dry run %v: %v", dryRun, err)
		}
	}
}
