package origin_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// packages returns the object with which a newer origin reports the packages of the
// bench's release. The object maps each platform to the hashes and the size of its
// package.
func (b *bench) packages() map[string]any {
	b.t.Helper()
	out := map[string]any{}
	for _, p := range b.release.Packages {
		// The origin may still handle a request after the test ended and its context was
		// cancelled.
		h1, err := provider.H1(context.Background(), bytes.NewReader(p.Data), p.Size)
		if err != nil {
			b.t.Fatal(err)
		}
		out[p.OS+"_"+p.Arch] = map[string]any{"hashes": []any{"zh:" + p.SHA256, h1.String()}, "package_size": p.Size}
	}
	return out
}

// report adds the object from packages, modified by change, to each of the origin's
// documents.
func (b *bench) report(change func(asked string, packages map[string]any)) {
	b.alter(func(m map[string]any) {
		packages := b.packages()
		change(m["os"].(string)+"_"+m["arch"].(string), packages)
		m["packages"] = packages
	})
}

func entry(packages map[string]any, platform string) map[string]any {
	return packages[platform].(map[string]any)
}

// accept verifies all packages of a release.
func accept(ctx context.Context, r *origin.Release) error {
	sums, err := trust.Policy{}.Accept(ctx, r.Claims)
	if err != nil {
		return err
	}
	for _, p := range r.Packages {
		verifier, err := sums.Verifier(p.Platform, p.Filename)
		if err != nil {
			return err
		}
		body, _, err := p.Open(ctx)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(body)
		body.Close()
		if err != nil {
			return err
		}
		verifier.Write(data)
		if _, err := verifier.Accept(ctx, bytes.NewReader(data)); err != nil {
			return err
		}
	}
	return nil
}

func TestReportedPackages(t *testing.T) {
	const linux, darwin = "linux_amd64", "darwin_arm64"
	zeros := strings.Repeat("0", 64)
	for name, tc := range map[string]struct {
		change func(asked string, packages map[string]any)
		get    string // the error of reading the release; "" means none
		accept string // the error of verifying the release
	}{
		"right":                  {change: func(string, map[string]any) {}},
		"none":                   {change: func(_ string, p map[string]any) { clear(p) }},
		"hashes of later days":   {change: func(_ string, p map[string]any) { entry(p, linux)["hashes"] = []any{"h2:later", "zh2:x"} }},
		"platform of later days": {change: func(_ string, p map[string]any) { p["amiga"] = map[string]any{"package_size": 0} }},
		"platform that is not released": {change: func(_ string, p map[string]any) {
			p["plan9_386"] = map[string]any{"hashes": []any{"zh:" + zeros}, "package_size": 1}
		}},
		"without the one asked for": {change: func(asked string, p map[string]any) { delete(p, asked) }, get: "its packages lack"},
		"size of nothing":           {change: func(_ string, p map[string]any) { entry(p, linux)["package_size"] = 0 }, get: "package_size 0 for linux_amd64"},
		"size below nothing":        {change: func(_ string, p map[string]any) { entry(p, linux)["package_size"] = -1 }, get: "package_size -1"},
		"no size":                   {change: func(_ string, p map[string]any) { delete(entry(p, linux), "package_size") }, get: "package_size 0"},
		"hash that is none":         {change: func(_ string, p map[string]any) { entry(p, linux)["hashes"] = []any{"zh:abc"} }, get: `hash "zh:abc"`},
		"answers that differ in size": {change: func(asked string, p map[string]any) {
			if asked == linux {
				entry(p, darwin)["package_size"] = 5
			}
		}, get: "gives for darwin_arm64"},
		"answers that differ in hashes": {change: func(asked string, p map[string]any) {
			if asked == linux {
				entry(p, darwin)["hashes"] = []any{"zh:" + zeros}
			}
		}, get: "gives for darwin_arm64"},
		"another zh": {change: func(_ string, p map[string]any) { entry(p, linux)["hashes"] = []any{"zh:" + zeros} }, accept: "reports zh:" + zeros + ", SHA256SUMS lists "},
		"one zh too many": {change: func(_ string, p map[string]any) {
			entry(p, linux)["hashes"] = append(entry(p, linux)["hashes"].([]any), "zh:"+zeros)
		}, accept: "reports zh:" + zeros},
		"another h1": {change: func(_ string, p map[string]any) {
			entry(p, linux)["hashes"] = []any{"h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}
		}, accept: "its origin reports [h1:47DEQpj8"},
		"another size": {change: func(_ string, p map[string]any) { entry(p, linux)["package_size"] = 5 }, accept: "its origin reports 5"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.report(tc.change)
			r, err := b.get()
			if tc.get != "" {
				checkError(t, err, tc.get, "")
				if n := b.asked.Count(recorder.PathSuffix(".zip")); n != 0 {
					t.Errorf("%d packages fetched", n)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			err = accept(t.Context(), r)
			if tc.accept == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, trust.ErrChecksum) || !strings.Contains(err.Error(), tc.accept) || hint.Of(err) == "" {
				t.Errorf("error %v (hint %q), want %q", err, hint.Of(err), tc.accept)
			}
		})
	}
}

// TestProtocols shows that the protocols come from the document about a package, or from
// the list of versions if that document has no protocols.
func TestProtocols(t *testing.T) {
	b := newBench(t)
	b.alter(func(m map[string]any) { delete(m, "protocols") })
	if r := b.mustGet(); !slices.Equal(r.Protocols, []string{"5.0", "6.0"}) { // from the list of versions
		t.Errorf("protocols %q", r.Protocols)
	}
	b.alter(func(m map[string]any) {
		m["protocols"] = []any{"5.1", "5.1", "a,b", "", "1.2.3.4", "99999", strings.Repeat("6", 1000)}
	})
	if r := b.mustGet(); !slices.Equal(r.Protocols, []string{"5.1"}) {
		t.Errorf("protocols %q", r.Protocols)
	}
}
