package pusher

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/refusals"
)

// sendBlob stores a small blob or a manifest, unless the repository has it.
func (w *push) sendBlob(ctx context.Context, op string, b artifact.Blob) error {
	var err error
	for range 2 {
		var exists bool
		exists, err = w.dest.Store.Exists(ctx, b.Descriptor)
		if status(err) == http.StatusPreconditionFailed {
			err = nil // a policy forbids reading the manifest; the answer to HEAD has no body that says so
		}
		if err != nil || exists {
			break
		}
		// The HTTP client repeats a request if its connection breaks. The repeated request
		// gets 404 if the first one has ended the upload: the second round finds the blob,
		// or sends it again.
		if err = w.put(ctx, b, ""); status(err) != http.StatusNotFound {
			break
		}
	}
	if err != nil {
		return w.registryError(op, err)
	}
	return nil
}

// sendTag stores a manifest under a tag. It returns [ErrImmutable] with the given hint if
// the registry does not move the tag. It succeeds if a rule about the tag refuses the
// request although the tag already names the manifest.
func (w *push) sendTag(ctx context.Context, op string, manifest artifact.Blob, tag, help string) error {
	err := w.put(ctx, manifest, tag)
	if err == nil {
		return nil
	}
	if mayBeTagRule(err) {
		there, rerr := artifact.Resolve(ctx, w.dest.Store, tag)
		switch {
		case rerr != nil: // the refusal says more
		case there.Digest == manifest.Descriptor.Digest:
			return nil
		case isTagRule(err):
			err = hint.Wrap(fmt.Errorf("%w: it names %s: %w", ErrImmutable, there.Digest, err), "%s", help)
		}
	}
	return w.registryError(op, err)
}

// put stores a small blob or a manifest, under a tag unless tag is "". It retries while the
// registry refuses a manifest because of an unknown blob: Distribution 2 rewrites the file
// that links a blob to a repository whenever a push sends the blob, and does not find the
// blob until the file is written.
func (w *push) put(ctx context.Context, b artifact.Blob, tag string) error {
	pause := w.o.RetryPause
	for attempt := 1; ; attempt++ {
		var err error
		if tag == "" {
			err = w.dest.Store.Push(ctx, b.Descriptor, bytes.NewReader(b.Data))
		} else {
			err = w.dest.Store.PushReference(ctx, b.Descriptor, bytes.NewReader(b.Data), tag)
		}
		if attempt == sendAttempts || !refusals.UnknownBlob(err) {
			return err
		}
		if sleep(ctx, pause) != nil {
			return err
		}
		pause *= 2
	}
}

const helpImmutable = "what was sent is there, but the tag still names what it did. Let this tag be moved and run it again (Harbor: the project's tag immutability rules; " +
	"Amazon ECR: aws ecr put-image-tag-mutability; elsewhere they are locks, protected or immutable tags), or push all platforms of a version at once from the start"

// plain returns a descriptor without annotations and other optional fields.
func plain(desc ocispec.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size}
}
