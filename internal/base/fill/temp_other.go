//go:build !linux

package fill

import "os"

// namelessFile returns nil, because only Linux can create files without a name.
func namelessFile(string) *os.File { return nil }
