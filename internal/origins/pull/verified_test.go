package pull

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// TestEndOfTheTimeIsNoRefusal shows that, if a deadline ends the verification of a version's signature, the
// version is not refused. The Puller retries after outageTTL, and does not wait for refusalTTL.
func TestEndOfTheTimeIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := puller(t, &source{versions: []string{"1.0.0"}, signer: pgp.For(t, "Acme")}, Options{})
		wait := 2 * metadataTimeout
		p.o.Policy = func(provider.Address) trust.Policy {
			time.Sleep(wait)
			return trust.Policy{}
		}
		complete := func() error {
			_, err := of(p, widget).Complete(t.Context(), provider.MustParseVersion("1.0.0"), nil)
			return err
		}
		if err := complete(); !errors.Is(err, catalog.ErrSource) || trust.Refused(err) {
			t.Errorf("without time: %v", err)
		}
		wait = 0
		time.Sleep(outageTTL)
		if err := complete(); err != nil {
			t.Errorf("asked again: %v", err)
		}
	})
}
