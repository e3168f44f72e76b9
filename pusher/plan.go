package pusher

import (
	"cmp"
	"context"
	"fmt"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// Action is what a push, a sync or a removal does with a version.
type Action string

// The actions of a plan.
const (
	ActionPush   Action = "push"   // the version is missing
	ActionAdd    Action = "add"    // the version lacks platforms or, in a push, evidence or documentation
	ActionRepair Action = "repair" // the version is stored, and its evidence is missing or refused
	ActionKeep   Action = "keep"   // the version is in place
	ActionWait   Action = "wait"   // the cooldown of the version has not ended
	ActionPrune  Action = "prune"  // no block requests the version
	// ActionReplace means that a push replaces stored packages, evidence or documentation. A sync never does.
	ActionReplace Action = "replace"
)

// Step is the plan for one version.
type Step struct {
	Subject subject.Address  `json:"-"` // in JSON, the key is the word for its kind
	Version provider.Version `json:"version"`
	Action  Action           `json:"action"`
	// Platforms are the platforms to push, to add, to repair, to replace or to prune. For
	// ActionKeep, they are the platforms in place. A module has none.
	Platforms []provider.Platform `json:"platforms,omitempty"`
	// Size is the total size of the packages for Platforms in bytes; -1: unknown.
	Size int64 `json:"size"`
	// Until is when the wait ends; zero unless Action is ActionWait.
	Until time.Time `json:"until,omitzero"`
	// FirstSync is set if the cooldown does not apply to the version, because this is the
	// first sync of the provider or module with a cooldown.
	FirstSync bool `json:"first_sync,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (s Step) MarshalJSON() ([]byte, error) {
	type others Step
	return document.Join(subject.Member(s.Subject), others(s))
}

// PushPlan is the plan of a push.
type PushPlan struct {
	Step
	Warnings []string
}

// PlanPush returns what [Pusher.Push] would probably do, and its warnings. It writes nothing. It fails if Push
// would fail before it sends anything. It reads only packages in folders, and packages whose digest is unknown
// until they are read. It therefore does not know which index entries a forced push would correct.
func (p *Pusher) PlanPush(ctx context.Context, r *origin.Release) (*PushPlan, error) {
	w, err := p.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	defer w.unlock()
	w.refresh = p.o.RefreshEvidence
	after, status, err := w.plan(repo.MayPush(ctx, w.Dest.Repository))
	if err != nil {
		return nil, err
	}
	out := &PushPlan{Step: w.step(after, status)}
	for _, text := range w.result(ctx, after, status).Warnings {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%s %s: %s", r.Provider(), r.Version(), text))
	}
	return out, nil
}

// plan returns the version that run would probably store, without the digest of a new index.
func (w *push) plan(ctx context.Context) (*artifact.Version, Status, error) {
	ctx = outgoing.WithClock(ctx, w.clock)
	missing, err := w.compare(ctx)
	if err != nil {
		return nil, "", err
	}
	var expected []artifact.Package
	for _, pkg := range missing {
		planned, err := w.planPackage(ctx, pkg)
		if err != nil {
			return nil, "", orOthers(err, w.release)
		}
		if planned != nil {
			expected = append(expected, *planned)
		}
	}
	var evidence *ocispec.Descriptor
	if !w.withoutEvidence() && (w.before == nil || len(expected) > 0 || w.offersEvidence()) {
		evidence = &w.evidence.Descriptor
	}
	if w.docs != nil {
		w.offeredDocs = &w.docs.manifest.Descriptor
	}
	s, err := w.situation(ctx, w.before, otherPushes{}, w.ownPackages(expected), evidence)
	if err != nil {
		return nil, "", err
	}
	d := s.decide()
	if d.conflict != nil {
		return nil, "", w.conflictError(d.conflict)
	}
	return d.version, statusOf(w.before, d.version, w.o.Force), nil
}

// planPackage returns a missing package as the push would store it, or nil if the stored version has it.
func (w *push) planPackage(ctx context.Context, pkg origin.Package) (*artifact.Package, error) {
	if w.original != nil {
		return w.planCopied(ctx, pkg)
	}
	out := &artifact.Package{Platform: pkg.Platform, Filename: pkg.Filename}
	sum, known := w.knownSum(pkg)
	if known && pkg.Host != "" {
		out.Digest, out.Size = sum, pkg.Size(ctx)
	} else {
		read, err := w.read(ctx, pkg)
		if err != nil {
			return nil, err
		}
		out = &read
	}
	if inPlace, err := w.checkPackage(*out); inPlace || err != nil {
		return nil, err
	}
	if there := w.present(pkg.Platform); there != nil && there.Digest == out.Digest {
		return there, nil // a forced push sends it again
	}
	return out, nil
}

// read reads and verifies a package, and stores nothing.
func (w *push) read(ctx context.Context, pkg origin.Package) (artifact.Package, error) {
	s, err := w.open(ctx, pkg)
	if err != nil {
		return artifact.Package{}, err
	}
	defer s.Close()
	if err := s.drain(); err != nil {
		return artifact.Package{}, err
	}
	out, _, err := artifact.EncodePackage(s.accepted())
	return out, err
}

// step returns the step of a push. after is the version that is stored after the push.
func (w *push) step(after *artifact.Version, status Status) Step {
	step := Step{Subject: w.release.Provider(), Version: w.release.Version(), Action: cmp.Or(actions[status], ActionReplace)}
	for _, p := range after.Packages {
		if step.Action != ActionKeep && w.before != nil && repo.HasPackage(w.before.Packages, p) {
			continue
		}
		step.Platforms = append(step.Platforms, p.Platform)
		if step.Size >= 0 && p.Size >= 0 {
			step.Size += p.Size
		} else {
			step.Size = -1
		}
	}
	provider.SortPlatforms(step.Platforms)
	return step
}

// actions maps the status of a push to its action. Pushes with any other status replace something.
var actions = map[Status]Action{Pushed: ActionPush, Completed: ActionAdd, Unchanged: ActionKeep}

// PlanCopy returns the result that [Pusher.Copy] would probably have, without the referrers and the digest of a
// new index. It writes nothing, and reads no package. In the result, Sent is true for each package that is not
// left out and whose bytes the destination lacks, although the registry might mount it.
func (p *Pusher) PlanCopy(ctx context.Context, from Stored, v provider.Version, want []provider.Platform) (*Result, error) {
	if !subject.TraitsOf(from.Subject).Packages {
		return p.planCopyZip(ctx, from, v)
	}
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

// planCopied returns a missing package as the source describes it, and notes whether it would be sent or left out.
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
