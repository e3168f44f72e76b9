package trust

import (
	"context"

	"github.com/ProtonMail/go-crypto/openpgp"
)

var ErrTooLarge = errTooLarge

const (
	MaxKeys             = maxKeys
	MaxKeyBytes         = maxKeyBytes
	MaxPackets          = maxPackets
	MaxSignatures       = maxSignatures
	MaxKeyPackets       = maxKeyPackets
	MaxUserIDBytes      = maxUserIDBytes
	MaxSignaturePackets = maxSignaturePackets
	MaxCost             = maxCost
	MaxArmourLine       = maxArmourLine
)

// HoldSlots takes every slot until release is called.
func HoldSlots() (release func()) {
	for range cap(slots) {
		slots <- struct{}{}
	}
	return func() {
		for range cap(slots) {
			<-slots
		}
	}
}

// ReadPackets reads the packets of an unarmoured block of public keys, within the limits for
// a release.
func ReadPackets(ctx context.Context, body []byte) (openpgp.EntityList, error) {
	var l load
	keys, err := l.walk(ctx, body)
	if err != nil {
		return nil, err
	}
	r := ring{keys: keys}
	if err := checkCost([]ring{r}, nil); err != nil {
		return nil, err
	}
	return r.entities(ctx)
}
