package reconcile_test

import (
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// document adds documentation to a stored version, and returns the digest of its manifest.
func (b *syncBench) document(version string) digest.Digest {
	b.T.Helper()
	r := origin.Fetch(b.T, b.Client, pushbench.Widget, version)
	r.Docs = []byte("the same pages in all versions")
	if _, err := pusher.New(b.options.Push).Push(b.T.Context(), r); err != nil {
		b.T.Fatal(err)
	}
	return b.docs(version)
}

// docs returns the digest of the manifest of a version's documentation.
func (b *syncBench) docs(version string) digest.Digest {
	b.T.Helper()
	v, err := artifact.Read(b.T.Context(), b.Repo, pushbench.Widget, provider.MustParseVersion(version))
	if err != nil || v.Docs == nil {
		b.T.Fatalf("%s has no documentation: %+v, %v", version, v, err)
	}
	return v.Docs.Digest
}

// TestRemoveDocs shows that a sync and the removal of a platform keep the documentation, and that the removal of a version
// deletes it, and not that of another version with the same pages.
func TestRemoveDocs(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.mustSync("+1.1.0 +1.0.0")
	first, second := b.document("1.0.0"), b.document("1.1.0")
	b.mustSync("=1.1.0 =1.0.0")
	b.mustRemove(false, removal("1.0.0", "linux_amd64"))
	if got := b.docs("1.0.0"); got != first || len(b.stored([]digest.Digest{first})) != 1 {
		t.Errorf("after the removal of a platform, the documentation is %s, want %s", got, first)
	}
	b.mustRemove(false, removal("1.0.0"))
	if left := b.stored([]digest.Digest{first, second}); !slices.Equal(left, []digest.Digest{second}) {
		t.Errorf("%v are left, want only %s", left, second)
	}
	if b.docs("1.1.0") != second {
		t.Error("the documentation of the other version is gone")
	}
}
