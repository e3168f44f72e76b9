package catalog

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// A list of versions omits the versions that are not approved. But a list must not cost a look-up of signatures for each
// version, and it must not lose versions while the registry fails. So a list uses what is known: earlier verdicts, and the
// signers in the summary. Of the other versions, the newest are looked up before the list is served, and the rest in the
// background. Until then they are listed. This is safe, because a list decides nothing: every request for a version is
// decided by the version's signatures.

const (
	maxJudged    = 32              // the maximum number of versions that are looked up before a list is served
	judgedAtOnce = 8               // how many of them are looked up concurrently
	judgeTimeout = 2 * time.Second // the maximum time for these look-ups
	savedTimeout = time.Second     // the maximum time for reading verdicts from disk, newest versions first
	// maxWaiting is the number of the newest versions that are soon looked up again if they are not approved. Older versions are
	// looked up so soon only if the summary has new signers.
	maxWaiting = 4
)

// withheld is a version that a list omits.
type withheld struct {
	version provider.Version
	reason  string // the text that clients and users see, or ""
}

// judgement collects the versions that a list omits.
type judgement struct {
	c      *Catalog
	up     *upstream
	tags   tagList
	policy *approval.Policy

	mu  sync.Mutex
	out []withheld
}

// judge returns the listed versions that are not approved, or whose manifest a rule denies by its digest, oldest first. If up
// has no repository, judge uses only what is in memory and on disk. The bool is false if memory does not decide about all versions.
func (c *Catalog) judge(ctx context.Context, up *upstream, tags tagList) (out []withheld, complete bool) {
	j := &judgement{c: c, up: up, tags: tags, policy: c.policy(up.subject)}
	if !c.DecidesByManifest(up.subject) {
		return nil, true
	}
	unknown := j.known(ctx)
	complete = len(unknown) == 0
	if up.store != nil {
		j.lookUp(ctx, unknown[:min(len(unknown), maxJudged)])
		rest := unknown[min(len(unknown), maxJudged):]
		j.assume(rest...)
		for _, u := range rest {
			c.learning.add(j.name(u.version), func(ctx context.Context) {
				ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
				defer cancel()
				_, _ = j.ask(ctx, &u) // the next list asks again
			})
		}
	} else {
		j.assume(unknown...)
	}
	slices.SortFunc(j.out, func(a, b withheld) int { return a.version.Compare(b.version) })
	return j.out, complete
}

// undecided is a version about which a list has no current verdict.
type undecided struct {
	version  provider.Version
	manifest ocispec.Descriptor // zero if it is unknown
	last     *answer            // the last verdict, or nil
	always   bool               // the version is looked up for every list
	// nameless is the digest of a manifest that does not name the version, for the reason why; "" if none is known.
	nameless digest.Digest
	why      error
}

// resolved is the manifest that a version's tag named when a list asked for it.
type resolved struct {
	manifest  ocispec.Descriptor // zero if forbidden
	unnamed   error              // why no signature over the manifest can approve the version; nil if it can
	forbidden bool               // a policy of the registry forbids everybody to read the manifest
	at        time.Time
}

// isForbidden reports whether the policy of the registry is known well enough for a list. The newest versions are asked about
// again soon.
func (r resolved) isForbidden(now time.Time, newest bool) bool {
	ttl := ApprovedTTL
	if newest {
		ttl = unapprovedTTL
	}
	return r.forbidden && now.Sub(r.at) < ttl
}

// maxResolved is the maximum number of tags whose manifests are remembered for lists. One takes about 300 bytes.
const maxResolved = 16 << 10

// known decides about the versions whose verdicts are known, and returns the others, newest first.
func (j *judgement) known(ctx context.Context) (unknown []undecided) {
	c, a := j.c, j.up.subject
	now := time.Now()
	var waiting []undecided
	for i, v := range slices.Backward(j.tags.versions) {
		if c.Denied(a, v) != nil {
			continue
		}
		// If the registry is asked each time, so it is for the newest versions of a list.
		u := undecided{version: v, always: c.opts.TagTTL < 0 && len(j.tags.versions)-i <= maxJudged}
		known, ok := c.resolved.Get(j.name(v))
		if !u.always && known.isForbidden(now, len(j.tags.versions)-i <= maxWaiting) {
			j.forbid(ctx, v)
			continue
		}
		if ok && now.Sub(known.at) < ApprovedTTL {
			u.setManifest(known)
		} else if ok {
			u.last = c.cache.Last(c.approvalOf(a, v, known.manifest))
		}
		if last := c.cache.Last(c.Registry().versionOf(a, v)); last != nil && last.Err == nil {
			found := last.Value.Found
			if unnamed := artifact.NamesItself(found, a, v); unnamed != nil {
				u.nameless, u.why = found.Index.Digest, unnamed
			}
			if now.Sub(last.At) < ApprovedTTL {
				u.manifest = found.Index
			}
		}
		if u.manifest.Digest != "" {
			u.last = c.cache.Last(c.approvalOf(a, v, u.manifest))
		}
		switch {
		case u.manifest.Digest == "", u.always:
			unknown = append(unknown, u)
		case j.isSettled(ctx, &u, u.manifest.Digest):
		case !u.isWaiting(now) || len(j.tags.versions)-i <= maxWaiting:
			if u.isWaiting(now) || !j.decide(&u, now) {
				unknown = append(unknown, u)
			}
		default:
			waiting = append(waiting, u)
		}
	}
	if len(unknown) < minSummarized && len(waiting) == 0 || !subject.TraitsOf(a).Packages {
		j.assume(waiting...)
		return unknown
	}
	summary := j.summary(ctx)
	for _, u := range waiting {
		if described := summary[u.version]; described.Index == u.manifest.Digest && j.policy.Expect(described.Signers).Err() == nil {
			unknown = append(unknown, u) // it was approved since
		} else {
			j.assume(u)
		}
	}
	still := unknown[:0]
	for _, u := range unknown {
		if described, ok := summary[u.version]; !ok || u.always || !j.decideAs(ctx, &u, described, now) {
			still = append(still, u)
		}
	}
	slices.SortFunc(still, func(a, b undecided) int { return b.version.Compare(a.version) })
	return still
}

// setManifest sets the manifest of the version.
func (u *undecided) setManifest(r resolved) {
	if u.manifest = r.manifest; r.unnamed != nil {
		u.nameless, u.why = r.manifest.Digest, r.unnamed
	}
}

// mayName reports whether the tag of the version may name a manifest.
func (u *undecided) mayName(manifest digest.Digest) bool {
	return u.manifest.Digest == "" || u.manifest.Digest == manifest
}

// isWaiting reports whether the last verdict on a version is that it is not approved, and whether the verdict is current for lists,
// but so old that the version may have been approved since.
func (u *undecided) isWaiting(now time.Time) bool {
	if u.last == nil || u.last.Err != nil || u.last.Value.verdict.Err() == nil {
		return false
	}
	age := now.Sub(u.last.At)
	return unapprovedTTL <= age && age < ApprovedTTL
}

// decideAs decides about a version by its description in the summary, if that is possible.
func (j *judgement) decideAs(ctx context.Context, u *undecided, described artifact.VersionSummary, now time.Time) bool {
	switch u.manifest.Digest {
	case "":
		mediaType, _ := artifact.TypeOf(j.up.subject.Kind())
		hinted := *u
		hinted.manifest = ocispec.Descriptor{MediaType: mediaType, Digest: described.Index}
		if j.isSettled(ctx, &hinted, described.Index) || j.decide(&hinted, now) {
			return true
		}
		// The manifest of u stays unknown, because the tag may name another manifest than the summary.
	case described.Index:
	default:
		return false // the description is of another manifest
	}
	if u.isWaiting(now) {
		return false
	}
	return j.policy.Expect(described.Signers).Err() == nil
}

// summary returns the summary of a provider's versions, or nil if it cannot be read in time.
func (j *judgement) summary(ctx context.Context) artifact.Summary {
	q := j.c.Registry().question(summary, j.up.subject)
	if j.up.store == nil {
		if last := j.c.cache.Last(q); last != nil && last.Err == nil {
			return last.Value.summary
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, summaryTimeout)
	defer cancel()
	answer, err := j.c.cache.GetFor(ctx, q)
	if err != nil || answer.Err != nil {
		return nil
	}
	return answer.Value.summary
}

// name returns the name of a version among those of all providers and modules.
func (j *judgement) name(v provider.Version) string { return pathOf(j.up.subject) + "/" + v.String() }

// isSettled reports whether the signatures of a version's manifest make no difference. It withholds the version if a rule denies
// the manifest by its digest, or if the manifest does not name the version.
func (j *judgement) isSettled(ctx context.Context, u *undecided, manifest digest.Digest) bool {
	rule, denied := FindDeny(j.c.opts.Deny, j.up.subject, u.version, manifest)
	switch {
	case denied:
		j.add(withheld{u.version, rule.Reason})
		return true
	case j.policy.Enforces() && u.nameless == manifest:
		j.withhold(u.version, j.c.opts.Approvals.Unnamed(ctx, j.up.subject, u.version, manifest, u.why))
		return true
	}
	return !j.policy.Enforces()
}

// decide decides about a version if its verdict is known and current. Otherwise it sets u.last.
func (j *judgement) decide(u *undecided, now time.Time) bool {
	u.last = j.c.cache.Last(j.c.approvalOf(j.up.subject, u.version, u.manifest))
	if u.last == nil || u.last.Err != nil || now.Sub(u.last.At) >= ApprovedTTL {
		return false
	}
	j.withhold(u.version, u.last.Value.verdict)
	return true
}

// withhold adds a version if its verdict is that it is not approved.
func (j *judgement) withhold(v provider.Version, verdict approval.Verdict) {
	missing := &approval.NotApproved{}
	if errors.As(verdict.Err(), &missing) {
		j.add(withheld{v, missing.Reason()})
	}
}

// forbid adds a version that a policy of the registry forbids everybody to read.
func (j *judgement) forbid(ctx context.Context, v provider.Version) {
	j.withhold(v, j.c.opts.Approvals.Unnamed(ctx, j.up.subject, v, "", ErrForbidden))
}

func (j *judgement) add(w withheld) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.out = append(j.out, w)
}

// lookUp looks up the signatures of versions, and decides about the versions. What is known already decides about a version that
// cannot be looked up in time: see assume.
func (j *judgement) lookUp(ctx context.Context, all []undecided) {
	ctx, cancel := context.WithTimeout(ctx, judgeTimeout)
	defer cancel()
	var group panics.Group
	group.SetLimit(judgedAtOnce)
	for _, u := range all {
		group.Go(func() error {
			decided, err := j.ask(ctx, &u)
			if errors.Is(err, ErrForbidden) {
				j.forbid(ctx, u.version)
				return nil
			}
			if err != nil {
				j.c.opts.Log.DebugContext(ctx, "a version is listed without a look at its signatures", subject.Attr(j.up.subject), "version", u.version.String(), "err", hint.Brief(err))
				j.assume(u)
				return nil
			}
			if !j.isSettled(ctx, &u, decided.about.desc.Digest) {
				j.withhold(u.version, decided.verdict)
			}
			return nil
		})
	}
	group.Wait()
}

// assume decides about versions by their last verdicts, in memory or on disk. A version without a verdict is listed, as is one whose tag
// names another manifest than the last verdict is about.
func (j *judgement) assume(all ...undecided) {
	deadline := time.Now().Add(savedTimeout)
	for _, u := range all {
		switch {
		case u.manifest.Digest != "" && j.isSettled(j.c.ctx, &u, u.manifest.Digest):
		case u.last != nil && u.last.Err == nil && u.mayName(u.last.Value.about.desc.Digest):
			j.withhold(u.version, u.last.Value.verdict)
		case j.c.disk != nil && j.c.ctx.Err() == nil && time.Now().Before(deadline):
			j.assumeSaved(u)
		}
	}
}

// assumeSaved decides about a version by the records on disk, as a request for the version does while the registry fails.
func (j *judgement) assumeSaved(u undecided) {
	c, a := j.c, j.up.subject
	of := &upstream{c: c, question: c.Registry().versionOf(a, u.version)}
	index, indexed := c.savedRecord(of.question)
	signatures, judged := c.savedRecord(c.approvalOf(a, u.version, ocispec.Descriptor{}))
	if !indexed && !judged {
		return
	}
	// 1. The tag names the manifest in the later record, unless it has moved since.
	manifest := index.Index
	if !indexed || judged && signatures.Confirmed.After(index.Confirmed) {
		manifest = signatures.Index
	}
	if !u.mayName(manifest.Digest) {
		return
	}
	// 2. Signatures are looked up only for a manifest that names the version.
	judged = judged && signatures.Index.Digest == manifest.Digest
	if !judged && j.policy.Enforces() {
		found, err := artifact.ReadTagged(c.ctx, savedIndex{of, index.Index, index.Missing}, a, u.version, index.Tag)
		if err != nil {
			return
		}
		if u.why = artifact.NamesItself(found, a, u.version); u.why != nil {
			u.nameless = manifest.Digest
		}
	}
	if j.isSettled(c.ctx, &u, manifest.Digest) || !judged || signatures.Approved {
		return
	}
	// 3. The signatures on disk are verified again.
	of.question = c.approvalOf(a, u.version, manifest)
	if verdict, err := c.approvalIn(of, signatures); err == nil {
		j.withhold(u.version, verdict)
	}
}

// ask returns the item with the verdict on a version. It fetches the manifest of the version if the manifest is unknown, and then knows
// whether the manifest names the version. It does not read the version, because that may wait for the list. The error is
// [ErrForbidden] if a policy of the registry forbids everybody to read the version, and no earlier verdict is known.
func (j *judgement) ask(ctx context.Context, u *undecided) (*Item, error) {
	c := j.c
	if u.manifest.Digest == "" || u.always {
		tag, err := ociaddr.VersionTag(u.version)
		if err != nil {
			return nil, err
		}
		if slices.Contains(j.tags.leadingV, u.version) {
			tag = "v" + tag
		}
		manifest, unnamed, err := artifact.ResolveNamed(ctx, j.up.store, j.up.subject, u.version, tag)
		if u.last == nil && j.policy.Enforces() && refusals.Policy(err) {
			c.resolved.Add(j.name(u.version), resolved{forbidden: true, at: time.Now()})
			return nil, ErrForbidden
		}
		if err != nil {
			return nil, err
		}
		found := resolved{manifest: manifest, unnamed: unnamed, at: time.Now()}
		c.resolved.Add(j.name(u.version), found)
		u.setManifest(found)
	}
	q := c.approvalOf(j.up.subject, u.version, u.manifest)
	if !j.policy.Enforces() || u.nameless == u.manifest.Digest { // the signatures make no difference
		return newItem(q), nil
	}
	answer, err := c.cache.GetFor(ctx, q)
	if err != nil {
		return nil, err
	}
	return answer.Value, answer.Err
}

// withholdOffers adds the versions that only the origin has to those that a list omits, because nobody can have signed them.
func (c *Catalog) withholdOffers(ctx context.Context, item *Item, tags tagList, out []withheld) []withheld {
	if !c.policy(item.about.subject).Enforces() || c.opts.Approvals.Vouches(item.about.subject) {
		return out
	}
	out = slices.Clip(out)
	for _, o := range item.offers {
		if _, tagged := slices.BinarySearchFunc(tags.versions, o.Version, provider.Version.Compare); tagged || c.Denied(item.about.subject, o.Version) != nil {
			continue
		}
		missing := &approval.NotApproved{}
		if errors.As(c.opts.Approvals.Unnamed(ctx, item.about.subject, o.Version, "", ErrNotStored).Err(), &missing) {
			out = append(out, withheld{o.Version, missing.Reason()})
		}
	}
	slices.SortFunc(out, func(a, b withheld) int { return a.version.Compare(b.version) })
	return out
}

// background runs look-ups in the background: a bounded number, each name once at a time.
type background struct {
	log    *slog.Logger
	slots  chan struct{}
	ctx    context.Context
	cancel context.CancelFunc
	tasks  *sync.WaitGroup
	mu     *sync.Mutex
	queued map[string]bool // nil once it is closed
}

const (
	maxQueued     = 256 // the maximum number of look-ups that run or wait
	backgroundRun = 4   // how many of them run at a time
)

func newBackground(log *slog.Logger) background {
	ctx, cancel := context.WithCancel(context.Background())
	return background{log, make(chan struct{}, backgroundRun), ctx, cancel, &sync.WaitGroup{}, &sync.Mutex{}, map[string]bool{}}
}

// add runs f, unless a task with the same name waits or runs, or too many tasks wait.
func (b *background) add(name string, f func(context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queued == nil || b.queued[name] || len(b.queued) >= maxQueued {
		return
	}
	b.queued[name] = true
	b.tasks.Go(func() {
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.queued, name)
		}()
		select {
		case b.slots <- struct{}{}:
			defer func() { <-b.slots }()
			_ = panics.Catch(b.ctx, b.log, func() error { f(b.ctx); return nil })
		case <-b.ctx.Done():
		}
	})
}

// close ends all tasks, and waits for them.
func (b *background) close() {
	b.mu.Lock()
	b.queued = nil
	b.mu.Unlock()
	b.cancel()
	b.tasks.Wait()
}
