package pusher_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// TestOriginContradictsItself shows that a push fails, and tags nothing, if a later response of the origin states
// another hash or size for a package.
func TestOriginContradictsItself(t *testing.T) {
	for name, report := range map[string]map[string]any{
		"size": {"package_size": 5},
		"zh":   {"package_size": 1 << 20, "hashes": []string{"zh:" + strings.Repeat("0", 64)}},
		"h1":   {"hashes": []string{"h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if name == "h1" {
				report["package_size"] = b.Release.Package("linux", "amd64").Size
			}
			honest := origin.New(origin.Options{}, b.Release)
			b.Origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/download/linux/amd64") {
					return false
				}
				rec := httptest.NewRecorder()
				honest.ServeHTTP(rec, r)
				var body map[string]any
				if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil {
					t.Error(err)
				}
				body["packages"] = map[string]any{"linux_amd64": report}
				w.Header().Set("Content-Type", "application/json")
				json.NewEncoder(w).Encode(body)
				return true
			})
			if _, err := b.Push(); !errors.Is(err, trust.ErrChecksum) || hint.Of(err) == "" {
				t.Errorf("error %v (hint %q)", err, hint.Of(err))
			}
			if v := b.Tagged(); v != nil {
				t.Errorf("tagged %+v", v)
			}
		})
	}
}

// TestPolicyOfTheProvider shows that a push applies the policy of its provider, and that the push's result and
// evidence reflect that policy.
func TestPolicyOfTheProvider(t *testing.T) {
	b := newBench(t)
	b.Signer = pgp.For(t, "Acme", pgp.Expired())
	b.Release = b.Build("1.0.0", "content")
	b.Origin.Add(b.Release)
	policy := trust.Policy{Keys: []string{b.Signer.Fingerprint()}, StrictExpiry: true}
	var asked []provider.Address
	b.Options.Policy = func(a provider.Address) trust.Policy {
		asked = append(asked, a)
		return policy
	}
	if _, err := b.Push(); !errors.Is(err, trust.ErrSignature) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("strict: %v", err)
	}
	if v := b.Tagged(); v != nil {
		t.Errorf("tagged %+v", v)
	}
	policy.StrictExpiry = false
	r := b.MustPush()
	if !r.Pinned || !r.Expired || r.Verdict != trust.Signed || r.Fingerprint != b.Signer.Fingerprint() || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "expired") {
		t.Errorf("result %+v", r)
	}
	if len(asked) != 2 || asked[0] != pushbench.Widget {
		t.Errorf("the push used the policy of %v", asked)
	}
	e, err := artifact.ReadEvidence(t.Context(), b.Repo, *b.Tagged().Evidence)
	if err != nil || e.Record.Verdict != trust.Signed || e.Record.Fingerprint != b.Signer.Fingerprint() {
		t.Errorf("evidence %+v, %v", e, err)
	}
}
