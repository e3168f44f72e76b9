package catalog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

// kept is a bench whose catalog saves its answers in a folder. After a restart, the catalog finds these answers.
type kept struct {
	*bench
	options catalog.Options
}

func onDisk(t *testing.T, dir string, change func(*catalog.Options), f func(k *kept)) {
	t.Helper()
	k := &kept{}
	inTime(t, func(o *catalog.Options) {
		o.Directory = dir
		if change != nil {
			change(o)
		}
		k.options = *o
	}, func(b *bench) {
		k.bench = b
		f(k)
	})
}

// restart closes the catalog and starts another one in the same folder.
func (k *kept) restart() {
	k.t.Helper()
	k.Close()
	k.opened = open(k.t, k.options)
	k.requests()
}

func TestRestartWithTheRegistryDown(t *testing.T) {
	onDisk(t, t.TempDir(), nil, func(k *kept) {
		k.want("[1.0.0]", true, "[1 get 1 list]")
		if _, err := k.evidence(); err != nil {
			k.t.Fatal(err)
		}
		k.down(unreachable)
		k.restart()
		k.want("[1.0.0]", true, "[]") // the saved answer is current
		pass(20 * time.Hour)
		k.restart()
		k.want("[1.0.0]", true, "[1 list]") // one failed request shows that the registry is down
		if e, err := k.evidence(); err != nil || e.SHA256SUMS == nil {
			k.t.Errorf("evidence: %v", err)
		}
		// The time for which an answer is served stale starts at the last good answer, and not at the restart.
		pass(5 * time.Hour)
		k.restart()
		k.want("", false, "[1 get 1 list]")
		k.down(nil)
		k.want("[1.0.0]", true, "[1 get 1 list]")
	})
}

// TestFolderIsItsOwnersAlone shows that only the folder's owner can open the folder. The reasons are that the folder
// holds the names of private providers, and that the catalog trusts the folder's content.
func TestFolderIsItsOwnersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	onDisk(t, dir, nil, func(k *kept) {
		k.want("[1.0.0]", true, "[1 get 1 list]")
		synctest.Wait() // all temporary files have been renamed
		files := 0
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if info.Mode().Perm()&0o077 != 0 {
				k.t.Errorf("%s: %v", name, info.Mode())
			}
			if !d.IsDir() {
				files++
			}
			return nil
		})
		if err != nil || files == 0 {
			k.t.Errorf("%d files, %v", files, err)
		}
	})
}

func TestWideFolderIsNarrowed(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	onDisk(t, dir, nil, func(k *kept) {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	})
}

// TestConfirmedBeforeItIsSaved shows that, if the registry confirms a version again before the version is first saved,
// the version is still saved.
func TestConfirmedBeforeItIsSaved(t *testing.T) {
	onDisk(t, t.TempDir(), func(o *catalog.Options) { o.TagTTL = -1 }, func(k *kept) {
		var release func()
		k.failing(func(_ context.Context, _ provider.Address, what string) error {
			if what == "get" && release == nil {
				release = k.HoldDisk()
			}
			return nil
		})
		for range 2 {
			if _, err := k.Version(k.t.Context(), widget, v100); err != nil {
				k.t.Fatal(err)
			}
		}
		if got := k.requests(); got != "[1 get 1 head]" {
			k.t.Errorf("requests to the registry: %s", got)
		}
		release()
		synctest.Wait()
		k.restart()
		k.down(unreachable)
		if item, err := k.Version(k.t.Context(), widget, v100); err != nil || item.Found == nil {
			k.t.Errorf("%v", err)
		}
	})
}

// TestRestartWithoutAWayToTheRegistry shows that, if a repository cannot be opened after a restart, the catalog serves
// answers from disk. Opening a repository may require a request, which finds out the registry's protocol.
func TestRestartWithoutAWayToTheRegistry(t *testing.T) {
	noWay := false
	change := func(o *catalog.Options) {
		next := o.Repository
		o.Repository = func(ctx context.Context, a subject.Address) (catalog.Store, error) {
			if noWay {
				return nil, unreachable
			}
			return next(ctx, a)
		}
	}
	onDisk(t, t.TempDir(), change, func(k *kept) {
		k.want("[1.0.0]", true, "[1 get 1 list]")
		noWay = true
		pass(time.Hour)
		k.restart()
		k.want("[1.0.0]", true, "[]")
		if _, _, err := k.Package(k.t.Context(), widget, v100, artifact.Package{}).Open(k.t.Context(), 0, 0); !errors.Is(err, unreachable) {
			k.t.Errorf("%v", err)
		}
	})
}

// TestAnotherRepositoryAfterARestart shows that, if a provider has another repository after a restart, the saved
// answers of the earlier repository are not used.
func TestAnotherRepositoryAfterARestart(t *testing.T) {
	at := func(repository string) func(subject.Address) catalog.Account {
		return func(subject.Address) catalog.Account { return catalog.Account{Repository: repository} }
	}
	onDisk(t, t.TempDir(), func(o *catalog.Options) { o.Account = at("one") }, func(k *kept) {
		k.want("[1.0.0]", true, "[1 get 1 list]")
		synctest.Wait() // the answer is on disk
		k.options.Account = at("another")
		k.restart()
		k.down(unreachable)
		k.want("", false, "[1 get 1 list]")
		k.options.Account = at("one")
		k.restart()
		k.want("[1.0.0]", true, "[]")
	})
}

// TestConfirmedTimeIsKept shows that an answer can be served stale for a day after the registry last confirmed the
// answer, even if the catalog restarts during that day.
func TestConfirmedTimeIsKept(t *testing.T) {
	onDisk(t, t.TempDir(), nil, func(k *kept) {
		requests := "[1 get 1 list]"
		for range 30 {
			k.want("[1.0.0]", true, requests)
			requests = "[1 head 1 list]"
			pass(time.Hour)
		}
		k.down(unreachable)
		k.restart()
		pass(21 * time.Hour)
		k.want("[1.0.0]", true, "[1 list]")
	})
}

func TestDeletedVersionStaysGoneAfterARestart(t *testing.T) {
	for name, spoil := range map[string]func(k *kept){
		"deleted": func(k *kept) { delete(k.tags, widget) },
		"replaced by what is none": func(k *kept) {
			k.tag(widget, v100, artifact.Blob{Descriptor: k.tags[gadget]["1.0.0"].Descriptor, Data: k.tags[gadget]["1.0.0"].Data})
		},
		"dropped by an operator": func(k *kept) { k.Refresh(widget) },
	} {
		t.Run(name, func(t *testing.T) {
			onDisk(t, t.TempDir(), nil, func(k *kept) {
				k.publish(k.t, gadget, v100, "another's")
				k.want("[1.0.0]", true, "[1 get 1 list]")
				spoil(k)
				pass(time.Minute)
				if name != "dropped by an operator" {
					k.Versions(k.t.Context(), widget)
					if _, err := k.Version(k.t.Context(), widget, v100); err == nil {
						k.t.Error("the version is served")
					}
				}
				k.down(unreachable)
				k.restart()
				if _, err := k.Version(k.t.Context(), widget, v100); err == nil || errors.Is(err, catalog.ErrAbsent) {
					k.t.Errorf("after a restart: %v", err)
				}
			})
		})
	}
}

// TestRefreshWhileInUse shows that no answer survives a refresh, even if other goroutines read answers from disk during
// the refresh.
func TestRefreshWhileInUse(t *testing.T) {
	b := newBench(t, func(o *catalog.Options) { o.Directory = t.TempDir() })
	for range 50 {
		b.down(nil)
		b.want("[1.0.0]", true, "[1 get 1 list]")
		b.down(unreachable)
		var wg sync.WaitGroup
		var stop atomic.Bool
		for range 4 {
			wg.Go(func() {
				for !stop.Load() {
					b.Version(t.Context(), widget, v100)
				}
			})
		}
		b.Refresh(widget)
		if item, err := b.Version(t.Context(), widget, v100); err == nil {
			t.Fatalf("%+v", item)
		}
		stop.Store(true)
		wg.Wait()
		b.requests()
	}
}

// TestEveryFileSpoilt damages one file at a time, as a crash or another program might. It checks that the catalog does
// not use the content of the damaged file.
func TestEveryFileSpoilt(t *testing.T) {
	var names []string
	for i := 0; i == 0 || i < len(names); i++ {
		for how, spoil := range map[string]func(data []byte) []byte{
			"empty": func([]byte) []byte { return nil }, "cut": func(b []byte) []byte { return b[:len(b)/2] },
			"one byte": func(b []byte) []byte { b = bytes.Clone(b); b[len(b)*3/4] ^= 1; return b },
		} {
			dir := t.TempDir()
			onDisk(t, dir, nil, func(k *kept) {
				k.want("[1.0.0]", true, "[1 get 1 list]")
				if _, err := k.evidence(); err != nil {
					k.t.Fatal(err)
				}
				k.Close()
				names = files(k.t, dir)
				data, err := os.ReadFile(names[i])
				if err != nil {
					k.t.Fatal(err)
				}
				if err := os.WriteFile(names[i], spoil(data), 0o600); err != nil {
					k.t.Fatal(err)
				}
				k.restart()
				k.Versions(k.t.Context(), widget)
				if _, err := k.evidence(); err != nil {
					k.t.Errorf("%s %s: %v", names[i], how, err)
				}
				if k.requests() == "[]" {
					k.t.Errorf("%s %s: the damaged file is used", names[i], how)
				}
				k.restart() // the file is intact again
				k.want("[1.0.0]", true, "[]")
			})
		}
	}
	if len(names) < 6 {
		t.Errorf("only %v", names)
	}
}

// files returns the names of all files below a folder.
func files(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			out = append(out, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestForeignRecord shows that, if the file of a version's record holds the intact record of another version, the
// record is rejected. This can happen if the file system ignores case.
func TestForeignRecord(t *testing.T) {
	dir := t.TempDir()
	onDisk(t, dir, nil, func(k *kept) {
		k.want("[1.0.0]", true, "[1 get 1 list]")
		k.Close()
		for _, name := range files(k.t, dir) {
			if filepath.Base(name) == "1.0.0" {
				if err := os.Rename(name, filepath.Join(filepath.Dir(name), "1.1.0")); err != nil {
					k.t.Fatal(err)
				}
			}
		}
		k.restart()
		if item, err := k.Version(k.t.Context(), widget, v110); !errors.Is(err, catalog.ErrAbsent) {
			k.t.Errorf("%+v, %v", item, err)
		}
	})
}

// TestEmptiedFolderIsFilledAgain shows that, if files were removed from the folder, the registry's next answer about a
// version restores the version's files. These files include the content that a check needs.
func TestEmptiedFolderIsFilledAgain(t *testing.T) {
	for name, lost := range map[string]string{"all": "", "records": "1.0.0", "content": "sha256-"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			change := func(o *catalog.Options) {
				o.Check = func(ctx context.Context, s artifact.Fetcher, _ provider.Address, _ provider.Version, found *artifact.Version) (*artifact.Version, error) {
					_, err := artifact.ReadEvidence(ctx, s, *found.Evidence)
					return found, err
				}
			}
			onDisk(t, dir, change, func(k *kept) {
				k.want("[1.0.0]", true, "[3 blob 1 get 1 list]")
				synctest.Wait() // the record is written
				for _, file := range files(k.t, dir) {
					if strings.HasPrefix(filepath.Base(file), lost) {
						os.Remove(file)
					}
				}
				pass(time.Hour)
				k.Versions(k.t.Context(), widget)
				k.Version(k.t.Context(), widget, v100)
				k.down(unreachable)
				k.restart()
				pass(time.Hour)
				k.want("[1.0.0]", true, "[1 list]")
			})
		})
	}
}

// TestWhatIsInUseStaysOnDisk shows that, if an answer is served from memory, its files are marked as used. They are
// therefore not the first files to be removed from the folder.
func TestWhatIsInUseStaysOnDisk(t *testing.T) {
	dir := t.TempDir()
	onDisk(t, dir, nil, func(k *kept) {
		k.want("[1.0.0]", true, "[1 get 1 list]")
		synctest.Wait()
		old := time.Now().Add(-5 * time.Hour)
		for _, file := range files(k.t, dir) {
			if err := os.Chtimes(file, old, old); err != nil {
				k.t.Fatal(err)
			}
		}
		pass(2 * time.Hour)
		k.want("[1.0.0]", true, "[1 head 1 list]")
		synctest.Wait()
		for _, file := range files(k.t, dir) {
			if info, err := os.Stat(file); err != nil || !info.ModTime().After(old) {
				k.t.Errorf("%s is not marked as used: %v", file, err)
			}
		}
	})
}

func TestNewRulesApplyToSavedAnswers(t *testing.T) {
	onDisk(t, t.TempDir(), nil, func(k *kept) {
		k.want("[1.0.0]", true, "[1 get 1 list]")
		k.options.Deny = []catalog.Deny{{Pattern: widget.Pattern()}}
		k.restart()
		k.want("[]", false, "[]")
		k.options.Deny = nil
		k.restart()
		k.want("[1.0.0]", true, "[]")
		k.options.Check = func(context.Context, artifact.Fetcher, provider.Address, provider.Version, *artifact.Version) (*artifact.Version, error) {
			return nil, errors.New("refused")
		}
		k.restart()
		if _, err := k.Version(k.t.Context(), widget, v100); err == nil {
			k.t.Error("the version is served unchecked")
		}
	})
}

func TestFolderThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.New(catalog.Options{Directory: filepath.Join(file, "catalog")}); err == nil {
		t.Error("no error")
	}
	dir := t.TempDir()
	onDisk(t, dir, nil, func(k *kept) {
		// If a file replaces the folder, all writes fail, even for root.
		if err := os.RemoveAll(dir); err != nil {
			k.t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			k.t.Fatal(err)
		}
		k.want("[1.0.0]", true, "[1 get 1 list]")
		k.want("[1.0.0]", true, "[]")
		os.Remove(dir)
	})
}

// TestFolderIsBounded shows that the folder stays within its maximum size, and keeps the most recently used answers.
// The test runs in real time, because the mtimes of files come from the machine's clock.
func TestFolderIsBounded(t *testing.T) {
	dir, f := t.TempDir(), newFake()
	const limit = 400 << 10
	c := open(t, catalog.Options{Repository: f.repository, Directory: dir})
	for i := range 200 {
		v := provider.MustParseVersion(fmt.Sprintf("1.0.%d", i))
		f.publish(t, widget, v, v.String())
		if _, err := c.Version(t.Context(), widget, v); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	old := time.Now().Add(-48 * time.Hour)
	for _, name := range files(t, dir) {
		if !strings.HasSuffix(name, "1.0.7") {
			if err := os.Chtimes(name, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".tmp-1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, ".tmp-1"), old, old); err != nil {
		t.Fatal(err)
	}
	c = open(t, catalog.Options{Repository: f.repository, Directory: dir, DirectorySize: limit})
	if n := c.Swept(); n > limit {
		t.Errorf("%d bytes", n)
	}
	left := strings.Join(files(t, dir), " ")
	if !strings.Contains(left, "/1.0.7") || strings.Contains(left, ".tmp-") {
		t.Errorf("left are %.2000s", left)
	}
}
