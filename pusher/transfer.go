package pusher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/registries/upload"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

const (
	// chunkBytes is the size in bytes of the chunks that a push sends once the registry has rejected
	// a whole package. It is below all limits of known proxies that a package could exceed.
	chunkBytes = 16 << 20
	// cancelTimeout is the timeout of the request that cancels an upload.
	cancelTimeout = 5 * time.Second
)

// errStalled means that the registry accepted no byte, and did not respond, during
// Options.StallTimeout.
var errStalled = errors.New("the upload stalled")

// sendLayer stores a package's bytes, and returns StageDone, StageMounted or StageFound. It uploads while the
// package is still being downloaded from the origin. A retry reads the temporary file from its beginning.
func (w *push) sendLayer(ctx context.Context, platform provider.Platform, layer ocispec.Descriptor, s *spool) (Stage, error) {
	stage := StageFound
	exists, err := w.Dest.Store.Exists(ctx, layer)
	if err == nil && !exists {
		stage, err = w.upload(ctx, layer, s, func(n int) { w.event(platform, StageSend, n, layer.Size) })
	}
	if err == nil && stage != StageDone {
		err = s.drain() // the h1: hash needs the bytes even if they are not sent
	}
	if failure := s.failure(); failure != nil {
		return "", failure // the upload failed because the origin failed
	}
	if err != nil {
		return "", w.Failed("push "+platform.String()+" to", err)
	}
	w.addLocation(layer.Digest, w.Dest.Repository)
	return stage, nil
}

// layerContent is the content of a layer. Each attempt to upload the layer reads it anew.
type layerContent interface {
	open(ctx context.Context) (io.ReadCloser, error)
	// failure returns the error that ended the content early, or nil. If it is not nil, the
	// upload is not retried.
	failure() error
}

// upload makes the registry mount a layer from another repository, or sends it, with retries. It returns
// StageMounted or StageDone. It calls the function sent with the number of bytes that were sent. The number is
// negative after an attempt that failed. If the registry or a proxy responds that the request is too large, it
// sends this and all later layers in chunks.
func (w *target) upload(ctx context.Context, layer ocispec.Descriptor, c layerContent, sent func(int)) (stage Stage, err error) {
	from := w.mountSource(layer.Digest)
	temporary := func(err error) bool { return c.failure() == nil && worthRetrying(err) }
	err = w.Retry(ctx, temporary, func() error {
		_, chunked := w.chunked.Load(w.Dest.Repository.Registry)
		stage, err = w.tryUpload(ctx, layer, c, sent, from, chunked)
		from = ""
		if repo.HTTPStatus(err) == http.StatusRequestEntityTooLarge && !chunked {
			w.chunked.Store(w.Dest.Repository.Registry, true)
			stage, err = w.tryUpload(ctx, layer, c, sent, from, true)
		}
		return err
	})
	return stage, err
}

// tryUpload makes one attempt to mount or send a layer.
func (w *target) tryUpload(ctx context.Context, layer ocispec.Descriptor, c layerContent, sent func(int), from string, chunked bool) (Stage, error) {
	sending, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	file, err := c.open(sending)
	if err != nil {
		return "", err
	}
	stall := time.AfterFunc(w.o.StallTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	body := &spoolReader{
		file: file,
		// The time that the origin takes does not count as a stall of the registry.
		before: func() { stall.Stop() },
		after: func(n int) {
			stall.Reset(w.o.StallTimeout)
			if n > 0 {
				sent(n)
			}
		},
	}
	stage, err := w.uploadTo(sending, layer, body, from, chunked, func() { sent(0) })
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(sending), errStalled) {
		err = hint.Wrap(fmt.Errorf("%w: %v", errStalled, err), "the registry takes no bytes: ask the operator of the registry, and run the push again")
	}
	if n := body.end(); err != nil && n > 0 {
		sent(-int(n))
	}
	return stage, err
}

// uploadTo mounts or sends a layer. It calls the function begin before it sends the first byte. If the upload
// fails for any reason but a stall, it tries to cancel the upload session.
func (w *target) uploadTo(ctx context.Context, layer ocispec.Descriptor, body io.Reader, from string, chunked bool, begin func()) (Stage, error) {
	remote := w.Dest.Store.Remote()
	if remote == nil {
		begin()
		return StageDone, w.Dest.Store.Push(ctx, layer, body)
	}
	session, mounted, err := w.mountOrBegin(ctx, remote, layer, from)
	if err != nil || mounted {
		return StageMounted, err
	}
	begin()
	chunk := int64(0)
	if chunked {
		chunk = chunkBytes
	}
	err = session.Send(ctx, body, chunk)
	if err != nil && !errors.Is(context.Cause(ctx), errStalled) {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer cancel()
		_ = session.Cancel(after) // if this fails, the registry discards the session later
	}
	return StageDone, err
}

// mountOrBegin mounts a package from another repository of the registry, and reports whether it did. If from is
// "", or if the registry refuses the mount, it begins an upload instead.
func (w *target) mountOrBegin(ctx context.Context, in *remote.Repository, layer ocispec.Descriptor, from string) (*upload.Session, bool, error) {
	session, mounted, err := upload.Begin(ctx, in, layer, from)
	if err == nil || from == "" || ctx.Err() != nil {
		return session, mounted, err
	}
	// The login cannot read any package of the other repository. In Harbor, for example, the robot of a
	// project has no rights in other projects.
	if refused := repo.HTTPStatus(err); refused == http.StatusUnauthorized || refused == http.StatusForbidden {
		w.unmountable.Store(mountKey{w.Dest.Repository, from}, true)
	}
	return upload.Begin(ctx, in, layer, "")
}

// mountKey identifies mounts from one repository of a registry into another.
type mountKey struct {
	into ociaddr.Repository
	from string
}

// location identifies a package in a registry.
type location struct {
	registry ociaddr.Registry
	digest   digest.Digest
}

// addLocation remembers that a repository has a package.
func (p *Pusher) addLocation(d digest.Digest, r ociaddr.Repository) {
	p.locations.LoadOrStore(location{r.Registry, d}, r.Name)
}

// mountSource returns the name of another repository in the registry that has the package, or else
// the name of the destination's sibling. It skips a repository from which the registry has refused to
// mount. It returns "" if no repository is left.
func (w *target) mountSource(d digest.Digest) string {
	known, _ := w.locations.Load(location{w.Dest.Repository.Registry, d})
	name, _ := known.(string)
	for _, from := range []string{name, w.Dest.Sibling} {
		if _, refused := w.unmountable.Load(mountKey{w.Dest.Repository, from}); from != "" && from != w.Dest.Repository.Name && !refused {
			return from
		}
	}
	return ""
}

// worthRetrying reports whether another attempt to send the same bytes might succeed.
func worthRetrying(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errStalled) {
		return false
	}
	// Status 401 can mean that the token has expired during a long upload.
	code := repo.HTTPStatus(err)
	return code == 0 || code >= 500 || code == http.StatusTooManyRequests || code == http.StatusUnauthorized
}

// sendPackages stores missing packages concurrently, and returns those that the stored version lacks. A forced
// push returns all packages.
func (w *push) sendPackages(ctx context.Context, missing []origin.Package) ([]artifact.Package, error) {
	all := make([]*artifact.Package, len(missing))
	sent := make([]bool, len(missing))
	g, ctx := panics.WithContext(ctx)
	for i, pkg := range missing {
		g.Go(func() (err error) {
			if err := w.slots.Acquire(ctx, 1); err != nil {
				return context.Cause(ctx)
			}
			defer w.slots.Release(1)
			all[i], sent[i], err = w.sendPackage(ctx, pkg)
			return orOthers(err, w.release)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var out []artifact.Package
	for i, p := range all {
		if p != nil {
			out = append(out, *p)
			w.uploaded[p.Platform] = sent[i]
		}
	}
	return out, nil
}

// sendPackage stores one package's layer and manifest, and reports whether it sent the bytes. It returns nil if
// the stored version turns out to have the package. It uploads the package during the download if the checksums
// alone determine the digest.
func (w *push) sendPackage(ctx context.Context, pkg origin.Package) (_ *artifact.Package, sent bool, err error) {
	if p, err := w.omit(ctx, pkg); p != nil || err != nil {
		return p, false, err
	}
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

// checkPackage reports whether a package whose digest is known is in place. It returns a conflict with the stored
// package, or with the evidence that the version will probably get, as an error.
func (w *push) checkPackage(p artifact.Package) (inPlace bool, err error) {
	if inPlace, err = w.isInPlace(p.Platform, p.Digest); inPlace || err != nil {
		return inPlace, err
	}
	if c := w.expected.contradicts(p); c != nil {
		return false, w.conflictError(c)
	}
	return false, nil
}

// sendManifest stores the config and the manifest of a verified package.
func (w *push) sendManifest(ctx context.Context, s *spool) (artifact.Package, error) {
	p, manifest, err := artifact.EncodePackage(s.accepted())
	if err == nil {
		p, manifest, err = w.platformManifest(ctx, p, manifest)
	}
	if err == nil {
		err = w.SendBlob(ctx, "push config to", artifact.Config())
	}
	if err == nil {
		err = w.SendBlob(ctx, "push manifest of "+p.Platform.String()+" to", manifest)
	}
	return p, err
}
