package faults_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/faultproxy"
)

// maxPush is the maximum duration of a push during a permanent fault.
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

// TestPushRegistry tests every fault at every step between a push and the registry. It tests each fault for one
// request and permanently.
func TestPushRegistry(t *testing.T) {
	pushes(t, registryHost, registrySteps, func(r *rig) *faultproxy.Server { return r.registry }, toRegistry, ofProvider)
}

// TestPushModule tests every fault at every step between a push of a module and the registry. It tests each fault
// for one request and permanently.
func TestPushModule(t *testing.T) {
	testkit.LeaveToAll(t)
	steps := slices.DeleteFunc(slices.Clone(registrySteps), func(s step) bool { return s.name == "look for a manifest" || s.name == "store a manifest" })
	pushes(t, registryHost, steps, func(r *rig) *faultproxy.Server { return r.registry }, toRegistry, ofModule)
}

// TestPushOrigin tests every fault at every step between a push and the origin. It tests each fault for one
// request and permanently.
func TestPushOrigin(t *testing.T) {
	pushes(t, originHost, originSteps, func(r *rig) *faultproxy.Server { return r.origin }, toOrigin, ofProvider)
}

// outcome is the expected result of a push with a fault.
type outcome struct {
	stays, once bool // whether the push succeeds despite a permanent fault, or despite a fault of one request
	either      bool // both results are correct, because they depend on the order of events
}

// toRegistry returns the expected result of a push with a fault between the push and the registry.
func toRegistry(f fault, step string) outcome {
	writes := slices.Contains([]string{"begin an upload", "upload", "store a manifest", "tag"}, step)
	switch {
	case f.harmless():
		return outcome{stays: true, once: true}
	case f.name == "token expires":
		// The push gets a new token, unless the expired token was already new.
		return outcome{stays: true, once: true, either: step == "read the tag" || step == "token"}
	case f.name == "token never accepted":
		return outcome{once: step != "token", either: step == "read the tag"}
	case f.ofNames(), f.name == "no answer to a dial":
		return outcome{either: true} // the push retries a failed dial for a package, but not for a lookup
	case strings.HasPrefix(step, "look for") && f.inAnswer():
		return outcome{either: true} // a HEAD has no body, and a broken connection also breaks other requests on the connection
	case step == "token" && f.name == "altered byte", step == "read the tag" && !f.passes():
		return outcome{either: true} // the altered byte might be unused, and the push reads the tag twice
	case writes && f.inAnswer() && !f.breaks():
		return outcome{stays: true, once: true} // the push does not read the body of a success
	case f.name == "500":
		return outcome{once: step != "store a manifest" && step != "tag"}
	}
	uploads := step == "begin an upload" || step == "upload" // the push uploads the package again
	return outcome{once: f.passes() || uploads && f.name != "429, come again in an hour"}
}

// toOrigin returns the expected result of a push with a fault between the push and the origin.
func toOrigin(f fault, step string) outcome {
	switch {
	case f.harmless(), strings.HasPrefix(f.name, "token"): // origins have no tokens
		return outcome{stays: true, once: true}
	case f.ofNames(), f.name == "altered byte" && (step == "versions" || step == "package metadata"):
		return outcome{either: true} // the altered byte might be unused
	case f.inAnswer():
		// The push resumes a package where the download broke, and requests smaller documents again.
		return outcome{once: f.name == "reset in the answer" || f.name == "more announced than sent" && step != "package"}
	}
	return outcome{once: f.passes() || f.name == "500"}
}

// pushed is what a push stores: a version of a provider or of a module.
type pushed struct {
	push   func(*rig, context.Context) error
	tagged func(*rig) bool // reports whether the version is tagged, and checks that it is complete
}

var (
	ofProvider = pushed{func(r *rig, ctx context.Context) error { return r.push(ctx, widget) }, (*rig).tagged}
	ofModule   = pushed{(*rig).pushModule, (*rig).moduleTagged}
)

func pushes(t *testing.T, host string, steps []step, at func(*rig) *faultproxy.Server, want func(fault, string) outcome, of pushed) {
	for _, f := range faultsFor(host) {
		for _, s := range steps {
			if f.name == "reset in the request" && s.name != "upload" {
				continue // requests of this step have no body
			}
			t.Run(f.name+"/"+s.name, func(t *testing.T) {
				f.leave(t)
				t.Parallel()
				for times, succeeds := range []bool{want(f, s.name).stays, want(f, s.name).once} {
					inRig(t, func(r *rig) {
						end := f.begin(r, at(r), s, times)
						err := r.pushWithin(maxPush, of)
						if at(r).Hits() == 0 {
							r.t.Error("the fault affected no request")
						}
						tagged := of.tagged(r)
						switch {
						case want(f, s.name).either:
						case succeeds != (err == nil):
							r.t.Errorf("%s: %v", []string{"it stays", "once"}[times], err)
						}
						if err == nil && !tagged {
							r.t.Error("the push succeeds, but nothing is tagged")
						}
						r.checkError(err)
						end()
						r.newSource() // the next run of a push also has a new client of origins
						if err := r.pushWithin(time.Minute, of); err != nil || !of.tagged(r) {
							r.t.Errorf("after the fault: %v", err)
						}
					})
				}
			})
		}
	}
}

// pushWithin runs a push, and fails the test if the push takes longer than limit.
func (r *rig) pushWithin(limit time.Duration, of pushed) error {
	r.t.Helper()
	start := time.Now()
	err := of.push(r, r.t.Context())
	if took := time.Since(start); took > limit {
		r.t.Errorf("the push took %s: %v", took, err)
	}
	return err
}

// checkError checks that err says what to do, and that neither err nor the log contains a secret.
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
