package pusher

import "testing"

// TestEvidenceDecision is the decision table for the choice between stored, released and
// announced evidence.
func TestEvidenceDecision(t *testing.T) {
	var (
		none       = candidate{}
		unreadable = candidate{gradeUnreadable, false}
		record     = candidate{gradeRecord, true}
		checksums  = candidate{gradeChecksums, true}
		signed     = candidate{gradeSigned, true}
		misfit     = candidate{gradeSigned, false} // signed, but does not list a package of the version
		weakMisfit = candidate{gradeChecksums, false}
	)
	for _, tc := range []struct {
		name  string
		facts evidenceFacts
		want  evidenceAction
	}{
		{"nothing anywhere", evidenceFacts{stored: none, release: none}, keepEvidence},
		{"none stored", evidenceFacts{stored: none, release: signed, unchanged: true}, addEvidence},
		{"none stored, the release has checksums", evidenceFacts{stored: none, release: checksums, unchanged: true}, addEvidence},
		{"none stored, the release has a record", evidenceFacts{stored: none, release: record, unchanged: true}, addEvidence},
		{"none stored, the registry refuses evidence", evidenceFacts{stored: none, release: none, unchanged: true}, keepEvidence},
		{"none stored, a package is another release's", evidenceFacts{stored: none, release: misfit, unchanged: true}, refuseEvidence},
		{"none stored, another release's package, by force", evidenceFacts{stored: none, release: misfit, force: true}, addEvidence},
		{"none stored, another push announced some", evidenceFacts{stored: none, release: record, announced: signed}, completeEvidence},
		{"none stored, the announced one does not cover the packages", evidenceFacts{stored: none, release: signed, announced: misfit}, addEvidence},

		{"the same", evidenceFacts{stored: signed, release: signed, same: true, unchanged: true}, keepEvidence},
		{"the same, unsigned, and another push announced signed", evidenceFacts{stored: record, release: record, same: true, announced: signed}, completeEvidence},
		{"another signature", evidenceFacts{stored: signed, release: signed}, keepEvidence},
		{"another signature, and another push announced one", evidenceFacts{stored: signed, release: signed, announced: signed}, keepEvidence},
		{"weaker", evidenceFacts{stored: signed, release: checksums}, keepEvidence},
		{"weaker, and the stored one does not cover the packages", evidenceFacts{stored: misfit, release: checksums}, refuseEvidence},
		{"unchanged, although the stored one does not cover the packages", evidenceFacts{stored: misfit, release: checksums, unchanged: true}, keepEvidence},
		{"the publisher signed more platforms", evidenceFacts{stored: misfit, release: signed}, replaceEvidence},
		{"another push announced what the publisher signed anew", evidenceFacts{stored: misfit, release: misfit, announced: signed}, completeEvidence},
		{"stronger", evidenceFacts{stored: checksums, release: signed}, replaceEvidence},
		{"equally weak", evidenceFacts{stored: checksums, release: checksums}, keepEvidence},
		{"unreadable, and the release is signed", evidenceFacts{stored: unreadable, release: signed}, replaceEvidence},
		{"unreadable, and the release is weak", evidenceFacts{stored: unreadable, release: checksums}, refuseEvidence},

		{"refresh, signed by another key", evidenceFacts{stored: signed, release: signed, refresh: true}, replaceEvidence},
		{"refresh by stronger", evidenceFacts{stored: record, release: signed, refresh: true}, replaceEvidence},
		{"refresh by weaker", evidenceFacts{stored: signed, release: checksums, refresh: true}, keepEvidence},
		{"refresh by a record", evidenceFacts{stored: checksums, release: record, refresh: true}, keepEvidence},
		{"refresh by a document of fewer packages", evidenceFacts{stored: signed, release: misfit, refresh: true}, keepEvidence},
		{"refresh of unreadable evidence", evidenceFacts{stored: unreadable, release: record, refresh: true}, replaceEvidence},
		{"refresh of unreadable evidence, and another push announced signed", evidenceFacts{stored: unreadable, release: record, announced: signed, refresh: true}, completeEvidence},
		{"refresh where the registry refuses evidence", evidenceFacts{stored: checksums, release: none}, keepEvidence},

		{"packages replaced", evidenceFacts{stored: signed, release: checksums, replaced: true, force: true}, replaceEvidence},
		{"packages replaced where none is stored", evidenceFacts{stored: none, release: signed, replaced: true, force: true}, addEvidence},
		{"by force, unsigned evidence", evidenceFacts{stored: misfit, release: weakMisfit, force: true}, replaceEvidence},
		{"by force, without a contradiction", evidenceFacts{stored: signed, release: checksums, force: true, unchanged: true}, keepEvidence},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.facts.choose(); got != tc.want {
				t.Errorf("%+v: %s, want %s", tc.facts, got, tc.want)
			}
		})
	}
}

// TestEvidenceDecisionIsSafe shows for all combinations of facts that, without force, no
// version gets evidence that contradicts its packages. An unchanged version may keep such
// evidence. The test also shows that weaker evidence never replaces evidence that covers the
// version.
func TestEvidenceDecisionIsSafe(t *testing.T) {
	var candidates []candidate
	for g := gradeAbsent; g <= gradeSigned; g++ {
		candidates = append(candidates, candidate{g, false}, candidate{g, true})
	}
	announced := []candidate{{}, {gradeSigned, false}, {gradeSigned, true}}
	for _, stored := range candidates {
		for _, release := range candidates {
			for _, other := range announced {
				for bits := range 1 << 4 {
					f := evidenceFacts{stored: stored, release: release, announced: other,
						same: bits&1 != 0 && stored == release, unchanged: bits&2 != 0, refresh: bits&4 != 0 && release.grade != gradeAbsent, replaced: bits&8 != 0}
					action := f.choose()
					got := f.of(action)
					if action == refuseEvidence || action == keepEvidence && f.unchanged {
						continue
					}
					if !got.covers {
						t.Fatalf("%+v: %s does not cover the packages", f, action)
					}
					if !f.replaced && stored.covers && got.grade < stored.grade {
						t.Fatalf("%+v: %s stores weaker evidence", f, action)
					}
				}
			}
		}
	}
}
