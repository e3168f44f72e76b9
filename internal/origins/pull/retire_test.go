package pull

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// asked reads a package of a version as a client does, so that the Puller stores the version.
func asked(t *testing.T, p *Puller, version string) {
	t.Helper()
	store := of(p, widget)
	found, err := store.Complete(t.Context(), provider.MustParseVersion(version), nil)
	if err != nil {
		t.Fatal(err)
	}
	read(t, store, found.Packages[0])
}

// TestRetired shows that a new Puller can replace an old Puller that has the same folder and budget. The new Puller
// keeps the number of bytes of the day and the times of the cooldown. The old Puller finishes the pushes that have
// begun, but retries no failed push.
func TestRetired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{versions: []string{"1.0.0", "2.0.0"}}
		may := make(chan error)
		pushes := 0
		var budget Budget
		o := Options{Directory: t.TempDir(), Spool: t.TempDir(), Budget: &budget, Limits: Limits{MaxPerDay: 1 << 30}, ListTTL: time.Minute, Push: func(ctx context.Context, r *origin.Release) (*pusher.Result, error) {
			body, _, err := r.Packages[0].Open(ctx)
			if err != nil {
				return nil, err
			}
			defer body.Close()
			pushes++
			if err := <-may; err != nil {
				return nil, err
			}
			_, err = io.Copy(io.Discard, body)
			return &pusher.Result{}, err
		}}
		before := puller(t, s, o)
		before.Begin()
		asked(t, before, "1.0.0")
		synctest.Wait()
		today := budget.Usage().Today

		o.Scope.Cooldown = 24 * time.Hour
		after := puller(t, s, o)
		after.Begin()
		before.Retire()
		if u := budget.Usage(); u.Today != today || today == 0 || u.Limits.MaxPerDay != 1<<30 {
			t.Errorf("in use: %+v, and before %d bytes", u, today)
		}
		time.Sleep(2 * time.Minute)
		offered(t, after) // saves a list with the times when the versions were first seen
		s.set(func() { s.versions = append(s.versions, "3.0.0") })
		time.Sleep(2 * time.Minute)
		for range 2 { // both Pullers fetch the list, and the old Puller fetches it last
			if got := offered(t, after); got != "1.0.0 2.0.0" {
				t.Errorf("offered are %s", got)
			}
			offered(t, before)
			synctest.Wait()
		}
		if l, err := after.readList(widget); err != nil || l.seen == nil || l.seen[provider.MustParseVersion("3.0.0")].IsZero() {
			t.Errorf("the saved list: %+v, %v", l, err)
		}

		start, drained := time.Now(), make(chan struct{})
		go func() {
			defer close(drained)
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			before.Drain(ctx)
		}()
		time.Sleep(time.Minute)
		may <- nil
		<-drained
		if took := time.Since(start); took != time.Minute || pushes != 1 || before.Pending() != 0 {
			t.Errorf("drained after %s, with %d pushes", took, pushes)
		}
		if err := before.Close(); err != nil {
			t.Error(err)
		}
		asked(t, after, "2.0.0")
		synctest.Wait()
		if pushes != 2 {
			t.Errorf("%d pushes", pushes)
		}
		// If a push does not end, Drain waits until its context ends. If the push fails, Drain returns.
		after.Retire()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start = time.Now()
		after.Drain(ctx)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("waited for %s", took)
		}
		may <- errors.New("no way")
		after.Drain(t.Context())
		if took := time.Since(start); took != time.Minute || pushes != 2 {
			t.Errorf("after a push that failed: waited for %s, with %d pushes", took, pushes)
		}
	})
}

// TestFoldersAreNarrowed shows that a Puller makes the folders in its options inaccessible to other users. It does not
// change the mode of the system's temporary folder.
func TestFoldersAreNarrowed(t *testing.T) {
	own, system := Options{Directory: t.TempDir(), Spool: t.TempDir()}, t.TempDir()
	t.Setenv("TMPDIR", system)
	want := map[string]os.FileMode{own.Directory: 0o700, own.Spool: 0o700, system: 0o777}
	for dir := range want {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	puller(t, &source{}, own)
	other, err := New(Options{Origin: locating{&source{}}, Policy: allowUnsigned})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for dir, mode := range want {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, want %v; %v", dir, info.Mode(), mode, err)
		}
	}
}

// TestSpoolIsShared shows that a new Puller does not remove a file that another Puller is writing.
func TestSpoolIsShared(t *testing.T) {
	s := &source{versions: []string{"1.0.0"}}
	o := Options{Spool: t.TempDir()}
	before := puller(t, s, o)
	store := of(before, widget)
	found, err := store.Complete(t.Context(), provider.MustParseVersion("1.0.0"), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _, err := begin(t, store, found.Packages[0])
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	puller(t, s, o)
	if data, err := io.ReadAll(body); err != nil || string(data) != string(content(provider.MustParseVersion("1.0.0"))) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

// begin opens a package as the gateway does.
func begin(t *testing.T, store pulled, p artifact.Package) (body io.ReadCloser, size int64, err error) {
	t.Helper()
	size, err = store.blob(p).Size(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	body, _, err = store.blob(p).Open(t.Context(), size, 0)
	return body, size, err
}
