package faults_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/testkit/faultproxy"
)

// TestClockIsWrong shows what happens if this machine's clock is outside the validity of the certificates.
// Errors have a hint about the clock, the gateway returns 502, and a push tags nothing.
func TestClockIsWrong(t *testing.T) {
	for name, by := range map[string]time.Duration{"two days ahead": 48 * time.Hour, "two days behind": -48 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			inRigAt(t, time.Now().Round(0).Add(by), func(r *rig) {
				err := r.push(r.t.Context(), widget)
				if err == nil || !strings.Contains(hint.Of(err), "clock") {
					r.t.Errorf("origin: %v, hint %q", err, hint.Of(err))
				}
				repo, err := r.auth.Repository(r.t.Context(), r.repo)
				if err != nil {
					r.t.Fatal(err)
				}
				_, err = repo.Exists(r.t.Context(), descriptorOf("x"))
				if err = r.auth.Explain(err, r.repo); err == nil || !strings.Contains(hint.Of(err), "clock") {
					r.t.Errorf("registry: %v, hint %q", err, hint.Of(err))
				}
				r.serve(r.t.TempDir())
				for _, d := range documents(shared.release) {
					if a := r.get(d.path); a.status != http.StatusBadGateway {
						r.t.Errorf("%s: %d", d.path, a.status)
					}
				}
				if r.tagged() {
					r.t.Error("something is tagged")
				}
			})
		})
	}
}

// TestClockJumps advances the clock while the gateway runs. It shows that the gateway serves stale answers, and
// recovers when certificates are valid again.
func TestClockJumps(t *testing.T) {
	inRig(t, func(r *rig) {
		if err := r.push(r.t.Context(), widget); err != nil {
			r.t.Fatal(err)
		}
		r.serve(r.t.TempDir())
		for _, wait := range []time.Duration{0, 20 * time.Hour} { // certificates expire after 24 hours
			time.Sleep(wait)
			for _, d := range documents(shared.release) {
				if a := r.get(d.path); a.status != http.StatusOK {
					r.t.Errorf("%s after %s: %d", d.path, wait, a.status)
				}
			}
		}
		time.Sleep(10 * time.Hour)
		for _, d := range documents(shared.release) {
			if a := r.get(d.path); a.status != http.StatusOK {
				r.t.Errorf("%s with certificates past their time: %d", d.path, a.status)
			}
		}
		time.Sleep(25 * time.Hour) // more than stale_if_error
		for _, d := range documents(shared.release) {
			if a := r.get(d.path); a.status != http.StatusBadGateway {
				r.t.Errorf("%s after stale_if_error: %d", d.path, a.status)
			}
		}
	})
}

// TestOtherRequestsGoOn shows that, while requests for one repository stall, the gateway answers requests for
// other repositories.
func TestOtherRequestsGoOn(t *testing.T) {
	inRig(t, func(r *rig) {
		if err := r.push(r.t.Context(), widget); err != nil {
			r.t.Fatal(err)
		}
		r.serve(r.t.TempDir())
		defer r.registry.Begin(faultproxy.Rule{Match: isPackage, Fault: faultproxy.Stall()})()
		documents := documents(shared.release)
		done := make(chan answer)
		go func() { done <- r.get(documents[4].path) }()
		time.Sleep(time.Second)
		for _, d := range documents[:4] {
			if a := r.get(d.path); a.status != http.StatusOK || a.took > time.Second {
				r.t.Errorf("%s: %d after %s", d.path, a.status, a.took)
			}
		}
		if a := <-done; a.status != http.StatusGatewayTimeout {
			r.t.Errorf("the package: %d, %v after %s", a.status, a.err, a.took)
		}
	})
}
