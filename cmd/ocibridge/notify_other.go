//go:build !linux

package main

import "time"

func notifyManager(...string) error { return nil }

func monotonic() string { return "" }

func watchdogInterval() time.Duration { return 0 }
