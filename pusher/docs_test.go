package pusher_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/pusher"
)

// pushDocs pushes platforms with documentation.
func (b *bench) pushDocs(docs string, platforms ...string) (*pusher.Result, error) {
	b.T.Helper()
	r, err := b.Get(platforms...)
	if err != nil {
		b.T.Fatal(err)
	}
	r.Docs = []byte(docs)
	return pusher.New(b.Options).Push(b.T.Context(), r)
}

// wantDocs fails the test unless the tagged version has the documentation, or none if docs is "".
func (b *bench) wantDocs(docs string) {
	b.T.Helper()
	v := b.Tagged()
	if docs == "" || v.Docs == nil {
		if docs != "" || v.Docs != nil {
			b.T.Fatalf("documentation %v, want %q", v.Docs, docs)
		}
		return
	}
	d, err := artifact.ReadDocs(b.T.Context(), b.Repo, *v.Docs, pushbench.Widget, pushbench.One)
	if err != nil {
		b.T.Fatal(err)
	}
	if data, err := artifact.FetchDocs(b.T.Context(), b.Repo, d); err != nil || string(data) != docs {
		b.T.Fatalf("documentation %q, %v; want %q", data, err, docs)
	}
}

// TestPushDocs shows that pushes add, keep and replace documentation, and that the packages and the evidence stay.
func TestPushDocs(t *testing.T) {
	b := newBench(t)
	b.Options.Policy = pushbench.AllowUnsigned
	for _, step := range []struct {
		docs      string // "": the push has none
		platforms []string
		status    pusher.Status
		want      string
	}{
		{"", []string{"linux_amd64"}, pusher.Pushed, ""},
		{"first", []string{"linux_amd64"}, pusher.Completed, "first"},
		{"first", []string{"linux_amd64"}, pusher.Unchanged, "first"},
		{"", []string{"darwin_arm64"}, pusher.Completed, "first"},
		{"second", []string{"linux_amd64"}, pusher.Refreshed, "second"},
		{"third", nil, pusher.Completed, "third"},
		{"", nil, pusher.Unchanged, "third"},
	} {
		var r *pusher.Result
		var err error
		if step.docs == "" {
			r, err = b.Push(step.platforms...)
		} else {
			r, err = b.pushDocs(step.docs, step.platforms...)
		}
		if err != nil || r.Status != step.status || len(r.Warnings) > 0 || r.Digest != b.Tagged().Index.Digest.String() {
			t.Fatalf("%+v: %+v, %v", step, r, err)
		}
		b.wantDocs(step.want)
		if (r.Docs != "") != (step.want != "") || b.Tagged().Evidence == nil {
			t.Errorf("%+v: %+v", step, r)
		}
	}
	if n := b.LeftTags(); n != 0 {
		t.Errorf("%d announcements are left", n)
	}
}

// TestDocsOfConcurrentPushes pauses a push of one platform without documentation before each of its requests, and runs a push of
// another platform with documentation from start to end. It shows that the version has the documentation and both platforms.
func TestDocsOfConcurrentPushes(t *testing.T) {
	for pause, reached := 1, true; reached; pause++ {
		b := newBench(t)
		b.Options.Jobs = 1
		reached = false
		requests := 0
		b.Registry.Intercept(func(http.ResponseWriter, *http.Request) bool {
			if requests++; requests == pause {
				reached = true
				if _, err := b.pushDocs("docs", "darwin_arm64"); err != nil {
					t.Errorf("paused before request %d: the other push: %v", pause, err)
				}
			}
			return false
		})
		b.MustPush("linux_amd64")
		b.Registry.Intercept(nil)
		if !reached {
			break
		}
		if got := b.TaggedPlatforms(); got != "darwin_arm64 linux_amd64" || b.LeftTags() != 0 {
			t.Fatalf("paused before request %d: the index has %s, and %d announcements are left", pause, got, b.LeftTags())
		}
		b.wantDocs("docs")
	}
}

// TestPlanDocs shows what a dry run says of documentation, and that it stores nothing.
func TestPlanDocs(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	before := b.Tagged().Index.Digest
	for _, want := range []pusher.Action{pusher.ActionAdd, pusher.ActionReplace, pusher.ActionKeep} {
		r, err := b.Get()
		if err != nil {
			t.Fatal(err)
		}
		r.Docs = []byte("new")
		if want == pusher.ActionReplace {
			if _, err := b.pushDocs("old"); err != nil {
				t.Fatal(err)
			}
			before = b.Tagged().Index.Digest
		}
		if want == pusher.ActionKeep {
			r.Docs = []byte("old")
		}
		plan, err := pusher.New(b.Options).PlanPush(t.Context(), r)
		if err != nil || plan.Action != want || b.Tagged().Index.Digest != before {
			t.Errorf("%+v, %v; want %s", plan, err, want)
		}
	}
}

// TestRefusedDocs shows that a version is stored without documentation if the registry refuses its type.
func TestRefusedDocs(t *testing.T) {
	b := newBench(t)
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/manifests/") {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if !strings.Contains(string(body), `"artifactType":"`+artifact.TypeDocs+`","config"`) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"errors":[{"code":"MANIFEST_INVALID","message":"artifact type not allowed"}]}`)
		return true
	})
	r, err := b.pushDocs("pages")
	if err != nil || r.Docs != "" || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "refuses the documentation") {
		t.Fatalf("%+v, %v", r, err)
	}
	b.wantDocs("")
	before := b.Tagged().Index.Digest
	if r, err = b.pushDocs("pages"); err != nil || r.Status != pusher.Unchanged || b.Tagged().Index.Digest != before {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestDocsOfApprovedVersion shows that documentation is added to an approved version only by a push that can approve it again.
func TestDocsOfApprovedVersion(t *testing.T) {
	b, key := newBench(t), approvals.NewSigningKey(t)
	b.MustPush()
	b.approve(key)
	before := b.Tagged().Index.Digest
	if r, err := b.pushDocs("pages"); !errors.Is(err, pusher.ErrApproved) || hint.Of(err) == "" || b.Tagged().Index.Digest != before {
		t.Fatalf("%+v, %v", r, err)
	}
	b.Options.Sign = key
	if r, err := b.pushDocs("pages"); err != nil || r.ApprovedBy == "" || !b.approvedBy(key) {
		t.Fatalf("%+v, %v", r, err)
	}
	b.wantDocs("pages")
}

// TestForeignDocsAreNotApproved shows that a push with a key does not approve documentation that another push has stored.
func TestForeignDocsAreNotApproved(t *testing.T) {
	b, key := newBench(t), approvals.NewSigningKey(t)
	if _, err := b.pushDocs("pages of somebody"); err != nil {
		t.Fatal(err)
	}
	b.Options.Sign = key
	r := b.MustPush()
	if r.ApprovedBy != "" || b.approvedBy(key) || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "an earlier push has stored the documentation") {
		t.Errorf("%+v", r)
	}
	if r, err := b.pushDocs("my pages"); err != nil || r.ApprovedBy == "" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestCopyDocs shows that a copy carries documentation byte for byte, and adds
// it to a version that lacks it.
func TestCopyDocs(t *testing.T) {
	b := newBench(t)
	if _, err := b.pushDocs("pages"); err != nil {
		t.Fatal(err)
	}
	want := b.Tagged()
	from, _ := b.Source()
	r, err := b.CopyWith(from)
	if err != nil || r.Status != pusher.Pushed || r.Digest != want.Index.Digest.String() || len(r.Warnings) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	b.wantDocs("pages")
	b.NewRegistry()
	b.MustPush()
	if r, err = b.CopyWith(from); err != nil || r.Status != pusher.Completed || r.Digest != want.Index.Digest.String() {
		t.Fatalf("%+v, %v", r, err)
	}
	// Other documentation stays.
	b.NewRegistry()
	if _, err := b.pushDocs("other pages"); err != nil {
		t.Fatal(err)
	}
	if r, err = b.CopyWith(from); err != nil || r.Status != pusher.Unchanged {
		t.Fatalf("%+v, %v", r, err)
	}
	b.wantDocs("other pages")
	// A copy of some platforms writes a new index, with the documentation.
	b.NewRegistry()
	if r, err = b.CopyWith(from, "linux_amd64"); err != nil || r.Docs != want.Docs.Digest.String() {
		t.Fatalf("%+v, %v", r, err)
	}
	b.wantDocs("pages")
}

// TestCopyUnusableDocs shows that a copy leaves out documentation that cannot be used, and says so.
func TestCopyUnusableDocs(t *testing.T) {
	for name, spoil := range map[string]func(b *bench) error{
		"no manifest": func(b *bench) error { return b.Repo.Delete(b.T.Context(), *b.Tagged().Docs) },
		"no zip": func(b *bench) error {
			return b.Repo.Blobs().Delete(b.T.Context(), artifact.DocsZip([]byte("pages")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if _, err := b.pushDocs("pages"); err != nil {
				t.Fatal(err)
			}
			if err := spoil(b); err != nil {
				t.Fatal(err)
			}
			from, _ := b.Source()
			r, err := b.CopyWith(from)
			if err != nil || r.Docs != "" || !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "documentation") }) {
				t.Fatalf("%+v, %v", r, err)
			}
			b.wantDocs("")
		})
	}
}
