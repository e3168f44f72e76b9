package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"os"
	"slices"
	"strings"
	"time"
)

// entry is a file in an archive.
type entry struct {
	name string
	mode os.FileMode
	data []byte
}

func sorted(entries []entry) []entry {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return entries
}

// tarball packs entries below a folder, sorted. All entries belong to root and have the
// same time.
func tarball(folder string, entries []entry, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	w := tar.NewWriter(packed)
	for _, e := range sorted(entries) {
		if err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: folder + "/" + e.name, Mode: int64(e.mode), Size: int64(len(e.data)), ModTime: at,
			Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
		}); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	err := packed.Close()
	return out.Bytes(), err
}

// zipfile packs the same entries as a zip file. It rounds the time down to even seconds,
// as zip files require.
func zipfile(folder string, entries []entry, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, e := range sorted(entries) {
		header := &zip.FileHeader{Name: folder + "/" + e.name, Method: zip.Deflate, Modified: at.UTC().Truncate(2 * time.Second)}
		header.SetMode(e.mode)
		f, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
