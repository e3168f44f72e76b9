//go:build !linux

package fill

import "os"

// namelessFile returns nil: only Linux creates files without a name.
func namelessFile(string) *os.File { return nil }
