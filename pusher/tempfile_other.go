//go:build !linux

package pusher

import "os"

// namelessFile is for systems that have files without a name.
func namelessFile(string) *os.File { return nil }
