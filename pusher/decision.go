package pusher

import "github.com/ocibridge/ocibridge/trust"

// grade is how much evidence proves. A higher grade proves more.
type grade int

const (
	gradeAbsent     grade = iota // there is no evidence
	gradeUnreadable              // it does not read
	gradeRecord                  // a record alone: the packages matched hashes that nobody signed
	gradeChecksums               // a SHA256SUMS that nobody signed
	gradeSigned                  // a SHA256SUMS and its signature
)

// gradeOf returns the grade of evidence that reads.
func gradeOf(verdict trust.Verdict, document []byte) grade {
	switch {
	case verdict == trust.Signed:
		return gradeSigned
	case len(document) > 0:
		return gradeChecksums
	}
	return gradeRecord
}

// candidate is evidence that a version may get.
type candidate struct {
	grade grade
	// covers is set if the evidence contradicts no package of the version: its
	// SHA256SUMS lists all of them, or it has none.
	covers bool
}

// evidenceFacts are what the decision about a version's evidence depends on.
type evidenceFacts struct {
	stored    candidate // what the tag names
	release   candidate // what this push brings; absent if the registry refuses it
	announced candidate // what another push of some platforms left; signed, or absent

	same     bool // stored and release are the same evidence
	settled  bool // the tag already names exactly the version's packages
	replaced bool // packages are replaced, so that the stored evidence is about others
	refresh  bool // the user or a sync asks for the release's evidence
	force    bool
}

// evidenceAction says which evidence a version gets.
type evidenceAction string

const (
	keepEvidence     evidenceAction = "keep"     // what is stored, even if that is none
	addEvidence      evidenceAction = "add"      // the release's, where none is stored
	replaceEvidence  evidenceAction = "replace"  // the release's, in place of what is stored
	completeEvidence evidenceAction = "complete" // what the other push left
	refuseEvidence   evidenceAction = "refuse"   // no evidence covers the packages: conflict
)

// decide returns the action for a version. Evidence that does not cover the packages
// is only kept if nothing changes, and only stored by force.
func (f evidenceFacts) decide() evidenceAction {
	action := f.strongest()
	switch {
	case action == keepEvidence && f.settled, f.of(action).covers:
		return action
	case f.release.grade == gradeSigned && f.release.covers: // the publisher has signed more platforms
		return f.useRelease()
	case f.release.grade == gradeSigned && f.announced.grade == gradeSigned && f.announced.covers:
		return completeEvidence
	case f.force:
		return f.useRelease()
	}
	return refuseEvidence
}

// strongest chooses by grade alone. Stored evidence wins a tie, unless a refresh
// is asked for: even then, weaker evidence never replaces it.
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

// useRelease is the action that gives the version the release's evidence.
func (f evidenceFacts) useRelease() evidenceAction {
	switch {
	case f.stored.grade != gradeAbsent:
		return replaceEvidence
	case f.release.grade != gradeAbsent:
		return addEvidence
	}
	return keepEvidence
}

// of returns the evidence that an action chooses. No evidence at all covers
// everything: it contradicts no package.
func (f evidenceFacts) of(a evidenceAction) candidate {
	chosen := map[evidenceAction]candidate{
		keepEvidence: f.stored, addEvidence: f.release, replaceEvidence: f.release, completeEvidence: f.announced,
	}[a]
	chosen.covers = chosen.covers || chosen.grade == gradeAbsent
	return chosen
}
