package main

import (
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/ocibridge/ocibridge/internal/privatefolder"
)

// keepPrivate takes the folder directly below the data folder that path lies in, and
// makes it or narrows it to mode 0700. It does nothing if path lies elsewhere.
func (f *registryFlags) keepPrivate(path string, log *slog.Logger) error {
	data, err := f.dataDir()
	if err != nil {
		return nil // there is no data folder
	}
	if data, err = filepath.Abs(data); err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	below, err := filepath.Rel(data, path)
	if err != nil || below == "." || !filepath.IsLocal(below) {
		return nil // the data folder itself, or a path outside of it
	}
	first, _, _ := strings.Cut(below, string(filepath.Separator))
	return privatefolder.Make(filepath.Join(data, first), log)
}
