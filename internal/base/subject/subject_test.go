package subject_test

import (
	"testing"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// TestDisplayHost shows that hosts for people are those of svchost.
func TestDisplayHost(t *testing.T) {
	for _, name := range []string{"registry.opentofu.org", "Registry.Example:8443", "localhost", "127.0.0.1:5000", "испытание.com", "a-b.faß.example", "испытание.com:8443", "a--b.example"} {
		host, err := svchost.ForComparison(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := subject.DisplayHost(host), svchost.ForDisplay(string(host)); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}
