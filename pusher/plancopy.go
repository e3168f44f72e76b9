package pusher

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/files"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// PlanCopy returns the result that [Pusher.Copy] would probably have, without the referrers
// and the digest of a new index. It writes nothing, and reads no package. The field Sent of a
// package says whether its bytes would be sent, although a registry might mount some of them.
func (p *Pusher) PlanCopy(ctx context.Context, from Stored, v provider.Version, want []provider.Platform) (*Result, error) {
	w, err := p.beginCopy(ctx, from, v, want)
	if err != nil {
		return nil, err
	}
	defer w.unlock()
	after, status, err := w.plan(repo.MayPush(ctx, w.Dest.Repository))
	if err != nil {
		return nil, err
	}
	return w.result(ctx, after, status), nil
}

// planCopied returns a missing package as the source describes it. It notes whether the
// package would be sent or left out.
func (w *push) planCopied(ctx context.Context, pkg origin.Package) (*artifact.Package, error) {
	out := *repo.Find(w.original.version.Packages, pkg.Platform)
	out.Filename = pkg.Filename
	if w.omittable(pkg) != nil {
		w.original.omitted = append(w.original.omitted, pkg.Platform)
		return &out, nil
	}
	exists, err := w.Dest.Store.Exists(ctx, out.Layer())
	if err != nil {
		return nil, w.Failed("look for "+pkg.Platform.String()+" in", err)
	}
	w.uploaded[pkg.Platform] = !exists
	return &out, nil
}

// PlanMirror returns the result that [Pusher.Mirror] would have. It writes nothing. It
// verifies the packages that the folder has, and reads no other package. root is nil if the
// folder does not exist.
func (p *Pusher) PlanMirror(ctx context.Context, root *os.Root, folder string, r *origin.Release) (*Result, error) {
	m, _, err := p.beginMirror(ctx, root, folder, r)
	if err != nil {
		return nil, err
	}
	before := len(m.archives)
	var packages []PackageResult
	for _, pkg := range r.Packages {
		planned, err := m.planPackage(ctx, pkg)
		if err != nil {
			return nil, err
		}
		packages = append(packages, planned)
	}
	return m.result(before, packages), nil
}

func (m *mirrorPush) planPackage(ctx context.Context, pkg origin.Package) (PackageResult, error) {
	if m.root != nil {
		stored, _, err := files.OpenRegular(m.root, path.Join(m.dir, m.filename(pkg)))
		if err == nil {
			defer stored.Close()
			return m.keepPackage(ctx, pkg, stored)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return PackageResult{}, err
		}
	}
	out := PackageResult{Platform: pkg.Platform, Filename: m.filename(pkg), Size: pkg.Size(ctx), Sent: true}
	if sum, ok := m.sums.Sum(pkg.Filename); ok {
		out.Digest = sha256Digest(sum).String()
	}
	return out, nil
}
