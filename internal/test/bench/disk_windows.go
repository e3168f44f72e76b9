package main

import "io/fs"

// onDisk returns a number for each file, and its size.
func onDisk(info fs.FileInfo) (id uint64, bytes int64) {
	files++
	return files, info.Size()
}

var files uint64
