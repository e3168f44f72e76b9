package pusher

import "github.com/ocibridge/ocibridge/trust"

// grade is the strength of evidence. Evidence with a higher grade proves more.
type grade int

const (
	gradeAbsent     grade = iota // there is no evidence
	gradeUnreadable              // the evidence cannot be read
	gradeRecord                  // only a record: the packages matched unsigned hashes
	gradeChecksums               // an unsigned SHA256SUMS
	gradeSigned                  // a SHA256SUMS with its signature
)

// gradeOf returns the grade of readable evidence.
func gradeOf(verdict trust.Verdict, document []byte) grade {
	switch {
	case verdict == trust.Signed:
		return gradeSigned
	case len(document) > 0:
		return gradeChecksums
	}
	return gradeRecord
}

// candidate is evidence that a version might get.
type candidate struct {
	grade grade
	// covers is set if the evidence has no SHA256SUMS, or one that lists all packages of the version.
	covers bool
}

// evidenceFacts is the input of [evidenceFacts.choose].
type evidenceFacts struct {
	stored    candidate // the evidence that the version has
	release   candidate // the evidence of this push; absent if the registry refuses evidence
	announced candidate // the signed evidence that another push announced, or absent

	same      bool // stored and release are the same evidence
	unchanged bool // the stored version already has exactly these packages
	replaced  bool // packages are replaced, so the stored evidence is about other packages
	refresh   bool // the user or a sync wants the release's evidence to replace the stored evidence
	force     bool
}

// evidenceAction says which evidence a version gets.
type evidenceAction string

const (
	keepEvidence     evidenceAction = "keep"     // the stored evidence, or no evidence if none is stored
	addEvidence      evidenceAction = "add"      // the release's evidence, because none is stored
	replaceEvidence  evidenceAction = "replace"  // the release's evidence instead of the stored evidence
	completeEvidence evidenceAction = "complete" // the announced evidence
	refuseEvidence   evidenceAction = "refuse"   // a conflict, because no evidence covers the packages
)

// choose returns the action for a version. It keeps stored evidence that does not cover the packages only if the
// packages do not change. Only a forced push stores new evidence that does not cover them.
func (f evidenceFacts) choose() evidenceAction {
	action := f.strongest()
	switch {
	case action == keepEvidence && f.unchanged, f.of(action).covers:
		return action
	case f.release.grade == gradeSigned && f.release.covers: // the publisher has signed a SHA256SUMS with more platforms
		return f.useRelease()
	case f.release.grade == gradeSigned && f.announced.grade == gradeSigned && f.announced.covers:
		return completeEvidence
	case f.force:
		return f.useRelease()
	}
	return refuseEvidence
}

// strongest compares the grades of the candidates. Stored evidence wins a tie, unless a refresh is requested.
// Nothing replaces evidence with weaker evidence, or signed evidence with evidence that does not cover the
// packages.
func (f evidenceFacts) strongest() evidenceAction {
	announced := f.announced.grade != gradeAbsent
	notWeaker := f.release.grade >= f.stored.grade && (f.stored.grade < gradeSigned || f.release.covers)
	switch {
	case f.replaced:
		return f.useRelease()
	case f.stored.grade == gradeAbsent && announced:
		return completeEvidence
	case f.stored.grade == gradeAbsent:
		return f.useRelease()
	case f.same && !announced:
		return keepEvidence
	case f.refresh && notWeaker && f.stored.grade > gradeUnreadable:
		return replaceEvidence
	case f.stored.grade == gradeSigned:
		return keepEvidence
	case announced:
		return completeEvidence
	case f.release.grade == gradeSigned, f.refresh && notWeaker:
		return replaceEvidence
	}
	return keepEvidence
}

// useRelease returns the action that gives the version the release's evidence.
func (f evidenceFacts) useRelease() evidenceAction {
	switch {
	case f.stored.grade != gradeAbsent:
		return replaceEvidence
	case f.release.grade != gradeAbsent:
		return addEvidence
	}
	return keepEvidence
}

// of returns the candidate that an action chooses. Absent evidence covers every version.
func (f evidenceFacts) of(a evidenceAction) candidate {
	chosen := map[evidenceAction]candidate{
		keepEvidence: f.stored, addEvidence: f.release, replaceEvidence: f.release, completeEvidence: f.announced,
	}[a]
	chosen.covers = chosen.covers || chosen.grade == gradeAbsent
	return chosen
}
