package faults_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/faultproxy"
)

// kind is a provider or a module, with all documents of a gateway for it.
type kind struct {
	pushed
	documents []document
}

func kinds() map[string]kind {
	return map[string]kind{"provider": {ofProvider, documents(shared.release)}, "module": {ofModule, moduleDocuments()}}
}

// TestClockIsWrong shows what happens if this machine's clock is outside the validity of the certificates.
// Errors have a hint about the clock, the gateway returns 502, and a push tags nothing.
func TestClockIsWrong(t *testing.T) {
	for name, by := range map[string]time.Duration{"two days ahead": 48 * time.Hour, "two days behind": -48 * time.Hour} {
		for what, of := range kinds() {
			t.Run(name+"/"+what, func(t *testing.T) {
				inRigAt(t, time.Now().Round(0).Add(by), func(r *rig) {
					err := of.push(r, r.t.Context())
					if err == nil || !strings.Contains(hint.Of(err), "clock") {
						r.t.Errorf("push: %v, hint %q", err, hint.Of(err))
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
					r.wantAll(of.documents, http.StatusBadGateway)
					if of.tagged(r) {
						r.t.Error("something is tagged")
					}
				})
			})
		}
	}
}

// TestClockJumps advances the clock while the gateway runs. It shows that the gateway serves stale answers, and
// recovers when certificates are valid again.
func TestClockJumps(t *testing.T) {
	for what, of := range kinds() {
		t.Run(what, func(t *testing.T) {
			inRig(t, func(r *rig) {
				if err := of.push(r, r.t.Context()); err != nil {
					r.t.Fatal(err)
				}
				r.serve(r.t.TempDir())
				for _, wait := range []time.Duration{0, 20 * time.Hour, 10 * time.Hour} { // certificates expire after 24 hours
					time.Sleep(wait)
					r.wantAll(of.documents, http.StatusOK)
				}
				time.Sleep(25 * time.Hour) // more than stale_if_error
				r.wantAll(of.documents, http.StatusBadGateway)
			})
		})
	}
}

// wantAll requests the documents, and checks the status of each.
func (r *rig) wantAll(all []document, status int) {
	r.t.Helper()
	for _, d := range all {
		if a := r.get(d.path); a.status != status {
			r.t.Errorf("%s: %d, want %d", d.path, a.status, status)
		}
	}
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
