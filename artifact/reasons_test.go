package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/trust"
)

// TestReasons shows for each error whether it is about content, and whether the content
// stays invalid.
func TestReasons(t *testing.T) {
	for _, tt := range []struct {
		err              error
		content, invalid bool
	}{
		{ErrNotProvider, true, true},
		{ErrAmbiguous, true, true},
		{ErrTooLarge, true, true},
		{ErrForeign, true, true},
		{ErrMissing, true, false},
		{fmt.Errorf("%w: %w", ErrNotProvider, ErrMissing), true, false},
		{ErrDamaged, true, false},
		{ErrNothingToCheck, false, false},
		{ErrTagsBrokeOff, false, false},
		{trust.ErrSignature, false, false},
		{errdef.ErrNotFound, false, false},
		{errors.New("connection refused"), false, false},
		{nil, false, false},
	} {
		wrapped := tt.err
		if tt.err != nil {
			wrapped = fmt.Errorf("%w: %s", tt.err, strings.Repeat("x", 1<<20))
		}
		for name, err := range map[string]error{"plain": tt.err, "wrapped": wrapped, "brief": Brief(wrapped, errdef.ErrNotFound)} {
			if IsContent(err) != tt.content || IsInvalid(err) != tt.invalid {
				t.Errorf("%v, %s: content %t, invalid %t, want %t and %t", tt.err, name, IsContent(err), IsInvalid(err), tt.content, tt.invalid)
			}
		}
	}
}

// TestBriefWrapsReasons shows that an error that Brief has shortened still wraps its
// reason.
func TestBriefWrapsReasons(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, reason := range []error{
		ErrNotProvider, ErrMissing, ErrAmbiguous, ErrTooLarge, ErrForeign, ErrDamaged, ErrNothingToCheck,
		trust.ErrUnsigned, trust.ErrSignature, trust.ErrChecksum, trust.ErrNotListed, fs.ErrExist,
	} {
		brief := Brief(fmt.Errorf("%w: %s", reason, long), fs.ErrExist)
		if !errors.Is(brief, reason) || len(brief.Error()) > 4<<10 {
			t.Errorf("%v: it is not wrapped by a short error", reason)
		}
	}
}
