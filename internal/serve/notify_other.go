//go:build !linux

package serve

import "time"

func (manager) send(...string) error { return nil }

func monotonic() string { return "" }

func (manager) watchdogInterval() time.Duration { return 0 }
