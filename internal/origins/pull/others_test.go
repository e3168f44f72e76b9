package pull

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

// hanging is an origin that offers many platforms, and whose SHA256SUMS lists only the package for linux, or no package. It
// does not answer requests for the other platforms.
type hanging struct {
	locating
	others int
	empty  bool // SHA256SUMS lists no package
	asked  atomic.Int32
}

func (h *hanging) Platforms(context.Context, provider.Address, *origin.Listing, provider.Version) ([]provider.Platform, error) {
	out := []provider.Platform{linux}
	for i := range h.others {
		out = append(out, provider.MustParsePlatform(fmt.Sprintf("linux_other%d", i)))
	}
	return out, nil
}

func (h *hanging) Release(ctx context.Context, a provider.Address, l *origin.Listing, v provider.Version, platforms []provider.Platform) (*origin.Release, error) {
	r, err := h.locating.Release(ctx, a, l, v, platforms)
	if err == nil && h.empty {
		r.Claims.SHA256SUMS = fmt.Appendf(nil, "%x  docs.txt\n", sha256.Sum256(nil))
	}
	return r, err
}

func (h *hanging) Package(ctx context.Context, _ provider.Address, _ provider.Version, _ provider.Platform) (pkg origin.Package, sum [sha256.Size]byte, err error) {
	h.asked.Add(1)
	<-ctx.Done()
	return pkg, sum, ctx.Err()
}

// TestOthersThatHang shows that a version is served although its origin does not answer about other platforms, and that the
// answer takes a third of the time of a version. A version without any package is an outage.
func TestOthersThatHang(t *testing.T) {
	for name, tc := range map[string]struct {
		others int
		empty  bool
		asked  int32
	}{
		"one":              {others: 1, asked: 1},
		"many":             {others: 100, asked: maxOthers},
		"no other package": {others: 1, empty: true, asked: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hanging{locating: locating{&source{versions: []string{"1.0.0"}}}, others: tc.others, empty: tc.empty}
				p := puller(t, &source{}, Options{})
				p.o.Origin = h
				start := time.Now()
				v, err := of(p, widget).Complete(t.Context(), provider.MustParseVersion("1.0.0"), nil)
				if took := time.Since(start); took != metadataTimeout/3 {
					t.Errorf("it took %s", took)
				}
				if n := h.asked.Load(); n != tc.asked {
					t.Errorf("%d requests", n)
				}
				switch {
				case tc.empty && !errors.Is(err, catalog.ErrSource):
					t.Errorf("%v", err)
				case !tc.empty && (err != nil || len(v.Packages) != 1 || v.Packages[0].Platform != linux):
					t.Errorf("%+v, %v", v, err)
				}
			})
		})
	}
}
