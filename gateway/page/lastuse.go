package page

import (
	"time"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

// lastUseView says when clients last used a version, as far as this gateway knows.
type lastUseView struct {
	At       time.Time // the last use, or the zero time if this process knows of none since Since
	Recorded time.Time // if At is zero: a use that the registry has recorded before; the last use can be later; zero if unknown
	Since    time.Time
}

// lastUse describes the last use of a version, or returns nil if the gateway does not remember uses.
func (p *page) lastUse(a subject.Address, v provider.Version) *lastUseView {
	if p.LastUses == nil {
		return nil
	}
	out := &lastUseView{}
	out.At, out.Since = p.LastUses.Last(a, v)
	if p.Recorded == nil {
		return out
	}
	switch recorded := p.Recorded(a, v); {
	case recorded.After(out.At) && recorded.After(out.Since):
		out.At = recorded
	case out.At.IsZero():
		out.Recorded = recorded
	}
	return out
}
