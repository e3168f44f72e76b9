package quirks_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/approve"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// TestApprovalsBehindAPolicy shows that a gateway behind a Harbor that lets nobody read versions without a cosign signature serves those
// that are approved, and leaves out the others.
func TestApprovalsBehindAPolicy(t *testing.T) {
	b := newBench(t, profile(t, "harbor"))
	b.registry.Create("providers")
	key := approvals.NewKey(t, approvals.P256)
	for _, version := range []string{"1.0.0", "1.1.0"} {
		b.publish(version)
		b.mustPush(version, false, false)
	}
	at, repo, err := b.repository(t.Context(), widget)
	if err != nil {
		t.Fatal(err)
	}
	v, err := artifact.Read(t.Context(), repo, widget, provider.MustParseVersion("1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := b.client.RepositoryWithReferrers(t.Context(), at.Repository)
	if err != nil {
		t.Fatal(err)
	}
	approvals.Attach(t, store, v.Index, key.Attest(approvals.Statement(t, v.Index.Digest, approvals.CosignSign)))
	b.registry.Set(func(s *quirks.Settings) { s.CosignPolicy = true })
	checker := approve.New(approve.Options{
		Rules: approval.Rules{{Pattern: widget.Pattern(), Policy: approvals.Policy(t, []approvals.Require{{Name: "platform team", PublicKey: key.PEM()}})}},
		Store: func(ctx context.Context, a subject.Address) (ociaddr.Registry, artifact.ReferrerStore, error) {
			at, repo, err := b.repository(ctx, a)
			return at.Repository.Registry, repo, err
		},
	})
	get := b.serveWith(catalog.Options{Approvals: checker})
	const path = host + "/acme/widget/"
	for _, at := range []struct {
		path   string
		status int
		text   string
	}{
		{"index.json", http.StatusOK, `{"versions":{"1.0.0":{}}}`},
		{"1.0.0.json", http.StatusOK, `"linux_amd64"`},
		{"1.1.0.json", http.StatusUnavailableForLegalReasons, `not approved: "platform team"`},
	} {
		if status, body := get(path + at.path); status != at.status || !strings.Contains(body, at.text) {
			t.Errorf("%s: %d %s", at.path, status, body)
		}
	}
}

// TestApprovals shows that signatures are found in every registry that stores them, by a client that finds out about the referrers
// API and by one that assumes it. Every registry also says that there are none.
func TestApprovals(t *testing.T) {
	for _, p := range quirks.Profiles() {
		t.Run(p.Name, func(t *testing.T) {
			b := newBench(t, p)
			if p.Create != "" {
				b.registry.Create(p.Create)
			}
			if _, err := b.push("1.0.0"); err != nil {
				t.Fatal(b.explain(err))
			}
			version := provider.MustParseVersion("1.0.0")
			at, _, err := b.repository(t.Context(), widget)
			if err != nil {
				t.Fatal(err)
			}
			exploring := func() *remote.Repository {
				store, err := b.client.RepositoryWithReferrers(t.Context(), at.Repository)
				if err != nil {
					t.Fatal(err)
				}
				return store
			}
			assuming, err := b.client.Repository(t.Context(), at.Repository)
			if err != nil {
				t.Fatal(err)
			}
			v, err := artifact.Read(t.Context(), assuming, widget, version)
			if err != nil {
				t.Fatal(err)
			}
			key := approvals.NewKey(t, approvals.P256)
			policy := approvals.Policy(t, []approvals.Require{{Name: "platform team", PublicKey: key.PEM()}})
			check := func(when string, want error) {
				for name, store := range map[string]*remote.Repository{"exploring": exploring(), "assuming": assuming} {
					verdict, err := artifact.CheckApprovals(t.Context(), store, policy, v, widget, version)
					if err != nil || !errors.Is(verdict.Err(), want) {
						t.Errorf("%s, %s: %v, %v", when, name, verdict.Err(), err)
					}
				}
			}
			check("without a signature", approval.ErrNotApproved)
			if len(p.Allowed) > 0 {
				return // the registry stores no signatures
			}
			approvals.Attach(t, exploring(), v.Index, key.Attest(approvals.Statement(t, v.Index.Digest, approvals.CosignSign)))
			check("signed", nil)
		})
	}
}
