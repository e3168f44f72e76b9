package provider_test

import (
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/provider"
)

func TestAboutNormal(t *testing.T) {
	for given, want := range map[provider.About]provider.About{
		{}: {},
		{Source: "https://git.example/acme/widget", PublishedAt: "2026-01-02T03:04:05Z"}:       {Source: "https://git.example/acme/widget", PublishedAt: "2026-01-02T03:04:05Z"},
		{Source: "http://git.example:8080/acme", PublishedAt: "2026-01-02T03:04:05.678+02:00"}: {Source: "http://git.example:8080/acme", PublishedAt: "2026-01-02T01:04:05Z"},
		{Source: "javascript:alert(1)", PublishedAt: "2026-01-02"}:                             {},
		{Source: "/acme/widget", PublishedAt: "now"}:                                           {},
		{Source: "https://user:secret@git.example/acme"}:                                       {},
		{Source: "https:///acme"}:                                                              {},
		{Source: "https://git.example/\nacme"}:                                                 {},
		{Source: "ssh://git.example/acme"}:                                                     {},
		{Source: "https://git.example/" + strings.Repeat("a", 500)}:                            {},
		{PublishedAt: "2026-01-02T03:04:05." + strings.Repeat("0", 100) + "Z"}:                 {},
		{PublishedAt: "9999-12-31T23:59:59-23:59"}:                                             {},
	} {
		if got := given.Normal(); got != want {
			t.Errorf("%+v: %+v, want %+v", given, got, want)
		} else if again := got.Normal(); again != got {
			t.Errorf("%+v changes to %+v", got, again)
		}
	}
}
