package ociaddr

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

func TestEncodeComponent(t *testing.T) {
	for text, want := range map[string]string{
		"azure":                  "azure",
		"my_net":                 "my_net",
		"my__net":                "my__net",
		"a--b":                   "a--b",
		"Azure":                  "azure.1",
		"AZURE":                  "azure.1f",
		"GoogleCloudPlatform":    "googlecloudplatform.841",
		"a___b":                  "a---b.e",
		"a-_b":                   "a--b.4",
		"a_-b":                   "a--b.2",
		"a_B":                    "a-b.6",
		strings.Repeat("A", 64):  strings.Repeat("a", 64) + ".ffffffffffffffff",
		strings.Repeat("A", 65):  strings.Repeat("A", 65), // no address has such a part
		"registry.Example":       "registry.Example",
		"-a":                     "-a",
		"":                       "",
		"a/B":                    "a/B",
		"registry.example.com:1": "registry.example.com:1",
	} {
		got := EncodeComponent(text)
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if back, ok := DecodeComponent(got); ok != (got != text) || ok && back != text {
			t.Errorf("%q is decoded to %q, %t; want %q", got, back, ok, text)
		}
	}
	for _, s := range []string{"azure", "azure.", "azure.0", "azure.01", "azure.1F", "azure.+1", "azure.20", "a1.2", "my-net.4", "azure.1.1", ".1", "a-b.10000000000000000"} {
		if text, ok := DecodeComponent(s); ok {
			t.Errorf("%q is decoded to %q", s, text)
		}
	}
}

// TestComponentsAreUnique encodes random segments of module addresses.
func TestComponentsAreUnique(t *testing.T) {
	testkit.LeaveToAll(t) // it tries very many cases in one goroutine
	const ends, all = "aZ0bY", "aZ0bY_-"
	random := rand.New(rand.NewPCG(1, 2))
	seen := map[string]string{}
	for range 200_000 {
		text := make([]byte, 1+random.IntN(64))
		for i := range text {
			text[i] = all[random.IntN(len(all))]
		}
		text[0], text[len(text)-1] = ends[random.IntN(len(ends))], ends[random.IntN(len(ends))]
		s := string(text)
		encoded := EncodeComponent(s)
		if !namePart.MatchString(encoded) {
			t.Fatalf("%q: %q is not a valid component", s, encoded)
		}
		if other, ok := seen[encoded]; ok && other != s {
			t.Fatalf("%q and %q are both %q", s, other, encoded)
		}
		seen[encoded] = s
		if back, ok := DecodeComponent(encoded); encoded != s && (!ok || back != s) {
			t.Fatalf("%q: %q is decoded to %q, %t", s, encoded, back, ok)
		}
	}
}

// FuzzDecodeComponent checks that a decoded text is encoded to the same component.
func FuzzDecodeComponent(f *testing.F) {
	for _, seed := range []string{"azure.1", "googlecloudplatform.841", "a--b.4", "azure.01", "my_net"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if text, ok := DecodeComponent(s); ok && (EncodeComponent(text) != s || text == s || !namePart.MatchString(s)) {
			t.Errorf("%q is decoded to %q", s, text)
		}
	})
}
