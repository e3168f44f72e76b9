package faults_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/testkit/faultproxy"
)

// maxPush bounds how long a push goes on against a fault that stays.
const maxPush = 15 * time.Minute

var registrySteps = []step{
	{"token", to("GET", "/token")},
	{"read the tag", to("GET HEAD", "/manifests/"+version)},
	{"list tags", to("GET", "/tags/list")},
	{"look for a blob", to("HEAD", "/blobs/")},
	{"begin an upload", to("POST", "/blobs/uploads/")},
	{"upload", to("PUT PATCH", "/blobs/uploads/")},
	{"look for a manifest", to("HEAD", "/manifests/sha256")},
	{"store a manifest", to("PUT", "/manifests/sha256")},
	{"tag", to("PUT", "/manifests/"+version)},
}

var originSteps = []step{
	{"discovery", to("GET", "/.well-known/terraform.json")},
	{"versions", to("GET", "/versions")},
	{"package metadata", to("GET", "/download/")},
	{"SHA256SUMS", to("GET", "_SHA256SUMS")},
	{"signature", to("GET", ".sig")},
	{"package", to("GET", ".zip")},
}

// TestPushRegistry has every fault at every step between a push and the registry,
// once, and for as long as the push goes on.
func TestPushRegistry(t *testing.T) {
	pushes(t, registryHost, registrySteps, func(r *rig) *faultproxy.Server { return r.registry }, toRegistry)
}

// TestPushOrigin does so between a push and the origin.
func TestPushOrigin(t *testing.T) {
	pushes(t, originHost, originSteps, func(r *rig) *faultproxy.Server { return r.origin }, toOrigin)
}

// outcome is what a push makes of a fault.
type outcome struct {
	stays, once bool // whether it succeeds although the fault stays, or befalls one request
	either      bool // either way is right: it depends on what comes first
}

// toRegistry says what a fault on the way to the registry leads to.
func toRegistry(f fault, step string) outcome {
	writes := slices.Contains([]string{"begin an upload", "upload", "store a manifest", "tag"}, step)
	switch {
	case f.harmless():
		return outcome{stays: true, once: true}
	case f.name == "token expires":
		// A new one is asked for; but not for one that is new.
		return outcome{stays: true, once: true, either: step == "read the tag" || step == "token"}
	case f.name == "token never accepted":
		return outcome{once: step != "token", either: step == "read the tag"}
	case f.ofNames(), f.name == "no answer to a dial":
		return outcome{either: true} // a dial in vain is repeated for a package, not for a question
	case strings.HasPrefix(step, "look for") && f.inAnswer():
		return outcome{either: true} // a HEAD has no body, and a broken connection breaks what else is on it
	case step == "token" && f.name == "altered byte", step == "read the tag" && !f.passes():
		return outcome{either: true} // the byte may be in what nobody reads; the tag is read twice
	case writes && f.inAnswer() && !f.breaks():
		return outcome{stays: true, once: true} // nobody reads what is said of a success
	case f.name == "500":
		return outcome{once: step != "store a manifest" && step != "tag"}
	}
	uploads := step == "begin an upload" || step == "upload" // the package is sent once more
	return outcome{once: f.passes() || uploads && f.name != "429, come again in an hour"}
}

// toOrigin says what a fault on the way to the origin leads to.
func toOrigin(f fault, step string) outcome {
	switch {
	case f.harmless(), strings.HasPrefix(f.name, "token"): // there is none
		return outcome{stays: true, once: true}
	case f.ofNames(), f.name == "altered byte" && (step == "versions" || step == "package metadata"):
		return outcome{either: true} // the byte may be in what nobody reads
	case f.inAnswer():
		// A package goes on where it broke; what is smaller is asked for again.
		return outcome{once: f.name == "reset in the answer" || f.name == "more announced than sent" && step != "package"}
	}
	return outcome{once: f.passes() || f.name == "500"}
}

func pushes(t *testing.T, host string, steps []step, at func(*rig) *faultproxy.Server, want func(fault, string) outcome) {
	for _, f := range faultsFor(host) {
		for _, s := range steps {
			if f.name == "reset in the request" && s.name != "upload" {
				continue // there is nothing in it
			}
			t.Run(f.name+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				for times, succeeds := range []bool{want(f, s.name).stays, want(f, s.name).once} {
					inRig(t, func(r *rig) {
						end := f.begin(r, at(r), s, times)
						err := r.pushWithin(maxPush)
						if at(r).Hits() == 0 {
							r.t.Error("the fault befell nothing")
						}
						tagged := r.tagged()
						switch {
						case want(f, s.name).either:
						case succeeds != (err == nil):
							r.t.Errorf("%s: %v", []string{"it stays", "once"}[times], err)
						}
						if err == nil && !tagged {
							r.t.Error("it succeeds, and nothing is tagged")
						}
						r.checkError(err)
						end()
						r.newSource() // as the next run has
						if err := r.pushWithin(time.Minute); err != nil || !r.tagged() {
							r.t.Errorf("after the fault: %v", err)
						}
					})
				}
			})
		}
	}
}

// pushWithin pushes, and fails the test where that takes longer.
func (r *rig) pushWithin(limit time.Duration) error {
	r.t.Helper()
	start := time.Now()
	err := r.push(r.t.Context(), widget)
	if took := time.Since(start); took > limit {
		r.t.Errorf("the push took %s: %v", took, err)
	}
	return err
}

// checkError checks that an error says what to do, and nothing secret.
func (r *rig) checkError(err error) {
	r.t.Helper()
	if err == nil {
		return
	}
	text := fmt.Sprint(err, hint.Of(err), r.log)
	for _, secret := range []string{"secret", "_state="} {
		if strings.Contains(text, secret) {
			r.t.Errorf("the error or the log has %q: %s", secret, text)
		}
	}
	if hint.Of(err) == "" {
		r.t.Errorf("no hint: %v", err)
	}
}
