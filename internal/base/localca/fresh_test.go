package localca

import (
	"crypto/x509"
	"testing"
	"time"
)

// TestFresh shows at which times a leaf counts as fresh. These times include times
// before the leaf was issued, which a test in virtual time cannot reach.
func TestFresh(t *testing.T) {
	issued := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	leaf := &x509.Certificate{NotBefore: issued.Add(-margin), NotAfter: issued.Add(leafValidity)}
	for name, tt := range map[string]struct {
		after time.Duration
		want  bool
	}{
		"at once":                        {0, true},
		"clock was set back a bit":       {-margin, true},
		"clock was set back by a day":    {-24 * time.Hour, false},
		"just before the renewal":        {leafAge - time.Second, true},
		"renewal":                        {leafAge, false},
		"after a sleep beyond its end":   {leafValidity + time.Hour, false},
		"clock was set forward by years": {5 * 365 * 24 * time.Hour, false},
	} {
		if got := fresh(leaf, issued.Add(tt.after)); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
