package quirks_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/origins/modulezip"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// pushModule pushes a module with one file into the profile's repository.
func (b *bench) pushModule(version, content string, force bool) (*pusher.Result, error) {
	b.t.Helper()
	dir := b.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
	z, err := modulezip.Pack(b.t.Context(), dir)
	if err != nil {
		b.t.Fatal(err)
	}
	defer z.Close()
	dest, _, err := b.repository(b.t.Context(), widget)
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := pusher.New(pusher.Options{RetryPause: time.Millisecond, Force: force}).PushZip(b.t.Context(), dest, &artifact.Version{
		Owner: module.MustParseAddress(host + "/acme/widget/aws"), Version: provider.MustParseVersion(version), Packages: []artifact.Package{{Digest: z.Digest, Size: z.Size, H1: z.H1}},
	}, z.Open)
	if err != nil {
		return nil, b.explain(err)
	}
	return r, nil
}

// TestPushModules shows that modules can be pushed into every registry: into an empty repository, beside other
// versions, and again without a write. Other content is a conflict everywhere, and --force replaces it.
func TestPushModules(t *testing.T) {
	forEach(t, func(t *testing.T, b *bench) {
		for _, v := range versions {
			if r, err := b.pushModule(v, v, false); err != nil || r.Status != pusher.Pushed || len(r.Warnings) > 0 {
				t.Fatalf("%s: %+v, %v", v, r, err)
			}
		}
		b.requests.Reset()
		if r, err := b.pushModule("1.0.0", "1.0.0", false); err != nil || r.Status != pusher.Unchanged || b.requests.Count(recorder.Writes()) != 0 {
			t.Errorf("again: %+v, %v, %v", r, err, b.requests.Requests(recorder.Writes()))
		}
		if _, err := b.pushModule("1.0.0", "other", false); !errors.Is(err, pusher.ErrConflict) {
			t.Errorf("other content: %v", err)
		}
		if r, err := b.pushModule("1.0.0", "other", true); err != nil || r.Status != pusher.Replaced {
			t.Errorf("--force: %+v, %v", r, err)
		}
	})
}

// TestModuleRefusals shows what users read if a registry refuses a module.
func TestModuleRefusals(t *testing.T) {
	for _, tt := range []struct {
		profile, name string
		change        func(*quirks.Settings)
		err, hint     string
	}{
		{"gitlab", "the artifact type is not allowed", func(s *quirks.Settings) { s.Allowed = []string{"application/vnd.opentofu.provider"} }, "tag 1.0.0 in", ""},
		{"harbor", "an immutable tag", func(s *quirks.Settings) { s.Immutable, s.ImmutableCode = 412, "PRECONDITION" }, "the tag cannot be moved", "a version of its own"},
		{"ecr", "an immutable tag", func(s *quirks.Settings) { s.Immutable, s.ImmutableCode = 400, "TAG_INVALID" }, "the tag cannot be moved", "a version of its own"},
	} {
		t.Run(tt.profile+", "+tt.name, func(t *testing.T) {
			forEach(t, func(t *testing.T, b *bench) {
				if _, err := b.pushModule("1.0.0", "one", false); err != nil {
					t.Fatal(err)
				}
				b.registry.Set(tt.change)
				_, err := b.pushModule("1.0.0", "two", true)
				if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(hint.Of(err), tt.hint) || strings.Contains(err.Error(), "pass-w0rd") {
					t.Errorf("%v (%s)", err, hint.Of(err))
				}
			}, tt.profile)
		})
	}
}
