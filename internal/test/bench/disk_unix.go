//go:build !windows

package main

import (
	"io/fs"
	"syscall"
)

// onDisk returns the number of a file, and the bytes that it takes on the disk.
func onDisk(info fs.FileInfo) (id uint64, bytes int64) {
	s := info.Sys().(*syscall.Stat_t)
	return uint64(s.Ino), int64(s.Blocks) * 512
}
