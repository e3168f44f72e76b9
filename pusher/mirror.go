package pusher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// mirrorLimits are the limits for reading the existing JSON files of a mirror folder.
var mirrorLimits = document.Limits{Bytes: 8 << 20, Values: 400_000, Elements: 10_000}

// mirrorPush writes one release into a mirror folder.
type mirrorPush struct {
	*push
	root   *os.Root // nil: the folder does not exist, and nothing is written
	folder string   // the name of the folder
	dir    string   // the provider's folder, relative to root, with slashes

	mu       sync.Mutex
	archives map[string]mirrorArchive // the entries of VERSION.json, by platform
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

// Mirror writes a release into a mirror folder, in the packed layout and with the JSON that "tofu providers
// mirror" writes, for a filesystem_mirror or a web server. It adds packages, then the version's JSON, and then the
// list of versions. It removes nothing. An existing package with other content is a conflict.
//
// Mirror writes only verified packages. The folder stores no evidence.
func (p *Pusher) Mirror(ctx context.Context, root *os.Root, r *origin.Release) (*Result, error) {
	// 1. Read the existing JSON.
	m, index, err := p.beginMirror(ctx, root, root.Name(), r)
	if err != nil {
		return nil, err
	}
	before := len(m.archives)
	if err := root.MkdirAll(m.dir, 0o755); err != nil {
		return nil, err
	}
	// 2. Write packages.
	files.SweepTemporary(root, m.dir)
	packages, err := m.each(ctx, m.writePackage)
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

// beginMirror accepts a release, and reads the existing JSON of its provider.
func (p *Pusher) beginMirror(ctx context.Context, root *os.Root, folder string, r *origin.Release) (*mirrorPush, *mirrorIndex, error) {
	sums, err := p.accept(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	m := &mirrorPush{push: &push{target: target{Pusher: p}, asked: asked{release: r, sums: sums}}, root: root, folder: folder, dir: r.Provider().Path()}
	var version mirrorVersion
	var index mirrorIndex
	if root != nil {
		if err := m.readJSON(r.Version().String(), &version); err != nil {
			return nil, nil, err
		}
		if err := m.readJSON("index", &index); err != nil {
			return nil, nil, err
		}
	}
	if m.archives = version.Archives; m.archives == nil {
		m.archives = map[string]mirrorArchive{}
	}
	if index.Versions == nil {
		index.Versions = map[string]json.RawMessage{}
	}
	return m, &index, nil
}

func (m *mirrorPush) result(before int, packages []PackageResult) *Result {
	status := Unchanged
	switch {
	case before == 0:
		status = Pushed
	case len(m.archives) > before || slices.ContainsFunc(packages, func(p PackageResult) bool { return p.Sent }):
		status = Completed
	}
	tag, _ := ociaddr.VersionTag(m.release.Version()) // every version of a release has a tag
	out := &Result{
		Subject: m.release.Provider(), Version: m.release.Version(), Tag: tag, Status: status,
		Repository: ociaddr.Repository{Registry: ociaddr.Registry("mirror:" + m.folder), Name: m.dir},
		Standing:   Standing{Verdict: m.sums.Verdict(), Fingerprint: m.sums.Signer().Fingerprint},
		Packages:   packages, Warnings: slices.Clone(m.release.Warnings), Lost: m.release.Lost,
	}
	out.warnPrograms(&m.noProgram)
	out.warnSigner(m.sums.Signer(), m.release.ByPublisher)
	return out
}

// each returns the results for all packages of the release. It calls do for the packages that the
// folder lacks, several concurrently. It only verifies the packages that the folder has.
func (m *mirrorPush) each(ctx context.Context, do func(context.Context, origin.Package) (PackageResult, error)) ([]PackageResult, error) {
	out := make([]PackageResult, len(m.release.Packages))
	g, ctx := panics.WithContext(ctx)
	g.SetLimit(m.o.Jobs)
	for i, pkg := range m.release.Packages {
		g.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			stored, err := m.stored(pkg)
			switch {
			case err != nil:
			case stored != nil:
				defer stored.Close()
				out[i], err = m.keepPackage(ctx, pkg, stored)
			default:
				out[i], err = do(ctx, pkg)
			}
			return err
		})
	}
	return out, g.Wait()
}

// filename returns the file name that clients request for a package.
func (m *mirrorPush) filename(pkg origin.Package) string {
	return provider.PackageFilename(m.release.Provider(), m.release.Version(), pkg.Platform)
}

// stored opens a package in the folder. It returns nil if the folder lacks the package.
func (m *mirrorPush) stored(pkg origin.Package) (*os.File, error) {
	if m.root == nil {
		return nil, nil
	}
	stored, _, err := files.OpenRegular(m.root, path.Join(m.dir, m.filename(pkg)))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return stored, err
}

// writePackage writes one package into the folder.
func (m *mirrorPush) writePackage(ctx context.Context, pkg origin.Package) (PackageResult, error) {
	s, err := m.open(ctx, pkg)
	if err != nil {
		return PackageResult{}, err
	}
	defer s.Close()
	err = s.drain()
	if err == nil {
		err = m.addEntry(pkg, s.accepted())
	}
	if err == nil {
		err = files.Replace(m.root, path.Join(m.dir, m.filename(pkg)), s.file.Content(), nil)
	}
	if err != nil {
		return PackageResult{}, err
	}
	return m.packageResult(pkg, s.accepted(), StageDone), nil
}

// keepPackage verifies a package that the folder has.
func (m *mirrorPush) keepPackage(ctx context.Context, pkg origin.Package, stored *os.File) (PackageResult, error) {
	var accepted trust.Package
	verifier, err := m.sums.Verifier(pkg.Platform, pkg.Filename)
	if err == nil {
		_, err = io.Copy(verifier, stored)
	}
	if err == nil {
		accepted, err = verifier.Accept(ctx, stored)
		m.noProgram.note(accepted)
	}
	if err != nil {
		err = fmt.Errorf("%s %s for %s: %w", m.release.Provider(), m.release.Version(), pkg.Platform, err)
	}
	if errors.Is(err, trust.ErrChecksum) {
		err = m.conflict("the folder has another package under its name: " + err.Error())
	}
	if err == nil {
		err = m.addEntry(pkg, accepted)
	}
	if err != nil {
		return PackageResult{}, err
	}
	return m.packageResult(pkg, accepted, StagePresent), nil
}

// packageResult returns the result for a package that is in the folder, and reports its last event.
func (m *mirrorPush) packageResult(pkg origin.Package, accepted trust.Package, stage Stage) PackageResult {
	m.event(pkg.Platform, stage, 0, accepted.Size())
	return PackageResult{
		Platform: pkg.Platform, Filename: m.filename(pkg), Digest: sha256Digest(accepted.Sum()).String(),
		Size: accepted.Size(), H1: accepted.H1(), Sent: stage == StageDone,
	}
}

func (m *mirrorPush) conflict(what string) error {
	return hint.Wrap(fmt.Errorf("%w: %s", ErrConflict, what),
		"what is there was left as it is; find out which of them is right, and remove the wrong one")
}

// addEntry adds a package to the version's JSON, unless the JSON already has an entry for the package.
func (m *mirrorPush) addEntry(pkg origin.Package, p trust.Package) error {
	hashes := []string{provider.ZipHash(p.Sum()).String()}
	if !p.H1().IsZero() {
		hashes = append(hashes, p.H1().String())
	}
	slices.Sort(hashes)
	m.mu.Lock()
	defer m.mu.Unlock()
	file := path.Join(m.dir, m.release.Version().String()+".json")
	there, ok := m.archives[pkg.Platform.String()]
	switch {
	case !ok:
		m.archives[pkg.Platform.String()] = mirrorArchive{hashes, m.filename(pkg)}
	case there.URL != m.filename(pkg):
		return m.conflict(fmt.Sprintf("%s has the package for %s at %.200q", file, pkg.Platform, there.URL))
	case !slices.ContainsFunc(p.Hashes(), func(h provider.Hash) bool { return slices.Contains(there.Hashes, h.String()) }):
		return m.conflict(fmt.Sprintf("%s gives the package for %s the hashes %.200q, but it has %q", file, pkg.Platform, there.Hashes, p.Hashes()))
	}
	return nil
}

// readJSON decodes NAME.json of the provider into out, if the file exists.
func (m *mirrorPush) readJSON(name string, out any) error {
	file := path.Join(m.dir, name+".json")
	data, err := m.readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = mirrorLimits.Unmarshal(data, out)
	}
	if err != nil {
		return hint.Wrap(fmt.Errorf("mirror folder: %s: %w", file, err), "repair or remove it; nothing was written")
	}
	return nil
}

func (m *mirrorPush) readFile(name string) ([]byte, error) {
	f, _, err := files.OpenRegular(m.root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return document.ReadAll(f, mirrorLimits.Bytes)
}

// writeJSON replaces NAME.json of the provider. It writes nothing if the file already has this content, because the
// folder may be read-only.
func (m *mirrorPush) writeJSON(name string, content any) error {
	data, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	file := path.Join(m.dir, name+".json")
	if stored, err := m.readFile(file); err == nil && bytes.Equal(stored, data) {
		return nil
	}
	return files.Replace(m.root, file, bytes.NewReader(data), nil)
}

// PlanMirror returns the result that [Pusher.Mirror] would have. It writes nothing, and reads only packages that
// the folder has. root is nil if the folder does not exist.
func (p *Pusher) PlanMirror(ctx context.Context, root *os.Root, folder string, r *origin.Release) (*Result, error) {
	m, _, err := p.beginMirror(ctx, root, folder, r)
	if err != nil {
		return nil, err
	}
	before := len(m.archives)
	packages, err := m.each(ctx, func(ctx context.Context, pkg origin.Package) (PackageResult, error) {
		out := PackageResult{Platform: pkg.Platform, Filename: m.filename(pkg), Size: pkg.Size(ctx), Sent: true}
		if sum, ok := m.sums.Sum(pkg.Filename); ok {
			out.Digest = sha256Digest(sum).String()
		}
		return out, nil
	})
	if err != nil {
		return nil, err
	}
	return m.result(before, packages), nil
}
