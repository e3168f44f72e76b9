package cost

import "errors"

// ErrEnough is the error of a [Meter].
var ErrEnough = errors.New("enough")

// Meter counts the bytes of a fetch, and fails if there are more than it allows. It is a gitfiles.Meter.
type Meter struct {
	MayReceive, MayUnpack int64
	Wire, Disk            int64 // the bytes that were received and unpacked
}

// Received counts bytes that the server has sent.
func (m *Meter) Received(n int64) error {
	if m.Wire += n; m.Wire > m.MayReceive {
		return ErrEnough
	}
	return nil
}

// Unpacked counts bytes of files.
func (m *Meter) Unpacked(n int64) error {
	if m.Disk += n; m.Disk > m.MayUnpack {
		return ErrEnough
	}
	return nil
}
