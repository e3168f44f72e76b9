// Package accepted provides packages that a trust policy for unsigned versions has accepted.
package accepted

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Package returns content as a provider's package with its usual file name, and the checksums of the version.
func Package(tb testkit.TB, a provider.Address, v provider.Version, p provider.Platform, content []byte) (trust.Package, *trust.Checksums) {
	tb.Helper()
	return Named(tb, a, v, p, provider.PackageFilename(a, v, p), content)
}

// Named is like [Package], with another file name.
func Named(tb testkit.TB, a provider.Address, v provider.Version, p provider.Platform, name string, content []byte) (trust.Package, *trust.Checksums) {
	tb.Helper()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatalf("accept %s: %v", name, err)
		}
	}
	ctx := context.Background()
	sums, err := trust.Policy{AllowUnsigned: true}.Accept(ctx, trust.Claims{
		Provider: a, Version: v, SHA256SUMS: fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(content), name),
	})
	must(err)
	verifier, err := sums.Verifier(p, name)
	must(err)
	verifier.Write(content)
	pkg, err := verifier.Accept(ctx, bytes.NewReader(content))
	must(err)
	return pkg, sums
}
