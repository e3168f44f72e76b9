package artifact_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loopback"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
)

// TestCopiedSignatures shows that cosign's signatures, in both formats, still approve a version after other tools have copied it to
// another registry, from a registry without the referrers API and from one with it.
func TestCopiedSignatures(t *testing.T) {
	oras, crane := clients.ORAS(t), clients.Program(t, "crane")
	shared := approvals.NewShared(t)
	distribution, err := registry.For(t, registry.Options{}).Handler()
	if err != nil {
		t.Fatal(err)
	}
	sign := map[string]func(*approvals.World){
		"bundle": func(w *approvals.World) { w.Cosign().Sign(w.Image(w.Stored.Digest)) },
		"older":  func(w *approvals.World) { w.Cosign().SignSimple(w.Image(w.Stored.Digest)) },
	}
	run := func(c clients.Client, args ...string) { clients.For(t).MustRun(t, c, args...) }
	byORAS := func(from, to string) {
		run(oras, "cp", "-r", "--from-plain-http", "--to-plain-http", from+":1.0.0", to+":1.0.0")
	}
	// oras copies referrers. The tag of an older signature is a tag like any other.
	withTag := func(from, to string, d digest.Digest) {
		byORAS(from, to)
		tag := ":" + strings.Replace(d.String(), ":", "-", 1) + ".sig"
		run(oras, "cp", "--from-plain-http", "--to-plain-http", from+tag, to+tag)
	}
	byCrane := func(from, to string) { run(crane, "copy", "--all-tags", from, to) }
	for i, c := range []struct {
		name, sign string
		from       approvals.Places
		copy       func(from, to string, d digest.Digest)
	}{
		{"oras cp -r", "bundle", approvals.Serve(t, distribution, "a"), func(from, to string, _ digest.Digest) { byORAS(from, to) }},
		{"oras cp -r, with the API", "bundle", approvals.Serve(t, loopback.For(t).Truth, "b"), func(from, to string, _ digest.Digest) { byORAS(from, to) }},
		{"oras cp -r, older", "older", approvals.Serve(t, distribution, "c"), withTag},
		{"crane copy --all-tags", "bundle", approvals.Serve(t, distribution, "d"), func(from, to string, _ digest.Digest) { byCrane(from, to) }},
		{"crane copy --all-tags, older", "older", approvals.Serve(t, distribution, "e"), func(from, to string, _ digest.Digest) { byCrane(from, to) }},
	} {
		for to, handler := range map[string]approvals.Places{
			"without the API": approvals.Serve(t, distribution, fmt.Sprintf("copy%d", i)), "with the API": approvals.Serve(t, loopback.For(t).Truth, "copy"),
		} {
			t.Run(c.name+", to a registry "+to, func(t *testing.T) {
				w := approvals.NewWorld(t, shared, c.from, approvals.Case{})
				sign[c.sign](w)
				name := func(w *approvals.World) string { image, _, _ := strings.Cut(w.Image(""), "@"); return image }
				copied := *w
				copied.Places = handler
				c.copy(name(w), name(&copied), w.Stored.Digest)
				v, err := copied.Read(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				policy := approvals.Policy(t, []approvals.Require{{Name: "platform team", PublicKey: w.Cosign().PEM()}})
				verdict, err := artifact.CheckApprovals(t.Context(), copied.Repo(), policy, v, w.Address, w.Version)
				if err != nil || verdict.Err() != nil {
					t.Errorf("%v, %v", verdict.Err(), err)
				}
			})
		}
	}
}
