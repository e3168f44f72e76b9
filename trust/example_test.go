package trust_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// The zero policy accepts only signed releases.
func ExamplePolicy_Accept() {
	_, err := trust.Policy{}.Accept(context.Background(), trust.Claims{
		Provider:   provider.MustParseAddress("registry.acme.example/acme/widget"),
		Version:    provider.MustParseVersion("1.0.0"),
		SHA256SUMS: []byte("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  terraform-provider-widget_1.0.0_linux_amd64.zip\n"),
	})
	fmt.Println(errors.Is(err, trust.ErrUnsigned), trust.Refused(err))
	// Output: true true
}
