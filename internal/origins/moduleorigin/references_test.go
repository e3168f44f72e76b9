package moduleorigin

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/origins/gitfiles"
)

// TestReferencesAreReadOnce shows that the references of a repository are read once, also if that fails; that a caller that gives
// up neither waits nor decides for the others; and how many lists are held.
func TestReferencesAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, reads, server := &References{}, map[string]int{}, make(chan error)
		ask := func(ctx context.Context, url string) chan error {
			out := make(chan error, 1)
			go func() {
				_, err := r.of(ctx, url, func(ctx context.Context) (*gitfiles.Refs, error) {
					reads[url]++
					select {
					case err := <-server:
						return &gitfiles.Refs{}, err
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				})
				out <- err
			}()
			synctest.Wait()
			return out
		}
		hurried, giveUp := context.WithCancel(t.Context())
		reader := ask(hurried, "a")
		impatient, leave := context.WithCancel(t.Context())
		waiter, other := ask(impatient, "a"), ask(t.Context(), "a")
		leave()
		if err := <-waiter; !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that waits: %v", err)
		}
		giveUp()
		if err := <-reader; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that reads: %v", err)
		}
		synctest.Wait()
		broken := errors.New("broken")
		server <- broken
		if err := <-other; err != broken {
			t.Errorf("the caller that is left: %v", err)
		}
		if err := <-ask(t.Context(), "a"); err != broken || reads["a"] != 2 {
			t.Errorf("a caller after a failure: %v after %d requests", err, reads["a"])
		}
		for _, url := range []string{"b", "b", "a", "c", "b", "a"} {
			asked := ask(t.Context(), url)
			select {
			case server <- nil:
			default: // it is known
			}
			<-asked
		}
		if reads["a"] != 3 || reads["b"] != 1 || reads["c"] != 1 || len(r.lists) != maxReferences {
			t.Errorf("requests: %v, and %d lists are held", reads, len(r.lists))
		}
	})
}

// TestETags shows for which archive and which stored zip an ETag is known, and which files and ETags are ignored.
func TestETags(t *testing.T) {
	folder := t.TempDir()
	e := OpenETags(filepath.Join(folder, "etags"))
	at := func(raw string) Location {
		l, err := ParseLocation(raw)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	zip, other := digest.FromString("zip"), digest.FromString("other")
	l := at("https://user:secret@files.acme.example/vpc.zip?token=secret")
	e.Keep(l, zip, `W/"1"`)
	for name, tc := range map[string]struct {
		raw    string
		stored digest.Digest
		known  bool
	}{
		"same":           {"https://user:secret@files.acme.example/vpc.zip?token=secret", zip, true},
		"another login":  {"https://files.acme.example/vpc.zip?token=secret", zip, true},
		"another zip":    {"https://user:secret@files.acme.example/vpc.zip?token=secret", other, false},
		"another query":  {"https://user:secret@files.acme.example/vpc.zip?token=new", zip, false},
		"another folder": {"https://user:secret@files.acme.example/vpc.zip//a?token=secret", zip, false},
		"another format": {"https://user:secret@files.acme.example/vpc.zip?token=secret&archive=tgz", zip, false},
		"another host":   {"https://user:secret@mirror.acme.example/vpc.zip?token=secret", zip, false},
	} {
		if got := e.Known(at(tc.raw), tc.stored); (got == `W/"1"`) != tc.known || !tc.known && got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, bad := range []string{"", "1", `"`, `"a"b"`, "\"a\r\nX: y\"", `"` + strings.Repeat("a", maxETag) + `"`, `w/"1"`} {
		e.Keep(l, other, bad)
		if got := e.Known(l, other); got != "" {
			t.Errorf("%q is kept as %q", bad, got)
		}
		if err := os.WriteFile(e.filename(l, other), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := e.Known(l, other); got != "" {
			t.Errorf("%q is read as %q", bad, got)
		}
	}
	git := at("git::https://git.acme.example/vpc?ref=v1")
	e.Keep(git, zip, `"1"`)
	if got := e.Known(git, zip); got != "" {
		t.Errorf("of a repository: %q", got)
	}
	var none *ETags
	if none.Keep(l, zip, `"1"`); none.Known(l, zip) != "" || OpenETags("") != nil {
		t.Error("without a folder, an ETag is known")
	}
	entries, err := os.ReadDir(e.folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.Contains(entry.Name(), url.PathEscape("secret")) {
			t.Errorf("%s has a secret", entry.Name())
		}
	}
}
