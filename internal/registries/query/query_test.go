package query_test

import (
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/provider"
)

const null = "registry.acme.example/acme/null"

func TestParse(t *testing.T) {
	for arg, want := range map[string]struct {
		has, lacks string // versions that the query must select, and must not select
		pattern    bool
		err        string
	}{
		null:                             {has: "1.0.0 2.0.0-beta1"},
		null + "@1.0.0":                  {has: "1.0.0", lacks: "1.0.1"},
		null + "@~> 1.0":                 {has: "1.5.0", lacks: "2.0.0"},
		"registry.acme.example/acme/*":   {pattern: true},
		"registry.acme.example/acme/*@1": {err: "a pattern has no version"},
		null + "@":                       {err: "no version given"},
		null + "@latest":                 {err: "no version called latest"},
		null + "@1.x":                    {err: "1.x"},
		"acme/null":                      {err: "acme/null"},
	} {
		t.Run(arg, func(t *testing.T) {
			q, err := query.Providers.Parse(arg, true)
			if want.err != "" {
				if err == nil || !strings.Contains(err.Error(), want.err) {
					t.Errorf("%v, want %q", err, want.err)
				}
				return
			}
			if err != nil || (q.Pattern != nil) != want.pattern || !want.pattern && q.Address.String() != null {
				t.Fatalf("%+v, %v", q, err)
			}
			for _, v := range strings.Fields(want.has) {
				if !q.Has(provider.MustParseVersion(v)) {
					t.Errorf("it lacks %s", v)
				}
			}
			for _, v := range strings.Fields(want.lacks) {
				if q.Has(provider.MustParseVersion(v)) {
					t.Errorf("it has %s", v)
				}
			}
		})
	}
}

// TestVersionsAreRefused shows that Parse refuses an argument with a version if
// versions is false. The hint shows the argument without the version.
func TestVersionsAreRefused(t *testing.T) {
	_, err := query.Providers.Parse(null+"@1.0.0", false)
	if err == nil || hint.Of(err) != "write "+null+"; ocibridge inspect "+null+"@1.0.0 shows one version" {
		t.Errorf("%v, %s", err, hint.Of(err))
	}
}

func TestAddresses(t *testing.T) {
	var queries []query.Query[provider.Address]
	for _, s := range []string{null, "registry.acme.example/*/*"} {
		q, err := query.Providers.Parse(s, true)
		if err != nil {
			t.Fatal(err)
		}
		queries = append(queries, q)
	}
	if got := query.Addresses(queries); len(got) != 1 || got[0].String() != null {
		t.Errorf("%v", got)
	}
	if _, err := query.Providers.ParseOne("registry.acme.example/*/*"); err == nil {
		t.Error("ParseProvider accepts a pattern")
	}
}

// TestKinds shows that every kind is parsed, and that the number of parts decides the kind: a pattern for providers must not
// select modules.
func TestKinds(t *testing.T) {
	for pattern, want := range map[string]subject.Kind{
		"*/*/*": subject.Provider, "registry.acme.example/acme/*": subject.Provider, "*/*/*/*": subject.Module, "registry.acme.example/acme/*/*": subject.Module,
		"": "", "*": "", "*/*": "", "*/*/*/*/*": "",
	} {
		p, err := query.ParsePattern(pattern)
		if (err == nil) != (want != "") || err == nil && (p.Kind() != want || p.String() != pattern) {
			t.Errorf("%q: %v, %v", pattern, p, err)
		}
	}
	seen := map[subject.Kind]bool{}
	for _, text := range []string{null, "registry.acme.example/acme/net/aws", "b\u00fccher.example/acme/net/aws"} {
		q, err := query.ParseEither(text)
		if err != nil {
			t.Fatal(err)
		}
		seen[q.Address.Kind()] = true
		p, err := query.ParsePattern(text)
		if back, perr := query.ParsePath(q.Address.Path()); err != nil || perr != nil || p != q.Address.Pattern() || back != q.Address {
			t.Errorf("%s: the pattern %v, %v, and the path of %v, %v", text, p, err, back, perr)
		}
	}
	for _, kind := range subject.Kinds {
		if !seen[kind] {
			t.Errorf("no text is parsed as a %s", kind)
		}
	}
}
