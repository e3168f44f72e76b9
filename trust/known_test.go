package trust_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// zipOf returns a zip with one file that contains text, and the two hashes of the zip.
func zipOf(t *testing.T, text string) (data []byte, zh, h1 provider.Hash) {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	f, err := w.Create("terraform-provider-null")
	if err != nil {
		t.Fatal(err)
	}
	f.Write([]byte(text))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if h1, err = provider.H1(t.Context(), bytes.NewReader(buf.Bytes()), int64(buf.Len())); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes(), provider.ZipHash(sha256.Sum256(buf.Bytes())), h1
}

func TestKnown(t *testing.T) {
	data, zh, h1 := zipOf(t, "linux")
	_, otherZH, otherH1 := zipOf(t, "darwin") // a package of the same release
	_, strangeZH, strangeH1 := zipOf(t, "another release")
	doc := fmt.Appendf(nil, "%s  %s\n%s  terraform-provider-null_3.2.4_darwin_arm64.zip\n", strings.TrimPrefix(zh.String(), "zh:"), name, strings.TrimPrefix(otherZH.String(), "zh:"))

	known := func(hashes ...provider.Hash) trust.Known { return trust.Known{Where: "f.hcl:3", Hashes: hashes} }
	for desc, tc := range map[string]struct {
		known  []trust.Known
		bySum  bool  // the listed checksum is enough to accept the package
		before error // the error before the bytes are read
		after  error
	}{
		"nobody has to":                             {nil, true, nil, nil},
		"its zip":                                   {[]trust.Known{known(otherZH, zh)}, true, nil, nil},
		"its zip, and the content of another":       {[]trust.Known{known(otherH1, zh)}, true, nil, nil},
		"its zip, beside a stranger":                {[]trust.Known{known(strangeZH, zh)}, true, nil, nil},
		"its content":                               {[]trust.Known{known(otherH1, h1)}, false, nil, nil},
		"its content, and the zip of another":       {[]trust.Known{known(otherZH, h1)}, false, nil, nil},
		"its content, but a zip of no such release": {[]trust.Known{known(strangeZH, h1)}, false, trust.ErrChecksum, nil},
		"the content of another":                    {[]trust.Known{known(otherH1)}, false, nil, trust.ErrUnknown},
		"the content of a stranger":                 {[]trust.Known{known(otherZH, strangeH1)}, false, nil, trust.ErrUnknown},
		"the zip of another":                        {[]trust.Known{known(otherZH)}, false, trust.ErrUnknown, nil},
		"the zip of a stranger":                     {[]trust.Known{known(strangeZH)}, false, trust.ErrChecksum, nil},
		"nothing":                                   {[]trust.Known{known()}, false, trust.ErrUnknown, nil},
		"only one of two":                           {[]trust.Known{known(zh), known(otherZH)}, false, trust.ErrUnknown, nil},
		"only one of two, by its content":           {[]trust.Known{known(zh), known(otherH1)}, false, nil, trust.ErrUnknown},
		"both of two":                               {[]trust.Known{known(zh), known(h1)}, false, nil, nil},
	} {
		t.Run(desc, func(t *testing.T) {
			sums, err := trust.Policy{AllowUnsigned: true}.Accept(t.Context(), trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Known: tc.known})
			if err != nil {
				t.Fatal(err)
			}
			if got := sums.KnownBySum(name); got != tc.bySum {
				t.Errorf("known by its sum: %v", got)
			}
			v, err := sums.Verifier(linux, name)
			want := tc.before
			if err == nil && want == nil {
				v.Write(data)
				_, err = v.Accept(t.Context(), bytes.NewReader(data))
				want = tc.after
			}
			if !errors.Is(err, want) || want == nil && err != nil {
				t.Fatalf("%v, want %v", err, want)
			}
			if err == nil {
				return
			}
			if !strings.Contains(err.Error(), "f.hcl:3") || !strings.Contains(err.Error(), zh.String()) {
				t.Errorf("%v does not name both sides", err)
			}
			if want == trust.ErrUnknown && !strings.Contains(hint.Of(err), "providers lock -platform=linux_amd64") || hint.Of(err) == "" {
				t.Errorf("hint %q", hint.Of(err))
			}
			if errors.Is(err, trust.ErrChecksum) && !strings.Contains(err.Error(), strangeZH.String()) {
				t.Errorf("%v does not name the stranger", err)
			}
		})
	}
}

// TestKnownMirror shows that a package of a release without SHA256SUMS is compared with
// the lock files only after its bytes have been read.
func TestKnownMirror(t *testing.T) {
	data, zh, h1 := zipOf(t, "linux")
	_, strangeZH, _ := zipOf(t, "another")
	for _, tc := range []struct {
		known provider.Hash
		want  error
	}{{zh, nil}, {h1, nil}, {strangeZH, trust.ErrChecksum}} {
		sums, err := trust.Policy{AllowUnsigned: true}.Accept(t.Context(), trust.Claims{
			Provider: null, Version: v324, Hashes: map[string][]provider.Hash{name: {zh}},
			Known: []trust.Known{{Where: "f:1", Hashes: []provider.Hash{tc.known}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		v, err := sums.Verifier(linux, name)
		if err != nil || sums.KnownBySum(name) {
			t.Fatalf("decided without its bytes: %v", err)
		}
		v.Write(data)
		if _, err := v.Accept(t.Context(), bytes.NewReader(data)); !errors.Is(err, tc.want) || tc.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", tc.known, err, tc.want)
		}
	}
}
