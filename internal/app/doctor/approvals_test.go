package doctor_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/internal/app/doctor"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/provider"
)

// TestApprovals shows that doctor finds an outdated trusted root or a wrong clock, and a sign block whose key nobody requires.
func TestApprovals(t *testing.T) {
	public := func() *approval.PublicKey {
		key, err := approval.ParsePublicKey(approvals.NewKey(t, approvals.P256).PEM())
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	team := public()
	trusted, err := approval.ParseTrustedRoot(approvals.NewAuthority(t).SimpleRoot())
	if err != nil {
		t.Fatal(err)
	}
	policy, err := approval.NewPolicy(
		approval.Requirement{Name: "platform team", Key: team},
		approval.Requirement{Name: "job", Issuer: "https://issuer.example", Identity: "ci@acme.example", Root: trusted, ReportOnly: true},
	)
	if err != nil {
		t.Fatal(err)
	}
	rules := approval.Rules{{Pattern: provider.MustParsePattern("*/*/*"), Policy: policy}}
	reads := func(key *approval.PublicKey, err error) func() (*approval.PublicKey, error) {
		return func() (*approval.PublicKey, error) { return key, err }
	}
	now := time.Now()
	for what, tc := range map[string]struct {
		rules approval.Rules
		key   func() (*approval.PublicKey, error)
		now   time.Time
		want  []string
	}{
		"right":           {rules, reads(team, nil), now, []string{`ok */*/*: "platform team" is a signature by the key ` + team.Fingerprint(), "ci@acme.example of https://issuer.example, only reported", "meets a require block"}},
		"long ago":        {rules, nil, now.AddDate(-20, 0, 0), []string{"failed */*/*: \"job\": no authority"}},
		"far ahead":       {rules, nil, now.AddDate(50, 0, 0), []string{"failed */*/*: \"job\": no authority"}},
		"another key":     {rules, reads(public(), nil), now, []string{"meets no require block"}},
		"unreadable key":  {rules, reads(nil, errors.New("no such file")), now, []string{"failed no such file"}},
		"only a sign key": {nil, reads(team, nil), now, []string{"can be read"}},
	} {
		t.Run(what, func(t *testing.T) {
			r := doctor.Approvals{Rules: tc.rules, SignKey: tc.key, Now: func() time.Time { return tc.now }}.Examine()
			var text strings.Builder
			for _, c := range r.Checks {
				text.WriteString(string(c.Status) + " " + c.Detail + "\n")
				if c.Status == doctor.Fail && c.Hint == "" {
					t.Errorf("no hint: %+v", c)
				}
			}
			for _, want := range tc.want {
				if !strings.Contains(text.String(), want) {
					t.Errorf("%s\nlacks %q", text.String(), want)
				}
			}
		})
	}
	if r := (doctor.Approvals{}).Examine(); r != nil {
		t.Errorf("nothing to examine: %+v", r)
	}
}
