package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/ocibridge/ocibridge/internal/document"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// MirrorDir is a folder that "tofu providers mirror" or "terraform providers mirror" has
// written, in the packed layout:
//
//	HOSTNAME/NAMESPACE/TYPE/index.json
//	HOSTNAME/NAMESPACE/TYPE/VERSION.json
//	HOSTNAME/NAMESPACE/TYPE/terraform-provider-TYPE_VERSION_OS_ARCH.zip
//
// It has hashes of its packages, but no signature. Nothing outside the folder is read,
// wherever its links and URLs point.
type MirrorDir struct {
	root *os.Root
}

// OpenMirrorDir opens a mirror folder. The caller closes it after the last
// package is read.
func OpenMirrorDir(dir string) (*MirrorDir, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("mirror folder: %w", err), helpMirrorDir)
	}
	return &MirrorDir{root}, nil
}

// Close releases the folder.
func (m *MirrorDir) Close() error { return m.root.Close() }

const (
	helpMirrorDir = "name the folder that was given to tofu providers mirror or terraform providers mirror; a folder of unpacked providers, such as a plugin cache, cannot be checked"
	helpRewrite   = "the folder is incomplete or damaged: run providers mirror again"
)

// Releases returns every version of every provider in the folder, with the given
// platforms, or with all platforms if none is given. It returns an error if a version
// lacks one of the given platforms, or if the folder has no versions.
func (m *MirrorDir) Releases(platforms []provider.Platform) ([]*Release, error) {
	indexes, err := fs.Glob(m.root.FS(), "*/*/*/index.json")
	if err != nil {
		return nil, err
	}
	if len(indexes) == 0 {
		return nil, hint.New(fmt.Sprintf("mirror folder %s holds no HOSTNAME/NAMESPACE/TYPE/index.json", m.root.Name()),
			helpMirrorDir)
	}
	var out []*Release
	for _, index := range indexes {
		releases, err := m.provider(path.Dir(index), platforms)
		if err != nil {
			return nil, fmt.Errorf("mirror folder: %w", err)
		}
		out = append(out, releases...)
	}
	if len(out) == 0 {
		return nil, hint.New(fmt.Sprintf("mirror folder %s lists no version of any provider", m.root.Name()), helpRewrite)
	}
	return out, nil
}

// provider returns the releases in a provider's folder, oldest first.
func (m *MirrorDir) provider(dir string, platforms []provider.Platform) (out []*Release, err error) {
	a, err := provider.ParseAddress(dir)
	if err != nil {
		return nil, hint.Wrap(err, helpMirrorDir)
	}
	l, err := m.listing(dir)
	if err != nil {
		return nil, err
	}
	for _, v := range l.Versions {
		r, err := m.release(dir, a, v, l, platforms)
		if err != nil {
			return nil, fmt.Errorf("%s/%s.json: %w", dir, v, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// Versions implements [Source].
func (m *MirrorDir) Versions(_ context.Context, a provider.Address) (*Listing, error) {
	if _, err := m.root.Stat(path.Join(a.Path(), "index.json")); errors.Is(err, fs.ErrNotExist) {
		return nil, hint.Wrap(fmt.Errorf("mirror folder %s: %s: %w", m.root.Name(), a, ErrProviderNotFound), helpMirrorDir)
	}
	l, err := m.listing(a.Path())
	if err != nil {
		return nil, fmt.Errorf("mirror folder: %w", err)
	}
	return l, nil
}

// Platforms implements [Source].
func (m *MirrorDir) Platforms(_ context.Context, _ provider.Address, l *Listing, v provider.Version) ([]provider.Platform, error) {
	return l.platforms[v], nil
}

// Release implements [Source].
func (m *MirrorDir) Release(_ context.Context, a provider.Address, l *Listing, v provider.Version, want []provider.Platform) (*Release, error) {
	if l.contents[v] == nil {
		return nil, fmt.Errorf("mirror folder: %s %s: %w", a, v, ErrVersionNotFound)
	}
	r, err := m.release(a.Path(), a, v, l, want)
	if err != nil {
		return nil, fmt.Errorf("mirror folder: %s/%s.json: %w", a.Path(), v, err)
	}
	return r, nil
}

// listing reads the documents in a provider's folder.
func (m *MirrorDir) listing(dir string) (*Listing, error) {
	var index mirrorIndex
	if err := m.readJSON(path.Join(dir, "index.json"), indexLimits, &index); err != nil {
		return nil, err
	}
	if err := index.check(); err != nil {
		return nil, hint.Replace(fmt.Errorf("%s/index.json: %w", dir, err), helpRewrite)
	}
	l := &Listing{platforms: map[provider.Version][]provider.Platform{}, contents: mirrorContents{}}
	for s := range index.Versions.value {
		v, err := provider.ParseVersion(s)
		if err != nil {
			return nil, hint.Wrap(fmt.Errorf("%s/index.json: %w", dir, err), helpRewrite)
		}
		name, document := path.Join(dir, s+".json"), &mirrorVersion{}
		if err := m.readJSON(name, versionLimits, document); err != nil {
			return nil, err
		}
		if err := document.check(); err != nil {
			return nil, hint.Wrap(fmt.Errorf("%s: %w", name, err), helpRewrite)
		}
		platforms, ignored := document.knownPlatforms()
		if len(ignored) > 0 {
			return nil, hint.New(fmt.Sprintf("%s: invalid platform %s", name, ignored), helpRewrite)
		}
		l.Versions = append(l.Versions, v)
		l.platforms[v], l.contents[v] = platforms, document
	}
	provider.SortVersions(l.Versions)
	return l, nil
}

func (m *MirrorDir) readJSON(name string, limits document.Limits, out any) error {
	f, _, err := openFile(m.root, name)
	if err != nil {
		return hint.Wrap(err, helpRewrite)
	}
	defer f.Close()
	data, err := document.ReadAll(f, limits.Bytes)
	if err == nil {
		err = limits.Unmarshal(data, out)
	}
	if err != nil {
		return hint.Wrap(fmt.Errorf("%s: %w", name, err), helpRewrite)
	}
	return nil
}

// release returns one of the listed versions. The folder may have only some platforms of
// the version, so a push from a folder is always partial.
func (m *MirrorDir) release(dir string, a provider.Address, v provider.Version, l *Listing, want []provider.Platform) (*Release, error) {
	if len(l.platforms[v]) == 0 {
		return nil, hint.New("it lists no package", helpRewrite)
	}
	platforms, _, err := selectPlatforms(a, v, l.platforms[v], want)
	if err != nil {
		return nil, err
	}
	r := &Release{Origin: "mirror folder", Partial: true, Claims: trust.Claims{Provider: a, Version: v, Hashes: map[string][]provider.Hash{}}}
	for _, p := range platforms {
		archive := l.contents[v].Archives[p.String()]
		hashes, err := archive.check(provider.PackageFilename(a, v, p))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		r.Claims.Hashes[archive.URL] = hashes
		if len(hashes) == 0 {
			r.Warnings = append(r.Warnings, fmt.Sprintf("the JSON gives no hash of the package for %s: %s", p, unchecked))
		}
		pkg, err := m.newPackage(p, path.Join(dir, archive.URL))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		if other, ok := l.contents.another(v, p.String(), archive.Hashes); ok {
			pkg.MismatchHint = fmt.Sprintf("its JSON gives for %s the hashes of version %s: some OpenTofu releases mix them up in a folder with several versions of a provider; mirror each version into a folder of its own and push those", v, other)
		}
		r.Packages = append(r.Packages, pkg)
	}
	return r, nil
}

// newPackage returns the package in a file, which must exist.
func (m *MirrorDir) newPackage(p provider.Platform, name string) (Package, error) {
	if err := checkFile(m.root, name); err != nil {
		return Package{}, hint.Wrap(err, helpRewrite)
	}
	return Package{
		Platform: p, Filename: path.Base(name),
		Open: func(context.Context) (io.ReadCloser, int64, error) {
			return openFile(m.root, name)
		},
		Size: func(context.Context) int64 {
			info, err := m.root.Stat(name)
			if err != nil {
				return -1
			}
			return info.Size()
		},
		MismatchHint: "the package was changed or damaged after providers mirror wrote the folder: run it again",
	}, nil
}

// checkFile returns an error unless name is a regular file.
func checkFile(root *os.Root, name string) error {
	info, err := root.Stat(name)
	if err != nil {
		return fileError(name, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", name)
	}
	return nil
}

// fileError returns err with the file name that users know, and without the system call.
func fileError(name string, err error) error {
	var perr *fs.PathError
	if errors.As(err, &perr) {
		err = perr.Err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// openFile opens a regular file for reading.
func openFile(root *os.Root, name string) (io.ReadCloser, int64, error) {
	// This comes first, because opening a pipe would block until something writes to it.
	if err := checkFile(root, name); err != nil {
		return nil, 0, err
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, 0, fileError(name, err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, fileError(name, err)
	}
	return f, info.Size(), nil
}
