package pusher

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/internal/document"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// mirrorLimits bound the existing JSON files of a mirror folder.
var mirrorLimits = document.Limits{Bytes: 8 << 20, Values: 400_000, Elements: 10_000}

// mirrorPush writes one release into a mirror folder.
type mirrorPush struct {
	*Pusher
	release *origin.Release
	sums    *trust.Checksums
	root    *os.Root
	dir     string // of the provider, relative to root, with slashes

	mu       sync.Mutex
	archives map[string]mirrorArchive // of VERSION.json, by platform
}

// mirrorArchive is a package in VERSION.json. Clients write its fields in this order.
type mirrorArchive struct {
	Hashes []string `json:"hashes"`
	URL    string   `json:"url"`
}

type mirrorVersion struct {
	Archives map[string]mirrorArchive `json:"archives"`
}

type mirrorIndex struct {
	Versions map[string]json.RawMessage `json:"versions"`
}

// Mirror writes a release into a mirror folder, in the packed layout and with the JSON that
// "tofu providers mirror" writes. Clients use the folder as a filesystem_mirror, or as a
// network mirror on a web server. Mirror adds packages, then the version's JSON, and then the
// list of versions. It removes nothing. An existing package with other content is a conflict.
//
// Mirror writes only verified packages. The folder stores no evidence.
func (p *Pusher) Mirror(ctx context.Context, root *os.Root, r *origin.Release) (*Result, error) {
	sums, err := p.accept(ctx, r)
	if err != nil {
		return nil, err
	}
	m := &mirrorPush{Pusher: p, release: r, sums: sums, root: root, dir: r.Provider().Path()}
	// 1. Read the existing JSON.
	var version mirrorVersion
	if err := m.readJSON(r.Version().String(), &version); err != nil {
		return nil, err
	}
	index := mirrorIndex{Versions: map[string]json.RawMessage{}}
	if err := m.readJSON("index", &index); err != nil {
		return nil, err
	}
	if m.archives = version.Archives; m.archives == nil {
		m.archives = map[string]mirrorArchive{}
	}
	before := len(m.archives)
	if err := root.MkdirAll(m.dir, 0o755); err != nil {
		return nil, err
	}
	// 2. Write packages.
	packages, err := m.writePackages(ctx)
	if err != nil {
		return nil, err
	}
	// 3. Write the version, and the list of versions.
	if err := m.writeJSON(r.Version().String(), mirrorVersion{m.archives}); err != nil {
		return nil, err
	}
	index.Versions[r.Version().String()] = json.RawMessage("{}")
	if err := m.writeJSON("index", index); err != nil {
		return nil, err
	}
	return m.result(before, packages), nil
}

func (m *mirrorPush) result(before int, packages []PackageResult) *Result {
	status := Unchanged
	switch {
	case before == 0:
		status = Pushed
	case len(m.archives) > before || slices.ContainsFunc(packages, func(p PackageResult) bool { return p.Sent }):
		status = Completed
	}
	tag, _ := ociaddr.VersionTag(m.release.Version()) // it cannot fail for a version of a release
	out := &Result{
		Provider: m.release.Provider(), Version: m.release.Version(), Tag: tag, Status: status,
		Repository: ociaddr.Repository{Registry: ociaddr.Registry("mirror:" + m.root.Name()), Name: m.dir},
		Verdict:    m.sums.Verdict(), Fingerprint: m.sums.Signer().Fingerprint,
		Packages: packages, Warnings: slices.Clone(m.release.Warnings),
	}
	out.warnExpired(m.sums.Signer())
	return out
}

// writePackages writes the packages into the folder, several at once.
func (m *mirrorPush) writePackages(ctx context.Context) ([]PackageResult, error) {
	out := make([]PackageResult, len(m.release.Packages))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(m.o.Jobs)
	for i, pkg := range m.release.Packages {
		g.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			accepted, sent, err := m.writePackage(ctx, pkg)
			if err != nil {
				return fmt.Errorf("%s %s for %s: %w", m.release.Provider(), m.release.Version(), pkg.Platform, err)
			}
			sum := accepted.Sum()
			out[i] = PackageResult{
				Platform: pkg.Platform, Filename: m.filename(pkg), Size: accepted.Size(), H1: accepted.H1(), Sent: sent,
				Digest: fmt.Sprintf("sha256:%x", sum),
			}
			return nil
		})
	}
	return out, g.Wait()
}

// filename returns the file name that clients request for a package.
func (m *mirrorPush) filename(pkg origin.Package) string {
	return provider.PackageFilename(m.release.Provider(), m.release.Version(), pkg.Platform)
}

// writePackage writes one package into the folder, unless the folder has it.
func (m *mirrorPush) writePackage(ctx context.Context, pkg origin.Package) (accepted trust.Package, written bool, err error) {
	name := path.Join(m.dir, m.filename(pkg))
	if info, err := m.root.Stat(name); err == nil && !info.Mode().IsRegular() {
		return accepted, false, fmt.Errorf("%s is no regular file", name)
	}
	f, err := m.root.Open(name)
	switch {
	case err == nil:
		defer f.Close()
		accepted, err = m.verify(ctx, pkg, f, io.Discard, f, -1, func(int) {})
		if errors.Is(err, trust.ErrChecksum) {
			return accepted, false, m.conflict("the folder has another package under its name: " + err.Error())
		}
		if err == nil {
			m.event(pkg.Platform, StagePresent, 0, accepted.Size())
			err = m.addEntry(pkg, accepted)
		}
		return accepted, false, err
	case !errors.Is(err, fs.ErrNotExist):
		return accepted, false, err
	}
	accepted, err = m.fetch(ctx, pkg, name)
	return accepted, true, err
}

func (m *mirrorPush) event(p provider.Platform, stage Stage, n int, total int64) {
	m.o.OnEvent(Event{m.release.Provider(), m.release.Version(), p, stage, n, total})
}

func (m *mirrorPush) conflict(what string) error {
	return hint.Wrap(fmt.Errorf("%w: %s", ErrConflict, what),
		"what is there was left as it is; find out which of them is right, and remove the wrong one")
}

// fetch reads a package into a temporary file, and renames the file once the package is
// verified.
func (m *mirrorPush) fetch(ctx context.Context, pkg origin.Package, name string) (accepted trust.Package, err error) {
	body, size, err := pkg.Open(ctx)
	if err != nil {
		return accepted, err
	}
	defer body.Close()
	temp := path.Join(m.dir, ".ocibridge-"+rand.Text())
	f, err := m.root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return accepted, err
	}
	defer func() {
		f.Close()
		if err != nil {
			m.root.Remove(temp)
		}
	}()
	m.event(pkg.Platform, StageFetch, 0, size)
	report := func(n int) { m.event(pkg.Platform, StageFetch, n, size) }
	if accepted, err = m.verify(ctx, pkg, body, f, f, size, report); err != nil {
		if errors.Is(err, trust.ErrChecksum) && pkg.MismatchHint != "" {
			err = hint.Replace(err, "%s", pkg.MismatchHint)
		}
		return accepted, err
	}
	if err = m.addEntry(pkg, accepted); err != nil {
		return accepted, err
	}
	if err = f.Sync(); err != nil {
		return accepted, err
	}
	if err = f.Close(); err != nil {
		return accepted, err
	}
	if err = m.root.Rename(temp, name); err == nil {
		m.event(pkg.Platform, StageDone, 0, accepted.Size())
	}
	return accepted, err
}

// verify copies a package, and accepts it. It reads the copy again through content. The size
// is -1 if it is unknown.
func (m *mirrorPush) verify(ctx context.Context, pkg origin.Package, src io.Reader, dst io.Writer, content io.ReaderAt, size int64, report func(int)) (trust.Package, error) {
	verifier, err := m.sums.Verifier(pkg.Platform, pkg.Filename)
	if err != nil {
		return trust.Package{}, err
	}
	limit := int64(maxPackageBytes)
	if size >= 0 && size < limit {
		limit = size
	}
	n, err := io.Copy(io.MultiWriter(dst, verifier, reporter(report)), io.LimitReader(src, limit+1))
	switch {
	case err != nil:
		return trust.Package{}, fmt.Errorf("read %s: %w", pkg.Filename, err)
	case n > limit:
		return trust.Package{}, hint.Wrap(fmt.Errorf("read %s: %w: more than %d bytes", pkg.Filename, ErrTooLong, limit), "it is not what it is said to be")
	case n < size:
		return trust.Package{}, hint.Wrap(fmt.Errorf("read %s: %w after %d of %d bytes", pkg.Filename, ErrTruncated, n, size), "run it again")
	}
	return verifier.Accept(ctx, content)
}

// addEntry adds a package to the version's JSON. It keeps an existing entry for the same
// package.
func (m *mirrorPush) addEntry(pkg origin.Package, p trust.Package) error {
	hashes := []string{provider.ZipHash(p.Sum()).String()}
	if !p.H1().IsZero() {
		hashes = append(hashes, p.H1().String())
	}
	slices.Sort(hashes)
	m.mu.Lock()
	defer m.mu.Unlock()
	there, ok := m.archives[pkg.Platform.String()]
	switch {
	case !ok:
		m.archives[pkg.Platform.String()] = mirrorArchive{hashes, m.filename(pkg)}
	case there.URL != m.filename(pkg):
		return m.conflict(fmt.Sprintf("%s.json has the package at %.200q", m.release.Version(), there.URL))
	case !slices.ContainsFunc(there.Hashes, func(h string) bool { return slices.Contains(hashes, h) }):
		return m.conflict(fmt.Sprintf("%s.json gives it the hashes %.200q, but it has %q", m.release.Version(), there.Hashes, hashes))
	}
	return nil
}

// readJSON reads NAME.json of the provider, if it exists.
func (m *mirrorPush) readJSON(name string, out any) error {
	file := path.Join(m.dir, name+".json")
	data, err := m.readFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		err = mirrorLimits.Unmarshal(data, out)
	}
	if err != nil {
		return hint.Wrap(fmt.Errorf("mirror folder: %s: %w", file, err), "repair or remove it; nothing was written")
	}
	return nil
}

func (m *mirrorPush) readFile(name string) ([]byte, error) {
	info, err := m.root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	f, err := m.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return document.ReadAll(f, mirrorLimits.Bytes)
}

// writeJSON replaces NAME.json of the provider by a rename, unless it has the content already.
func (m *mirrorPush) writeJSON(name string, content any) error {
	data, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	file := path.Join(m.dir, name+".json")
	if now, err := m.readFile(file); err == nil && bytes.Equal(now, data) {
		return nil
	}
	temp := path.Join(m.dir, ".ocibridge-"+rand.Text())
	if err := m.root.WriteFile(temp, data, 0o644); err != nil {
		return err
	}
	if err := m.root.Rename(temp, file); err != nil {
		m.root.Remove(temp)
		return err
	}
	return nil
}
