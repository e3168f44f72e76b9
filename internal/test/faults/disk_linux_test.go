package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/modulezip"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
	"github.com/ocibridge/ocibridge/internal/test/testkit/faultproxy"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// withMounts runs f in a process that is allowed to mount file systems. This is the current process, or another
// process of the test program. The other process is root in its own namespace.
func withMounts(t *testing.T, f func(*testing.T)) {
	t.Helper()
	probe := t.TempDir()
	err := syscall.Mount("tmpfs", probe, "tmpfs", 0, "size=64k")
	if err == nil {
		if err := syscall.Unmount(probe, 0); err != nil {
			t.Fatal(err)
		}
		f(t)
		return
	}
	if os.Getenv("OCIBRIDGE_IN_NAMESPACE") != "" {
		clients.NotAllowed(fmt.Errorf("mount a small disk: %w", err))
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "OCIBRIDGE_IN_NAMESPACE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := clients.RunInNamespaces(cmd)
	clients.Must(t, err)
	if !strings.Contains(out, "--- PASS: "+t.Name()) {
		t.Fatalf("it did not run:\n%s", out)
	}
}

// smallDisk mounts a disk of the given size, such as "64k", and returns a function that resizes it.
func smallDisk(t *testing.T, size string) (dir string, resize func(string)) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func(size string) {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size="+size); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDiskOfCache shows that, if the disk is full, the gateway serves packages without caching them. It
// caches packages again when there is room.
func TestFullDiskOfCache(t *testing.T) {
	withMounts(t, func(t *testing.T) {
		disk, resize := smallDisk(t, "256k") // smaller than a package
		inRig(t, func(r *rig) {
			if err := r.push(r.t.Context(), large); err != nil {
				r.t.Fatal(err)
			}
			r.serve(disk)
			for range 2 {
				for _, d := range documents(shared.large) {
					r.wantPackage(d.path)
				}
			}
			resize("16m")
			time.Sleep(2 * time.Minute)
			for _, d := range documents(shared.large) {
				r.wantPackage(d.path)
			}
			defer r.registry.Begin(faultproxy.Rule{Fault: faultproxy.Cut()})()
			for _, d := range documents(shared.large) {
				r.wantPackage(d.path)
			}
		})
	})
}

// TestFullDiskOfCacheOfModules is like [TestFullDiskOfCache], for a module.
func TestFullDiskOfCacheOfModules(t *testing.T) {
	withMounts(t, func(t *testing.T) {
		disk, resize := smallDisk(t, "4k") // smaller than the zip
		inRig(t, func(r *rig) {
			if err := r.pushModule(r.t.Context()); err != nil {
				r.t.Fatal(err)
			}
			r.serve(disk)
			for range 2 {
				r.wantAll(moduleDocuments(), http.StatusOK)
			}
			resize("16m")
			time.Sleep(2 * time.Minute)
			r.wantAll(moduleDocuments(), http.StatusOK)
			defer r.registry.Begin(faultproxy.Rule{Fault: faultproxy.Cut()})()
			r.wantAll(moduleDocuments(), http.StatusOK)
		})
	})
}

// TestFullDiskForTemporaryFiles shows that, if the disk for temporary files is full, a push fails and tags
// nothing. The error names the reason.
func TestFullDiskForTemporaryFiles(t *testing.T) {
	withMounts(t, func(t *testing.T) {
		disk, resize := smallDisk(t, "256k")
		t.Setenv("TMPDIR", disk)
		inRig(t, func(r *rig) {
			err := r.push(r.t.Context(), large)
			if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(hint.Of(err), "TMPDIR") {
				r.t.Errorf("%v, hint %q", err, hint.Of(err))
			}
			if code := r.truth("manifests", version).Code; code != http.StatusNotFound {
				r.t.Errorf("the tag: %d", code)
			}
			resize("16m")
			if err := r.push(r.t.Context(), large); err != nil {
				r.t.Errorf("with room: %v", err)
			}
		})
	})
}

// TestFullDiskForZipOfModule shows that no module is packed if the disk for temporary files is full. The error names
// the reason.
func TestFullDiskForZipOfModule(t *testing.T) {
	withMounts(t, func(t *testing.T) {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "main.tf"), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		disk, resize := smallDisk(t, "64k")
		t.Setenv("TMPDIR", disk)
		if z, err := modulezip.Pack(t.Context(), folder); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(hint.Of(err), "TMPDIR") {
			t.Errorf("%+v, %v, hint %q", z, err, hint.Of(err))
		}
		if left, err := os.ReadDir(disk); err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		resize("16m")
		z, err := modulezip.Pack(t.Context(), folder)
		if err != nil {
			t.Fatalf("with room: %v", err)
		}
		z.Close()
	})
}

// TestFullDiskOfPullThrough shows what happens if there is no room for downloads. If the gateway notices this
// before a download, it tells the client to retry. If a write fails, the response to the client breaks off. The
// gateway still serves requests that need no disk. When there is room again, it serves and stores all packages.
func TestFullDiskOfPullThrough(t *testing.T) {
	withMounts(t, func(t *testing.T) {
		for how, limits := range map[string]pull.Limits{
			"little is free":  {},
			"writing says so": {Free: func() (int64, error) { return 1 << 40, nil }},
		} {
			t.Run(how, func(t *testing.T) {
				disk, resize := smallDisk(t, "4k") // smaller than a package
				inRig(t, func(r *rig) {
					r.servePullingWithin(disk, limits)
					all := documents(shared.release)
					for range 2 {
						for _, d := range []document{all[0], all[1], all[4]} {
							a := r.get(d.path)
							if whole, archive := r.judgePulled(d, a), strings.HasSuffix(d.path, ".zip"); whole == archive || archive && limits.Free == nil && a.status != http.StatusServiceUnavailable {
								r.t.Errorf("%s: %d, %v", d.path, a.status, a.err)
							}
						}
						time.Sleep(time.Minute) // until the failure expires, in virtual time
					}
					if log := r.log.String(); !strings.Contains(log, "make room where packages under way are kept") || strings.Contains(log, "a version is stored") {
						r.t.Errorf("the version is stored, or the log does not say what to do:\n%s", log)
					}
					resize("1g")
					time.Sleep(time.Minute) // the time after which a client was told to retry
					if d := all[4]; !r.judgePulled(d, r.get(d.path)) {
						r.t.Errorf("with room: the package is not served\n%s", r.log)
					}
					r.wantStored()
				})
			})
		}
	})
}

// own is an embedded registry in a separate folder, with a gateway. The method push pushes to the registry.
type own struct {
	t        *testing.T
	registry *embedded.Registry
	log      collected.Text
	gateway  http.Handler
}

func newOwn(t *testing.T, dir string) *own {
	t.Helper()
	o := &own{t: t}
	log := slog.New(slog.NewTextHandler(&o.log, nil))
	var err error
	if o.registry, err = embedded.Open(dir, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.registry.Close() })
	known, err := catalog.New(catalog.Options{TagTTL: -1, StaleIfError: -1, Log: log,
		Repository: func(_ context.Context, a subject.Address) (catalog.Store, error) {
			if a.Kind() == subject.Module {
				return o.registry.Repository("modules/" + a.Path())
			}
			return o.registry.Repository(a.Path())
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { known.Close() })
	o.gateway = gateway.New(gateway.Options{Catalog: known, Log: log})
	return o
}

func (o *own) push() error {
	source := origin.NewRegistry(origin.RegistryOptions{Transport: originTransport{}, Services: origin.NewDiscovery(originTransport{})})
	listing, err := source.Versions(o.t.Context(), large)
	if err != nil {
		return err
	}
	rel, err := source.Release(o.t.Context(), large, listing, provider.MustParseVersion(version), nil)
	if err != nil {
		return err
	}
	_, err = pusher.New(pusher.Options{RetryPause: time.Millisecond, Destination: func(_ context.Context, a subject.Address) (repo.Destination, error) {
		store, err := o.registry.Repository(a.Path())
		return repo.Destination{Repository: ociaddr.Repository{Registry: embedded.Host, Name: a.Path()}, Store: registry.Repository{Repository: store}}, err
	}}).Push(o.t.Context(), rel)
	return o.registry.Explain(err)
}

// pushModule is like push, for a module.
func (o *own) pushModule() error {
	name := "modules/" + shared.module.version.Owner.Path()
	store, err := o.registry.Repository(name)
	if err == nil {
		dest := repo.Destination{Repository: ociaddr.Repository{Registry: embedded.Host, Name: name}, Store: registry.Repository{Repository: store}}
		_, err = pusher.New(pusher.Options{RetryPause: time.Millisecond}).PushZip(o.t.Context(), dest, &shared.module.version, shared.module.open)
	}
	return o.registry.Explain(err)
}

func (o *own) get(path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	func() {
		defer func() { _ = recover() }() // ServeHTTP panics to abort a response
		o.gateway.ServeHTTP(w, httptest.NewRequestWithContext(o.t.Context(), http.MethodGet, path, nil))
	}()
	return w
}

// TestFullDiskOfDataFolder shows that a push to a full disk fails and tags nothing. The push completes when
// there is room.
func TestFullDiskOfDataFolder(t *testing.T) {
	withMounts(t, func(t *testing.T) {
		disk, resize := smallDisk(t, "1500k") // room for one of two packages
		o := newOwn(t, disk)
		index := documents(shared.large)[0].path
		if err := o.push(); err == nil {
			t.Error("it succeeds")
		} else if hint.Of(err) == "" {
			t.Errorf("no hint: %v", err)
		}
		if code := o.get(index).Code; code != http.StatusNotFound {
			t.Errorf("index.json: %d", code)
		}
		resize("16m")
		if err := o.push(); err != nil {
			t.Errorf("with room: %v", err)
		}
		if a := o.get(index); a.Code != http.StatusOK {
			t.Errorf("index.json: %d", a.Code)
		}
	})
}

// TestFullDiskOfDataFolderOfModules is like [TestFullDiskOfDataFolder], for a module.
func TestFullDiskOfDataFolderOfModules(t *testing.T) {
	withMounts(t, func(t *testing.T) {
		disk, resize := smallDisk(t, "64k")
		o := newOwn(t, disk)
		fillDisk(t, disk)
		versions := moduleDocuments()[0].path
		if err := o.pushModule(); err == nil || hint.Of(err) == "" {
			t.Errorf("%v, hint %q", err, hint.Of(err))
		}
		if code := o.get(versions).Code; code != http.StatusNotFound {
			t.Errorf("versions: %d", code)
		}
		resize("16m")
		if err := o.pushModule(); err != nil {
			t.Errorf("with room: %v", err)
		}
		for _, d := range moduleDocuments() {
			if a := o.get(d.path); a.Code != http.StatusOK {
				t.Errorf("%s: %d", d.path, a.Code)
			}
		}
	})
}

// fillDisk writes a file until the disk is full.
func fillDisk(t *testing.T, disk string) {
	t.Helper()
	f, err := os.Create(filepath.Join(disk, "fill"))
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// TestGCOnFullDisk shows that a garbage collection makes room on a full disk.
func TestGCOnFullDisk(t *testing.T) {
	withMounts(t, func(t *testing.T) {
		disk, resize := smallDisk(t, "1500k") // room for one of two packages
		o := newOwn(t, disk)
		if err := o.push(); err == nil {
			t.Error("a push to the full disk succeeds")
		}
		fillDisk(t, disk)
		freed, err := o.registry.GC(t.Context(), embedded.GCOptions{})
		if err != nil || freed.Bytes < 500<<10 {
			t.Errorf("%+v, %v", freed, err)
		}
		// The registry may still have an upload of the failed push open, whose file keeps its space until then.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for err = syscall.ENOSPC; errors.Is(err, syscall.ENOSPC) && ctx.Err() == nil; runtime.Gosched() {
			err = os.WriteFile(filepath.Join(disk, "room"), make([]byte, freed.Bytes/2), 0o600)
		}
		if err != nil {
			t.Error(err)
		}
		resize("16m")
		if err := o.push(); err != nil {
			t.Error(err)
		}
	})
}

// TestFilesThatCannotBeRead makes each file of a registry's data folder unreadable in turn. It shows that each
// response of the gateway is then correct or has status 502. No response claims that a version or its packages
// do not exist.
func TestFilesThatCannotBeRead(t *testing.T) {
	t.Run("provider", func(t *testing.T) { cannotBeRead(t, (*own).push, documents(shared.large), 10) })
	t.Run("module", func(t *testing.T) { cannotBeRead(t, (*own).pushModule, moduleDocuments(), 8) })
}

func cannotBeRead(t *testing.T, push func(*own) error, documents []document, least int) {
	dir := t.TempDir()
	o := newOwn(t, dir)
	if err := push(o); err != nil {
		t.Fatal(err)
	}
	truth := map[string]string{}
	for _, d := range documents {
		if a := o.get(d.path); a.Code == http.StatusOK {
			truth[d.path] = a.Body.String()
		}
	}
	files, troubled := 0, 0
	err := filepath.WalkDir(filepath.Join(dir, "registry"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || strings.Contains(path, "_uploads") || !e.Type().IsRegular() {
			return err
		}
		files++
		return unreadable(path, func() {
			for p, want := range truth {
				a := o.get(p)
				if a.Code == http.StatusBadGateway {
					troubled++
				} else if a.Code != http.StatusOK || a.Body.Len() == len(want) && a.Body.String() != want ||
					strings.HasSuffix(p, "/"+version+".json") && strings.Contains(a.Body.String(), `"archives":{}`) {
					t.Errorf("without %s: %s: %d %.100s", strings.TrimPrefix(path, dir), p, a.Code, a.Body)
				}
			}
		})
	})
	if err != nil || files < least || troubled < len(truth) {
		t.Errorf("%d files, %d answers 502, %v", files, troubled, err)
	}
	for p, want := range truth {
		if a := o.get(p); a.Body.String() != want {
			t.Errorf("in the end: %s: %d", p, a.Code)
		}
	}
}

// unreadable runs f while a symbolic link to itself replaces a file. Not even root can read such a link.
func unreadable(path string, f func()) error {
	if err := os.Rename(path, path+".aside"); err != nil {
		return err
	}
	if err := os.Symlink(filepath.Base(path), path); err != nil {
		return err
	}
	f()
	return errors.Join(os.Remove(path), os.Rename(path+".aside", path))
}

// TestFilesOfCacheThatCannotBeRead shows that, if files in the gateway's cache are unreadable, the gateway
// reads their content from the registry.
func TestFilesOfCacheThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	inRig(t, func(r *rig) {
		if err := r.push(r.t.Context(), large); err != nil {
			r.t.Fatal(err)
		}
		for range 2 { // the second gateway reads everything again, like a gateway after a restart
			r.serve(dir)
			for _, d := range documents(shared.large) {
				r.wantPackage(d.path)
			}
			r.stopServing()
		}
		var all []string
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				all = append(all, path)
			}
			return err
		})
		if err != nil || len(all) < 5 {
			r.t.Fatalf("%v, %v", all, err)
		}
		for _, path := range all {
			err := os.Remove(path)
			if err == nil {
				err = os.Symlink(filepath.Base(path), path)
			}
			if err != nil {
				r.t.Fatal(err)
			}
		}
		r.serve(dir)
		for _, d := range documents(shared.large) {
			r.wantPackage(d.path)
		}
	})
}
