package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

// Approvals decide which versions are approved.
type Approvals interface {
	// Policy returns the approvals that the versions of a provider or a module need, or nil if they need none. The catalog
	// calls it for every request.
	Policy(subject.Address) *approval.Policy
	// Check reads the signatures of the manifest that a version's tag names, and returns the verdict on them. An error means
	// that nothing was decided. It never means that there are no signatures.
	Check(context.Context, subject.Address, provider.Version, ocispec.Descriptor) (approval.Verdict, []approval.Signature, error)
	// Recheck returns the verdict on signatures that Check has returned earlier.
	Recheck(context.Context, subject.Address, provider.Version, digest.Digest, []approval.Signature) (approval.Verdict, error)
	// Vouches reports whether the gateway itself approves the versions that it fetches from a provider's origin when it stores
	// them. Such versions are served before they are stored, too.
	Vouches(subject.Address) bool
	// Unnamed returns the verdict on a manifest that no signature can approve, for the reason of the error.
	Unnamed(context.Context, subject.Address, provider.Version, digest.Digest, error) approval.Verdict
}

const (
	// ApprovedTTL is how long a signature counts without another look at the registry. A signature that was removed from the
	// registry counts no longer than this.
	ApprovedTTL = 5 * time.Minute
	// unapprovedTTL is the same for a version without the required signatures. It is shorter, because somebody may be
	// waiting for the approval.
	unapprovedTTL = 30 * time.Second
	// maxSavedSignatures is the maximum size in bytes of the signatures that are saved on disk for one version.
	maxSavedSignatures = 1 << 20
)

// policy returns the approvals that the versions of a provider or a module need, or nil if they need none.
func (c *Catalog) policy(of subject.Address) *approval.Policy {
	if c.opts.Approvals == nil {
		return nil
	}
	return c.opts.Approvals.Policy(of)
}

// Policy returns the approvals that the versions of a provider or a module need, or nil if they need none.
func (c *Catalog) Policy(of subject.Address) *approval.Policy { return c.policy(of) }

// DecidesByManifest reports whether the manifest of a version can decide whether the version is served: its signatures, or a rule
// in Options.Deny with a digest.
func (c *Catalog) DecidesByManifest(of subject.Address) bool {
	return c.policy(of).Enforces() || slices.ContainsFunc(c.opts.Deny, func(d Deny) bool { return d.Digest != "" && d.Pattern.Covers(of) })
}

// approvalOf returns the question whether a manifest is approved as a version.
func (c *Catalog) approvalOf(of subject.Address, v provider.Version, manifest ocispec.Descriptor) question {
	q := c.Registry().question(approvals, of)
	q.version = v
	q.desc = ocispec.Descriptor{MediaType: manifest.MediaType, Digest: manifest.Digest, Size: manifest.Size}
	return q
}

// nameApproval sets the name of the question whether the item's version is approved, so that a request need not make it.
func (c *Catalog) nameApproval(i *Item) {
	if c.policy(i.about.subject).Enforces() {
		i.approval = c.approvalOf(i.about.subject, i.Version, i.Found.Index).name()
	}
}

// fetchApproval reads the signatures of a manifest, and decides about them.
func (c *Catalog) fetchApproval(ctx context.Context, up *upstream, item *Item) (*Item, error) {
	var err error
	item.verdict, up.signatures, err = c.opts.Approvals.Check(ctx, up.subject, up.version, up.desc)
	if err == nil {
		err = c.checkComplete(up.subject, item.verdict)
	}
	if err != nil {
		return item, up.fail(err)
	}
	if before := up.before; before != nil && before.Err == nil && reflect.DeepEqual(before.Value.verdict, item.verdict) {
		return before.Value, nil
	}
	return item, nil
}

// approvalTTL returns how long a verdict is current.
func (c *Catalog) approvalTTL(v approval.Verdict) time.Duration {
	switch {
	case c.opts.TagTTL < 0:
		return c.opts.TagTTL // the registry is asked each time, as for tags
	case v.Err() != nil:
		return unapprovedTTL
	}
	return ApprovedTTL
}

// Approval returns the verdict on a version of [View.Examine]. The verdict is zero if the version needs no approval, or if the
// gateway vouches for the version and has not stored it yet. An error
// means that the registry failed, and that no earlier verdict can be used.
func (c *Catalog) Approval(ctx context.Context, of *Item) (approval.Verdict, error) {
	a, v := of.about.subject, of.Version
	if c.policy(a).IsZero() {
		return approval.Verdict{}, nil
	}
	found := of.Stored()
	switch {
	case found == nil && c.opts.Approvals.Vouches(a):
		return approval.Verdict{}, nil
	case found == nil || found.Index.Digest == "":
		return c.opts.Approvals.Unnamed(ctx, a, v, "", ErrNotStored), nil
	}
	if err := artifact.NamesItself(found, a, v); err != nil {
		return c.opts.Approvals.Unnamed(ctx, a, v, found.Index.Digest, err), nil
	}
	answer, err := c.cache.Get(ctx, c.approvalOf(a, v, found.Index))
	if err != nil {
		return approval.Verdict{}, fmt.Errorf("read the signatures of %s %s: %w", a, v, err)
	}
	return answer.Value.verdict, answer.Err
}

// ErrNotStored means that a version is not approved because it is not in the registry yet, so that nobody can have signed it.
var ErrNotStored = errors.New("it is not in the registry yet")

// approved is [View.Version] for a provider or a module whose versions need approvals. Only versions in the registry can have
// signatures, so a version that only the origin has is not served, unless the gateway vouches for it.
func (v View) approved(ctx context.Context, a subject.Address, of provider.Version) (*Item, error) {
	item, err := v.Examine(ctx, a, of)
	if errors.Is(err, ErrAbsent) && v.question(version, a).union && !v.c.opts.Approvals.Vouches(a) {
		return v.onlyOffered(ctx, a, of)
	}
	if err == nil {
		err = v.c.allow(ctx, item)
	} else {
		err = v.c.unapprovable(ctx, a, of, err)
	}
	if err != nil && !errors.Is(err, ErrAbsent) {
		return nil, err
	}
	return item, err
}

// unapprovable returns a *[DeniedError] if the error of a version that needs approvals shows that nobody can have approved it: the
// registry forbids everybody to read it, or its tag names the content of something else. Otherwise it returns err.
func (c *Catalog) unapprovable(ctx context.Context, a subject.Address, v provider.Version, err error) error {
	var reason error
	switch {
	case !c.policy(a).Enforces():
		return err
	case isForbidden(err):
		reason = ErrForbidden
	case errors.Is(err, artifact.ErrForeign):
		reason = hint.Wrap(err, "%s", artifact.HelpForeign(err, a))
	default:
		return err
	}
	return cmp.Or(notApproved(a, v, c.opts.Approvals.Unnamed(ctx, a, v, "", reason)), err)
}

// ErrForbidden means that a version is not approved as far as anybody can know, because the registry refuses everybody to read it.
// This is an answer of the registry, and not a failure: Harbor can refuse versions that nobody has signed.
var ErrForbidden = hint.New("a policy of its project in the registry forbids everybody to read it",
	"meet the policy, such as by cosign sign --recursive with a login that may push, or switch the policy off (in Harbor: the project's Configuration, Deployment security)")

// isForbidden reports whether err means that a policy of the registry forbids everybody to read what a version's tag names. Such an
// error about another manifest, such as that of the evidence, says nothing about approvals.
func isForbidden(err error) bool {
	answer, ok := errors.AsType[*errcode.ErrorResponse](err)
	return ok && refusals.Policy(err) && answer.URL != nil && !strings.Contains(path.Base(answer.URL.Path), ":")
}

// VersionNow is like [View.Version] for the registry alone, but asks the registry even if an answer is current. It does not look up
// signatures again.
func (c *Catalog) VersionNow(ctx context.Context, a subject.Address, v provider.Version) (*Item, error) {
	if err := c.Denied(a, v); err != nil {
		return nil, err
	}
	reg, err := c.askRegistry(ctx, a, v)
	return c.allowed(ctx, a, v, reg, err)
}

// allow returns a *[DeniedError] if the manifest of a version is denied or not approved, and nil if the version may be served as
// far as its manifest is concerned. Any other error means that the registry failed.
func (c *Catalog) allow(ctx context.Context, i *Item) error {
	if err := c.deniedManifest(i); err != nil || !c.policy(i.about.subject).Enforces() {
		return err
	}
	verdict, err := c.Approval(ctx, i)
	if err != nil {
		return err
	}
	return notApproved(i.about.subject, i.Version, verdict)
}

// onlyOffered returns the error of a version that the registry lacks: that of [Catalog.NotStored] if the origin has the version,
// or an error of [View.Version].
func (v View) onlyOffered(ctx context.Context, a subject.Address, of provider.Version) (*Item, error) {
	item, err := v.offered(ctx, a, of)
	if err != nil {
		return item, err
	}
	return nil, v.c.NotStored(ctx, a, of)
}

// offered returns a version of the union of the registry and the origin, whether or not it is approved.
func (v View) offered(ctx context.Context, a subject.Address, of provider.Version) (*Item, error) {
	q := v.question(version, a)
	q.version = of
	return v.get(ctx, q)
}

// Store makes the origin store a version that the registry lacks, so that it can be approved. It returns at once. It is called
// when a client has requested the version, and [View.Version] has returned the error of [Catalog.NotStored].
func (v View) Store(ctx context.Context, a provider.Address, of provider.Version) {
	item, err := v.offered(ctx, a, of) // in memory, because View.Version has asked for it
	if err == nil && len(item.Found.Packages) > 0 {
		v.Package(ctx, a, of, item.Found.Packages[0]).Requested()
	}
}

// NotStored returns the *[DeniedError] of a version that needs approvals and is not in the registry. It wraps [ErrNotStored].
func (c *Catalog) NotStored(ctx context.Context, a subject.Address, v provider.Version) error {
	err := notApproved(a, v, c.opts.Approvals.Unnamed(ctx, a, v, "", ErrNotStored))
	if denied, ok := errors.AsType[*DeniedError](err); ok {
		denied.notStored = true
	}
	return err
}

// notApproved returns a *[DeniedError] if a version is not approved, and nil otherwise.
func notApproved(a subject.Address, v provider.Version, verdict approval.Verdict) error {
	missing := &approval.NotApproved{}
	if !errors.As(verdict.Err(), &missing) {
		return nil
	}
	return &DeniedError{Subject: a, Version: v, Reason: missing.Reason(), Approval: missing}
}

// isApproved reports whether it is known, without another look at the registry, that an item is served as far as approvals
// are concerned.
func (c *Catalog) isApproved(i *Item, now time.Time) bool {
	if c.opts.Approvals == nil || i.IsListing() || i.Found == nil || !c.policy(i.about.subject).Enforces() {
		return true
	}
	answer := c.cache.Current(i.approval, now)
	return answer != nil && answer.Err == nil && answer.Value.verdict.Err() == nil
}

// deniedManifest returns a *[DeniedError] if a rule denies the manifest of a version by its digest, and nil otherwise.
func (c *Catalog) deniedManifest(i *Item) error {
	found := i.Stored()
	if found == nil {
		return nil
	}
	return c.deniedAs(i.about.subject, i.Version, found.Index.Digest)
}

// deniedAs returns a *[DeniedError] if a rule denies a version whose tag names the given manifest, and nil otherwise.
func (c *Catalog) deniedAs(a subject.Address, v provider.Version, manifest digest.Digest) error {
	if rule, ok := FindDeny(c.opts.Deny, a, v, manifest); ok {
		return &DeniedError{Subject: a, Version: v, Reason: rule.Reason}
	}
	return nil
}

// observe looks up the signatures of a version in the background, if its approvals are only reported.
func (c *Catalog) observe(i *Item) {
	found := i.Stored()
	if found == nil || found.Index.Digest == "" || c.policy(i.about.subject).IsZero() {
		return
	}
	q := c.approvalOf(i.about.subject, i.Version, found.Index)
	if c.cache.Last(q).Current(time.Now()) {
		return
	}
	c.learning.add(q.name(), func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
		defer cancel()
		_, _ = c.Approval(ctx, i) // the next request asks again
	})
}

// savedSignature is an [approval.Signature] in a record. The signature is verified whenever the record is read.
type savedSignature struct {
	Manifest    digest.Digest     `json:"manifest"`
	Bundle      []byte            `json:"bundle,omitempty"`
	Payload     []byte            `json:"payload,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// savedSignatures returns signatures for a record. The bool is false if they are too large.
func savedSignatures(all []approval.Signature) (out []savedSignature, ok bool) {
	size := 0
	for _, s := range all {
		out = append(out, savedSignature(s))
		size += len(s.Bundle) + len(s.Payload)
		for key, value := range s.Annotations {
			size += len(key) + len(value)
		}
	}
	return out, size <= maxSavedSignatures
}

// approvalIn returns the verdict on the signatures in a record. The error is errNotSaved if they decide nothing under the present
// policy.
func (c *Catalog) approvalIn(up *upstream, r record) (approval.Verdict, error) {
	var signatures []approval.Signature
	for _, s := range r.Signatures {
		signatures = append(signatures, approval.Signature(s))
	}
	verdict, err := c.opts.Approvals.Recheck(c.ctx, up.subject, up.version, up.desc.Digest, signatures)
	if err == nil {
		err = c.checkComplete(up.subject, verdict)
	}
	if err == nil && verdict.Err() != nil && r.Policy != c.policy(up.subject).ID() {
		err = errNotSaved // the manifest may have other signatures, which the present policy needs
	}
	return verdict, err
}

// checkComplete returns an error unless a verdict is about every requirement. The zero verdict, which has no missing approval, must
// never serve a version.
func (c *Catalog) checkComplete(of subject.Address, v approval.Verdict) error {
	if all := c.policy(of).Requirements(); len(v.Approvals)+len(v.Missing) != len(all) {
		return fmt.Errorf("the verdict on the approvals is about %d of %d requirements", len(v.Approvals)+len(v.Missing), len(all))
	}
	return nil
}

// verdictSize is roughly the memory of a verdict, in bytes.
func verdictSize(v approval.Verdict) int64 {
	n := int64(0)
	for _, a := range v.Approvals {
		n += 400 + int64(len(a.Manifest))
	}
	for _, m := range v.Missing {
		n += 80 + int64(len(m.Reason))
	}
	return n
}
