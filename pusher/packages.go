package pusher

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/origin"
)

// sendPackages stores missing packages, several at once. It returns the packages that the
// stored version lacks.
func (w *push) sendPackages(ctx context.Context, missing []origin.Package) ([]artifact.Package, error) {
	type sending struct {
		pkg  *artifact.Package
		sent bool
	}
	all := make([]sending, len(missing))
	g, ctx := errgroup.WithContext(ctx)
	for i, pkg := range missing {
		g.Go(func() error {
			select {
			case w.slots <- struct{}{}:
				defer func() { <-w.slots }()
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			var err error
			all[i].pkg, all[i].sent, err = w.sendPackage(ctx, pkg)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var out []artifact.Package
	for _, s := range all {
		if s.pkg != nil {
			out = append(out, *s.pkg)
			w.uploaded[s.pkg.Platform] = s.sent
		}
	}
	return out, nil
}

// sendPackage stores one package's layer and manifest, and reports whether it sent the
// bytes. It returns nil if the stored version turns out to have the package. If the
// checksums determine the bytes, sendPackage sends them while it reads them.
func (w *push) sendPackage(ctx context.Context, pkg origin.Package) (_ *artifact.Package, sent bool, err error) {
	s, err := w.open(ctx, pkg)
	if err != nil {
		return nil, false, err
	}
	defer s.Close()
	sum, known := w.knownSum(pkg)
	if !known || s.size <= 0 {
		if err := s.drain(); err != nil {
			return nil, false, err
		}
		sum = sha256Digest(s.accepted().Sum())
	}
	p := artifact.Package{Platform: pkg.Platform, Filename: pkg.Filename, Digest: sum, Size: s.size}
	if inPlace, err := w.checkPackage(p); inPlace || err != nil {
		return nil, false, err
	}
	stage, err := w.sendLayer(ctx, pkg.Platform, p.Layer(), s)
	if err != nil {
		return nil, false, err
	}
	if p, err = w.sendManifest(ctx, s); err != nil {
		return nil, false, err
	}
	w.event(p.Platform, stage, 0, p.Size)
	return &p, stage == StageDone, nil
}

// checkPackage compares a package, once its digest is known, with the stored package and
// with the evidence that the version will probably get. It reports whether the package is
// in place. By force, even such a package is stored again, because parts of it may have
// been deleted.
func (w *push) checkPackage(p artifact.Package) (inPlace bool, err error) {
	if there := w.present(p.Platform); there != nil && !w.o.Force {
		if there.Digest != p.Digest {
			return false, w.packageConflict(there, p.Digest)
		}
		w.event(p.Platform, StagePresent, 0, p.Size)
		return true, nil
	}
	if c := w.expected.contradicts(p); c != nil {
		return false, w.conflictError(c)
	}
	return false, nil
}

// sendManifest stores the manifest of a package that was read whole.
func (w *push) sendManifest(ctx context.Context, s *spool) (artifact.Package, error) {
	p, manifest, err := artifact.EncodePackage(s.accepted())
	if err == nil {
		p, manifest, err = w.platformManifest(ctx, p, manifest)
	}
	if err == nil {
		err = w.sendBlob(ctx, "push config to", artifact.Config())
	}
	if err == nil {
		err = w.sendBlob(ctx, "push manifest of "+p.Platform.String()+" to", manifest)
	}
	return p, err
}
