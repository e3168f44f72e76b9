package page_test

import (
	"context"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/approve"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// TestApprovals shows that the page says who has approved a version, and which approvals a version lacks. It shows a version that
// lacks only approvals that are not enforced.
func TestApprovals(t *testing.T) {
	b := newBench(t)
	team, auditors := approvals.NewKey(t, approvals.P256), approvals.NewKey(t, approvals.P256)
	requirement := func(name string, key *approvals.Key, reportOnly bool) approval.Requirement {
		public, err := approval.ParsePublicKey(key.PEM())
		b.must(err)
		return approval.Requirement{Name: name, Key: public, ReportOnly: reportOnly}
	}
	policy, err := approval.NewPolicy(requirement("platform <team>", team, false), requirement("auditors", auditors, true))
	b.must(err)
	b.catalog.Approvals = approve.New(approve.Options{
		Rules: approval.Rules{{Pattern: widget.Pattern(), Policy: policy}},
		Store: func(_ context.Context, a subject.Address) (ociaddr.Registry, artifact.ReferrerStore, error) {
			return "", b.repository(a), nil
		},
	})
	b.push(widget, "1.0.0", true)
	b.push(widget, "1.1.0", true)
	c := b.serve(nil)
	c.want(widgetPage, 200, "This gateway serves no version", "1.1.0 not approved", "Missing: &#34;platform &lt;team&gt;&#34;")
	c.want(widgetPage+"/1.1.0", 451, "This version is not approved", "platform &lt;team&gt;: it has no signature", "ocibridge help approving")

	repo := b.repository(widget)
	index, err := artifact.Resolve(t.Context(), repo, "1.0.0")
	b.must(err)
	approvals.Attach(t, repo, index, team.Attest(approvals.Statement(t, index.Digest, approval.PredicateCosign)))
	public, err := approval.ParsePublicKey(team.PEM())
	b.must(err)
	a := c.want(widgetPage, 200, "1.0.0 newest", "Approvals", public.Fingerprint(), "auditors", "not approved:", "This gateway only reports a missing approval", "1.1.0 not approved")
	if !strings.Contains(a.body, `widget/1.1.0"><s>`) {
		t.Error("no link to the page that says what the version lacks")
	}
	if strings.Contains(a.body, "<team>") {
		t.Error("a name is not escaped")
	}
}
