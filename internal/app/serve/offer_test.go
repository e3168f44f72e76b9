package serve

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

// TestOffer shows what an offer says, and that every refusal and every document that cannot be read is an error.
func TestOffer(t *testing.T) {
	l := startLocal(t, http.StatusOK)
	widget, linux := mustAddress(t, "registry.acme.example/acme/widget"), provider.Platform{OS: "linux", Arch: "amd64"}
	v := provider.MustParseVersion("1.0.0")
	sum := func(c string) string { return strings.Repeat(c, 64) }
	h1 := func(c string) string { return "h1:" + strings.Repeat(c, 42) + "A=" }
	root := l.site.address.URL.String()
	document := fmt.Sprintf(`{"shasum": %q, "download_url": "%szip", "shasums_url": "%ssums", "packages": {
		"linux_amd64": {"hashes": ["zh:%s", %q], "package_size": 7}, "darwin_arm64": {"hashes": ["zh:%s", %q], "package_size": 8}}}`,
		sum("a"), root, root, sum("a"), h1("A"), sum("b"), h1("B"))
	// A tab and two spaces are as good as one space, and a checksum can be in capitals.
	sums := sum("a") + "\tlinux.zip\n" + sum("B") + "  darwin.zip\n" + sum("c") + " manifest.json\n"
	answers := map[string]string{}
	status := http.StatusOK
	l.site.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.served = append(l.served, r)
		w.WriteHeader(status)
		if answers[r.URL.Path] == "broken off" {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, answers[r.URL.Path])
	})
	const at = "/hosts/registry.acme.example/v1/providers/acme/widget/1.0.0/download/linux/amd64"
	answers[at], answers["/sums"], answers["/zip"] = document, sums, "content"
	o, err := l.Offer(t.Context(), widget, v, linux)
	if err != nil {
		t.Fatal(err)
	}
	if o.Digest.Encoded() != sum("a") || o.Size != 7 || o.H1.String() != h1("A") || o.ZipHash().String() != "zh:"+sum("a") || len(o.Listed) != 4 {
		t.Errorf("%+v", o)
	}
	if got := fmt.Sprint(o.Signed); got != fmt.Sprintf("[zh:%s zh:%s zh:%s]", sum("a"), sum("b"), sum("c")) {
		t.Errorf("signed: %s", got)
	}
	if err := l.Download(t.Context(), o); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(){
		"refused":                 func() { status = http.StatusUnavailableForLegalReasons },
		"no JSON":                 func() { answers[at] = "<html>" },
		"no size":                 func() { answers[at] = strings.ReplaceAll(document, `"package_size": 7`, `"package_size": 0`) },
		"no such platform":        func() { answers[at] = strings.ReplaceAll(document, "linux_amd64", "linux_arm64") },
		"an unknown hash":         func() { answers[at] = strings.ReplaceAll(document, h1("B"), "h9:B") },
		"no digest":               func() { answers[at] = strings.Replace(document, sum("a"), "a", 1) },
		"a line that is no sum":   func() { answers["/sums"] = "a linux.zip\n" },
		"an empty line":           func() { answers["/sums"] = sums + "\n" },
		"checksums broken off":    func() { answers["/sums"] = "broken off" },
		"a document that is huge": func() { answers[at] = strings.Repeat(" ", maxOfferDocument+1) },
	} {
		status, answers[at], answers["/sums"] = http.StatusOK, document, sums
		change()
		if o, err := l.Offer(t.Context(), widget, v, linux); err == nil {
			t.Errorf("%s: %+v", name, o)
		}
	}
	status, answers[at], answers["/zip"] = http.StatusOK, document, "broken off"
	if err := l.Download(t.Context(), o); !errors.Is(err, ErrNotOffered) {
		t.Errorf("a package that is broken off: %v", err)
	}
	// Nothing is asked about a provider that no template is for.
	l.served = nil
	other := mustAddress(t, "registry.acme.example/other/widget")
	l.Prefetch(t.Context(), other)
	if _, err := l.Offer(t.Context(), other, v, linux); !errors.Is(err, templates.ErrNotSelected) || !errors.Is(err, ErrNotOffered) || len(l.served) > 0 {
		t.Errorf("an excluded provider: %v, %d requests", err, len(l.served))
	}
	l.Prefetch(t.Context(), widget)
	if len(l.served) != 1 || l.served[0].URL.Path != "/hosts/registry.acme.example/v1/providers/acme/widget/versions" {
		t.Errorf("%d requests for the list of versions", len(l.served))
	}
}
