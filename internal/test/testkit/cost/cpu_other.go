//go:build !linux

package cost

import "time"

// cpu returns 0: only tests for Linux start children.
func cpu() time.Duration { return 0 }
