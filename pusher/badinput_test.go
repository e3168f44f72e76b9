package pusher_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// TestBadReleaseLeavesNoTag shows that, if a release has a defect, a push refuses the release with the error
// for that defect, and tags nothing.
func TestBadReleaseLeavesNoTag(t *testing.T) {
	// serve makes the handler h respond to all requests to the origin whose path ends in suffix.
	serve := func(suffix string, h http.HandlerFunc) func(*bench) {
		return func(b *bench) {
			b.Origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, suffix) {
					return false
				}
				h(w, r)
				return true
			})
		}
	}
	// repacked makes the origin publish data as the signed package for linux_amd64.
	repacked := func(data []byte) func(*bench) {
		return func(b *bench) {
			if err := b.Release.Repack("linux", "amd64", data, b.Signer); err != nil {
				b.T.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		spoil func(*bench)
		err   error
	}{
		"SHA256SUMS without the file": {func(b *bench) {
			b.Release.SHA256SUMS = []byte(strings.ReplaceAll(string(b.Release.SHA256SUMS), "linux_amd64", "linux_mips"))
			b.sign(b.Signer)
		}, trust.ErrNotListed},
		"package does not match": {serve("linux_amd64.zip", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "something else") }), trust.ErrChecksum},
		"package truncated": {serve("linux_amd64.zip", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "the beginning")
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}), pusher.ErrTruncated},
		"package longer": {func(b *bench) {
			b.Origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "linux_amd64.zip") {
					return false
				}
				w.Header().Set("Content-Length", strconv.Itoa(int(b.Release.Package("linux", "amd64").Size)+5))
				w.Write(b.Release.Package("linux", "amd64").Data)
				fmt.Fprint(w, "extra")
				return true
			})
		}, trust.ErrChecksum},
		"package is a page":        {repacked([]byte("<!DOCTYPE html><title>Log in</title>")), provider.ErrNotZip},
		"package is empty":         {repacked(nil), provider.ErrNotZip},
		"package is a part of one": {func(b *bench) { data := b.Release.Package("linux", "amd64").Data; repacked(data[:len(data)-1])(b) }, provider.ErrNotZip},
		"signed by another key":    {func(b *bench) { b.sign(pgp.For(b.T, "Mallory")) }, trust.ErrSignature},
		"signature missing":        {serve("SHA256SUMS.sig", http.NotFound), trust.ErrUnsigned},
		"signature empty":          {serve("SHA256SUMS.sig", func(http.ResponseWriter, *http.Request) {}), trust.ErrUnsigned},
		"no key offered":           {func(b *bench) { b.Release.Keys = nil }, trust.ErrUnsigned},
		"version gone":             {func(b *bench) { b.Origin.Remove("acme", "widget", "1.0.0"); b.Origin.Add(b.Build("2.0.0", "x")) }, realorigin.ErrVersionNotFound},
		"provider unknown":         {func(b *bench) { b.Origin.Remove("acme", "widget", "1.0.0") }, realorigin.ErrProviderNotFound},
		"origin wants a login":     {serve("/versions", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }), realorigin.ErrUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			tc.spoil(b)
			_, err := b.Push()
			if !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			onePackage := errors.Is(err, trust.ErrChecksum) || errors.Is(err, trust.ErrNotListed)
			if help := hint.Of(err); help == "" || onePackage != strings.Contains(help, "--platform") {
				t.Errorf("hint %q for %v", help, err)
			}
			if strings.Contains(fmt.Sprint(err), "\n") {
				t.Errorf("error of several lines: %q", err)
			}
			b.Origin.Intercept(nil)
			if v := b.Tagged(); v != nil {
				t.Errorf("tagged %+v", v)
			}
		})
	}
}

// sign signs the release again with the key of the given signer. The origin still offers the same keys as
// before.
func (b *bench) sign(by *pgp.Signer) {
	b.T.Helper()
	var err error
	if b.Release.Signature, err = by.Sign(b.Release.SHA256SUMS); err != nil {
		b.T.Fatal(err)
	}
}

func TestTagThatNamesSomethingElse(t *testing.T) {
	b := newBench(t)
	image := []byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`)
	desc := b.PushManifest("application/vnd.oci.image.index.v1+json", image, "1.0.0")
	_, err := b.Push()
	if !errors.Is(err, repo.ErrOccupied) || hint.Of(err) == "" {
		t.Fatalf("error %v (hint %q)", err, hint.Of(err))
	}
	if got, err := b.Repo.Resolve(t.Context(), "1.0.0"); err != nil || got.Digest != desc.Digest {
		t.Errorf("the tag names %s, %v", got.Digest, err)
	}
	b.Options.Force = true
	if r := b.MustPush(); r.Status != pusher.Pushed {
		t.Errorf("forced: %s", r.Status)
	}
}

func TestRegistryRefuses(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"credentials": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
		"404 for everything": http.NotFound,
		"500":                func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool { answer(w, r); return true })
			_, err := b.Push()
			var refused *repo.RegistryError
			if !errors.As(err, &refused) || refused.Repository.Name != "acme/widget" {
				t.Errorf("error %v", err)
			}
			b.Registry.Intercept(nil)
			if v := b.Tagged(); v != nil {
				t.Errorf("tagged %+v", v)
			}
		})
	}
}

// TestPushBrokenOffIsCompleted interrupts a push before each of its requests in turn. It shows that the tag
// then names nothing or the whole version, and that the next push completes the version.
func TestPushBrokenOffIsCompleted(t *testing.T) {
	for stop, reached := 1, true; reached; stop++ {
		b := newBench(t)
		reached = false
		ctx, cancel := context.WithCancel(t.Context())
		requests := 0
		b.Options.Jobs = 1
		b.Registry.Intercept(func(http.ResponseWriter, *http.Request) bool {
			if requests++; requests == stop {
				reached = true
				cancel()
				panic(http.ErrAbortHandler)
			}
			return false
		})
		r, err := b.Get()
		if err != nil {
			t.Fatal(err)
		}
		_, err = pusher.New(b.Options).Push(ctx, r)
		cancel()
		b.Registry.Intercept(nil)
		if reached && err == nil {
			t.Errorf("broken off before request %d: no error", stop)
		}
		if got := b.TaggedPlatforms(); got != "" && got != pushbench.AllPlatforms {
			t.Errorf("broken off before request %d: the tag names %s", stop, got)
		}
		b.MustPush()
		if got := b.TaggedPlatforms(); got != pushbench.AllPlatforms {
			t.Errorf("completed after request %d: the tag names %s", stop, got)
		}
	}
}

func TestUploadIsTriedAgain(t *testing.T) {
	b := newBench(t)
	failures := 2
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/blobs/uploads/") && failures > 0 {
			failures--
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		return false
	})
	b.Options.Jobs = 1
	if r := b.MustPush("linux_amd64"); r.Status != pusher.Pushed || failures != 0 {
		t.Errorf("%s with %d failures left", r.Status, failures)
	}
}

// TestUploadThatStalls shows that a push fails with a hint, and tags nothing, if the registry accepts no byte
// of a package during Options.StallTimeout.
func TestUploadThatStalls(t *testing.T) {
	b := newBench(t)
	b.Options.StallTimeout = 50 * time.Millisecond
	release := make(chan struct{})
	b.Registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/blobs/uploads/") {
			return false
		}
		<-release
		return true
	})
	_, err := b.Push("linux_amd64")
	close(release)
	if err == nil || !strings.Contains(err.Error(), "stalled") || hint.Of(err) == "" {
		t.Errorf("error %v (hint %q)", err, hint.Of(err))
	}
	b.Registry.Intercept(nil)
	if v := b.Tagged(); v != nil {
		t.Errorf("tagged %+v", v)
	}
}

// TestBugWhileAPackageIsRead shows that a panic in the goroutine that reads a package from its origin fails the push, and that
// nothing is tagged.
func TestBugWhileAPackageIsRead(t *testing.T) {
	b := newBench(t)
	b.Options.OnEvent = func(e pusher.Event) {
		if e.Stage == pusher.StageFetch && e.Bytes > 0 {
			panic("a bug")
		}
	}
	if _, err := b.Push(); !errors.As(err, new(*panics.Error)) {
		t.Errorf("error %v", err)
	}
	if v := b.Tagged(); v != nil {
		t.Errorf("tagged %+v", v)
	}
}
