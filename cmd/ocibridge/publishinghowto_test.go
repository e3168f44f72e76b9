package main

import (
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/howto"
	"github.com/ocibridge/ocibridge/internal/testkit/registry"
)

// TestPublishingHowTo runs docs/howto/publishing.md with the real gpg. Both clients install what it publishes.
func TestPublishingHowTo(t *testing.T) {
	server := registry.For(t, registry.Options{})
	howto.Run{
		Page:    "publishing",
		Replace: []string{"ghcr.io", server.Host},
		After:   "gpgconf --kill all",
		// Nothing listens at the proxy, so that no client looks for the provider's host.
		Env: []string{"GHCR_TOKEN=pass-w0rd", "HTTPS_PROXY=http://127.0.0.1:1"},
	}.Do(t)
}
