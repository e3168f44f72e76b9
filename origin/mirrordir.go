package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// MirrorDir is a folder that "tofu providers mirror" or "terraform providers mirror" has
// written, in the packed layout:
//
//	HOSTNAME/NAMESPACE/TYPE/index.json
//	HOSTNAME/NAMESPACE/TYPE/VERSION.json
//	HOSTNAME/NAMESPACE/TYPE/terraform-provider-TYPE_VERSION_OS_ARCH.zip
//
// No file outside the folder is read, even if a link or a URL in the folder points to it.
type MirrorDir struct {
	mirror
	root *os.Root
}

const (
	helpMirrorDir = "name the folder that was given to tofu providers mirror or terraform providers mirror; a folder of unpacked providers, such as a plugin cache, cannot be checked"
	helpRewrite   = "the folder is incomplete or damaged: run providers mirror again"
)

// OpenMirrorDir opens a mirror folder. The caller must close it after the last package is read.
func OpenMirrorDir(dir string) (*MirrorDir, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("mirror folder: %w", err), helpMirrorDir)
	}
	m := &MirrorDir{root: root}
	m.mirror = mirror{files: m, origin: "mirror folder", strict: true, help: helpRewrite, empty: helpRewrite}
	return m, nil
}

// Close releases the folder.
func (m *MirrorDir) Close() error { return m.root.Close() }

// Releases returns every version of every provider in the folder, with the given
// platforms, or with all platforms if none is given. It returns an error if a version
// lacks one of the given platforms, or if the folder has no versions.
func (m *MirrorDir) Releases(ctx context.Context, platforms []provider.Platform) ([]*Release, error) {
	indexes, err := fs.Glob(m.root.FS(), "*/*/*/index.json")
	if err != nil {
		return nil, err
	}
	if len(indexes) == 0 {
		return nil, hint.New(fmt.Sprintf("mirror folder %s holds no HOSTNAME/NAMESPACE/TYPE/index.json", m.root.Name()), helpMirrorDir)
	}
	var out []*Release
	for _, index := range indexes {
		parts := strings.Split(index, "/")
		a, err := provider.AddressFromURL(parts[0], parts[1], parts[2])
		if err != nil {
			return nil, hint.Wrap(fmt.Errorf("mirror folder: %w", err), helpMirrorDir)
		}
		l, err := m.Versions(ctx, a)
		if err != nil {
			return nil, err
		}
		for _, v := range l.Versions {
			r, err := m.Release(ctx, a, l, v, platforms)
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		return nil, hint.New(fmt.Sprintf("mirror folder %s lists no version of any provider", m.root.Name()), helpRewrite)
	}
	return out, nil
}

// dir returns the folder of a provider. Like clients, it uses the hostname in Unicode. If there
// is no such folder, it uses the hostname in Punycode.
func (m *MirrorDir) dir(a provider.Address) string {
	if _, err := m.root.Stat(a.String()); err == nil {
		return a.String()
	}
	return a.Path()
}

// get implements [mirrorFiles].
func (m *MirrorDir) get(_ context.Context, a provider.Address, name string, limits document.Limits, out any, notFound error) (mirrorDocument, error) {
	name = path.Join(m.dir(a), name)
	from := mirrorDocument{at: "mirror folder: " + name}
	f, _, err := openFile(m.root, name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", notFound, err)
		}
		return from, hint.Wrap(fmt.Errorf("mirror folder: %w", err), helpRewrite)
	}
	defer f.Close()
	data, err := document.ReadAll(f, limits.Bytes)
	if err == nil {
		err = limits.Unmarshal(data, out)
	}
	return from, m.invalid(from, err)
}

// locate implements [mirrorFiles]. The package must be next to its document, under its
// published name.
func (m *MirrorDir) locate(_ mirrorDocument, a provider.Address, v provider.Version, p provider.Platform, entry mirrorArchive) (Package, error) {
	filename := provider.PackageFilename(a, v, p)
	if entry.URL != filename || !provider.ValidFilename(filename) {
		return Package{}, hint.New(fmt.Sprintf("the package is at %.200q, not at %s", entry.URL, filename),
			"only packages beside their JSON, named as providers mirror names them, are read from a folder")
	}
	name := path.Join(m.dir(a), filename)
	size, err := fileSize(m.root, name)
	if err != nil {
		return Package{}, err
	}
	return Package{
		Platform: p, Filename: filename,
		Open:         func(context.Context) (io.ReadCloser, int64, error) { return openFile(m.root, name) },
		Size:         func(context.Context) int64 { return size },
		MismatchHint: "the package was changed or damaged after providers mirror wrote the folder, or OpenTofu mixed up the hashes of several versions, as some releases do: run providers mirror again, for each version into a folder of its own",
	}, nil
}

// fileSize returns the size of a regular file in bytes, or an error for any other file.
func fileSize(root *os.Root, name string) (int64, error) {
	info, err := root.Stat(name)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, files.Cause(err))
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is no regular file", name)
	}
	return info.Size(), nil
}

// openFile opens a regular file for reading.
func openFile(root *os.Root, name string) (io.ReadCloser, int64, error) {
	f, size, err := files.OpenRegular(root, name)
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, 0, fmt.Errorf("%s: %w", name, files.Cause(err))
	}
	return f, size, err
}
