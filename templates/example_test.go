package templates_test

import (
	"fmt"

	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

// A template maps each provider that its selector includes to a repository.
func ExampleTemplate_Repository() {
	ours := provider.Selector{Include: []provider.Pattern{provider.MustParsePattern("registry.acme.example/*/*")}}
	t, err := templates.Parse("ghcr.io/acme/providers/${namespace}/${type}", ours)
	if err != nil {
		panic(err)
	}
	fmt.Println(t.Repository(provider.MustParseAddress("registry.acme.example/platform/widget")))
	// Output: ghcr.io/acme/providers/platform/widget <nil>
}
