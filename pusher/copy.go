package pusher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

// original is a stored version that is copied, as its repository has it.
type original struct {
	from    Stored
	found   *artifact.Version
	whole   bool // all of its platforms are copied
	carrier *carrier

	mu       sync.Mutex
	warnings []string // of platforms' manifests, which are sent at once
}

// rewritten notes that a platform's manifest is not copied as it is.
func (o *original) rewritten(p provider.Platform, reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.warnings = append(o.warnings, fmt.Sprintf("the manifest for %s in %s is not copied as it is, and a new one is stored: %s", p, o.from.Repository, reason))
}

// rewrites notes that the index is not copied as it is. What was counted of it no longer
// counts.
func (w *push) rewrites(reason string) {
	w.warnings = append(w.warnings, fmt.Sprintf("the index in %s is not copied as it is, and a new one is stored: %s", w.original.from.Repository, reason))
	w.original.carrier = newCarrier(w.original.from, w)
}

// cannotCarry reports whether an error means that a manifest cannot be copied as it is:
// parts of it cannot be read or are too much, or the destination refuses them.
func (w *push) cannotCarry(err error) bool {
	return isUnusable(err) || errors.Is(err, ErrTooMuchAttached) || w.isRefusal(err)
}

// isRefusal reports whether the destination does not want some content.
func (w *push) isRefusal(err error) bool {
	var registry *RegistryError
	return errors.As(err, &registry) && registry.Repository == w.dest.Repository && (refuses(status(err)) || errors.Is(err, artifact.ErrTooLarge))
}

// Copy stores a version that another repository holds, with the platforms given, or
// with all of them if none is given. It verifies the version as [Pusher.Push] does a
// release. Manifests arrive byte for byte where they say nothing but what was
// verified: a version that is copied whole into a repository that lacks it keeps the
// digest of its index, whatever tool made it. Then the referrers of each manifest that
// arrived as it was are copied.
//
// Nobody verifies referrers. They are stored under no tag but the ones that name their
// subject.
func (p *Pusher) Copy(ctx context.Context, from Stored, v provider.Version, want []provider.Platform) (*Result, error) {
	r, found, err := from.release(ctx, v, want)
	if err != nil {
		return nil, err
	}
	w, err := p.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	w.original = &original{from: from, found: found, whole: len(r.Packages) == len(found.Packages), carrier: newCarrier(from, w)}
	ctx = mayPush(ctx, w.dest.Repository)
	after, status, err := w.run(ctx)
	if err != nil {
		return nil, err
	}
	referrers, sent := 0, 0
	if !p.o.WithoutReferrers {
		if referrers, sent, err = w.copyReferrers(ctx, after); err != nil {
			return nil, err
		}
	}
	if sent > 0 && status == Unchanged {
		status = Completed
	}
	slices.Sort(w.original.warnings)
	w.warnings = append(w.original.warnings, w.warnings...)
	out := w.result(ctx, after, status)
	out.Referrers, out.ReferrersSent = referrers, sent
	return out, nil
}

// platformManifest returns a package with the manifest that is to be stored of it: the
// original's, if that says of the package what was verified, or else the one given.
// Of the original's it stores what the manifest needs beside the package.
func (w *push) platformManifest(ctx context.Context, p artifact.Package, encoded artifact.Blob) (artifact.Package, artifact.Blob, error) {
	if w.original == nil {
		return p, encoded, nil
	}
	found := find(w.original.found.Packages, p.Platform)
	if found.Manifest.Digest == encoded.Descriptor.Digest {
		return p, encoded, nil
	}
	from := w.original.from
	data, err := artifact.FetchManifest(ctx, from.Store, found.Manifest)
	if isUnusable(err) {
		return p, encoded, nil // the index describes the package well enough
	}
	if err != nil {
		return p, encoded, from.failed(w.release.Version(), err)
	}
	says, err := artifact.DecodePackage(found.Manifest, data, w.release.Provider(), w.release.Version(), p.Platform)
	if err != nil || !says.Claims(p) {
		return p, encoded, nil
	}
	if names, err := hasSubject(data); err != nil || names {
		w.original.rewritten(p.Platform, "it refers to another manifest")
		return p, encoded, nil
	}
	w.original.carrier.has(p.Digest)
	kept := artifact.Blob{Descriptor: found.Manifest, Data: data}
	err = w.original.carrier.content(ctx, found.Manifest, data)
	if err == nil {
		err = w.sendBlob(ctx, "push manifest of "+p.Platform.String()+" to", kept)
	}
	if w.cannotCarry(err) {
		w.original.rewritten(p.Platform, err.Error())
		return p, encoded, nil
	}
	if err != nil {
		return p, encoded, err
	}
	p.Manifest = found.Manifest
	return p, kept, nil
}

// publishOriginal has the tag name the original's index, byte for byte, where that
// says nothing but what was verified and other pushes bring nothing else. Otherwise it
// returns nil.
func (w *push) publishOriginal(ctx context.Context, own []artifact.Package) (*artifact.Version, error) {
	o := w.original
	if o == nil || !o.whole || w.before != nil {
		return nil, nil
	}
	// 1. Whether the index may be stored as it is, and has to be.
	evidence, _, err := w.evidence()
	if err != nil {
		return nil, err
	}
	if anew, err := artifact.EncodeIndex(artifact.Version{
		Provider: w.release.Provider(), Version: w.release.Version(), Protocols: w.release.Protocols, Packages: own, Evidence: &evidence.Descriptor,
	}); err == nil && anew.Descriptor.Digest == o.found.Index.Digest {
		return nil, nil // it is made anew, the same
	}
	index, err := artifact.FetchManifest(ctx, o.from.Store, o.found.Index)
	if err != nil {
		return nil, o.from.failed(w.release.Version(), err)
	}
	if reason := w.unverified(index, own, evidence.Descriptor); reason != "" {
		w.rewrites(reason)
		return nil, nil
	}
	// 2. All that it names.
	if err := o.carrier.content(ctx, o.found.Index, index); w.cannotCarry(err) {
		w.rewrites(err.Error())
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	// 3. The tag, unless others push this version.
	if announces, err := w.announces(ctx); err != nil {
		return nil, err
	} else if announces {
		if err := w.announce(ctx, own, nil); err != nil {
			return nil, err
		}
	}
	written := false
	for range maxRounds {
		r, again, err := w.readRound(ctx, own, nil)
		if err != nil {
			return nil, err
		}
		if again {
			continue
		}
		differs := r.others.evidence != nil || slices.ContainsFunc(r.others.packages, func(p artifact.Package) bool {
			q := find(own, p.Platform)
			return q == nil || q.Digest != p.Digest
		})
		if differs || r.now != nil && r.now.Index.Digest != o.found.Index.Digest {
			return nil, nil
		}
		if written {
			if r.now != nil { // nil: somebody removed it
				w.finish(ctx, r.others, r.now, r.readAt)
			}
			return r.now, nil
		}
		blob := artifact.Blob{Descriptor: o.found.Index, Data: index}
		if err := w.sendBlob(ctx, "push index to", blob); w.cannotCarry(err) {
			w.rewrites(err.Error())
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		if !w.isFresh(r.readAt) {
			continue
		}
		if err := w.moveTag(ctx, blob, *o.found); err != nil {
			return nil, err
		}
		written = true
	}
	return nil, nil
}

// unverified says what in the original's index was not verified; "" for nothing.
// evidence is what the version is accepted on.
func (w *push) unverified(data []byte, own []artifact.Package, evidence ocispec.Descriptor) string {
	found := w.original.found
	for _, p := range found.Packages {
		verified := find(own, p.Platform)
		switch {
		case verified == nil || !p.Claims(*verified):
			return fmt.Sprintf("what it says of the package for %s is not so", p.Platform)
		case verified.Manifest.Digest != p.Manifest.Digest:
			return fmt.Sprintf("what the manifest for %s says of the package is not so", p.Platform)
		}
	}
	var index ocispec.Index
	if err := artifact.Unmarshal(data, &index); err != nil {
		return err.Error()
	}
	targets := 0
	for _, entry := range index.Manifests {
		if entry.ArtifactType == artifact.TypeTarget {
			targets++
		}
	}
	switch {
	case index.Subject != nil:
		return "it refers to another manifest"
	case targets != len(found.Packages):
		return "it has packages for platforms that clients pass over"
	case found.Protocols != nil && !slices.Equal(found.Protocols, w.release.Protocols):
		return "its protocols are not those of its evidence"
	case found.Evidence != nil && found.Evidence.Digest != evidence.Digest:
		return "its evidence is written in another way"
	case found.Evidence != nil && len(found.Evidence.Annotations) > 0 && !maps.Equal(found.Evidence.Annotations, evidence.Annotations):
		return "what it says of its evidence is not so"
	}
	return ""
}

// release returns a stored version as a release, and as it is stored.
func (s Stored) release(ctx context.Context, v provider.Version, want []provider.Platform) (*origin.Release, *artifact.Version, error) {
	found, err := s.find(ctx, v)
	if err != nil {
		return nil, nil, err
	}
	r, err := s.releaseOf(ctx, found, v, want)
	if isGone(err) { // the index may have been replaced and pruned since it was read
		if again, findErr := s.find(ctx, v); findErr == nil && again.Index.Digest != found.Index.Digest {
			found = again
			r, err = s.releaseOf(ctx, found, v, want)
		}
	}
	return r, found, err
}
