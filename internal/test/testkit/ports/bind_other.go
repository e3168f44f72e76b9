//go:build !unix

package ports

import (
	"errors"
	"net/netip"
)

func bind(netip.AddrPort) (release func(), err error) { return nil, errors.ErrUnsupported }
