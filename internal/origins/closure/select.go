package closure

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/apparentlymart/go-versions/versions"
	goversion "github.com/hashicorp/go-version"

	"github.com/ocibridge/ocibridge/provider"
)

// maxConstraint is the maximum length of a constraint in bytes.
const maxConstraint = 1024

// candidates are the versions of a module, as clients parse them, newest first.
type candidates []candidate

type candidate struct {
	Offer
	parsed *goversion.Version
}

func newCandidates(offers []Offer) (out candidates) {
	for _, o := range offers {
		if parsed, err := goversion.NewVersion(o.Version.String()); err == nil {
			out = append(out, candidate{o, parsed})
		}
	}
	slices.SortStableFunc(out, func(a, b candidate) int { return b.parsed.Compare(a.parsed) })
	return out
}

// selection has the versions that clients can select for a constraint: first the one that they select, and then those that
// they select if the ones before cannot be brought. These are at most [maxRefused] versions that are not stored, and at last
// the newest stored version.
type selection struct {
	candidates []Offer
	at         int   // of the current candidate
	none       error // why there are no candidates

	first    provider.Version // that could not be brought
	err      error            // of this version
	reported bool
}

func (s *selection) version() provider.Version { return s.candidates[s.at].Version }

// refuse moves to the next candidate, because the current one cannot be brought. If the origin failed, only a stored version
// is left.
func (s *selection) refuse(err error) {
	if s.err == nil {
		s.first, s.err = s.version(), err
	}
	s.at++
	for errors.Is(err, ErrFailed) && s.at < len(s.candidates) && !s.candidates[s.at].Stored {
		s.at++
	}
}

// allowed returns what clients can select for a module block: the newest version that the constraint allows. An empty
// constraint allows every release. Clients select a prerelease only if it is the whole constraint.
//
// Constraints of modules are not those of providers: clients parse them with another library, for which ~> 1 allows 2.0.0.
func (c candidates) allowed(constraint string) *selection {
	if len(constraint) > maxConstraint {
		return &selection{none: fmt.Errorf("its version constraint is longer than %d characters", maxConstraint)}
	}
	var required goversion.Constraints
	if constraint != "" {
		var err error
		if required, err = goversion.NewConstraint(constraint); err != nil {
			return &selection{none: fmt.Errorf("its version constraint %q is not valid", constraint)}
		}
	}
	prereleases := prereleasesFor(required)
	s := &selection{}
	for _, of := range c {
		if !of.Stored && len(s.candidates) == maxRefused {
			continue
		}
		if of.parsed.Prerelease() != "" && !prereleases(of.parsed) || !required.Check(of.parsed) {
			continue
		}
		if s.candidates = append(s.candidates, of.Offer); of.Stored {
			break
		}
	}
	switch {
	case len(s.candidates) > 0:
	case constraint == "":
		s.none = errors.New("it has no release")
	default:
		s.none = fmt.Errorf("it has no version that the constraint %q allows", constraint)
	}
	return s
}

var vPrefix = regexp.MustCompile(`(^|[^0-9A-Za-z.+-])v([0-9])`)

// prereleasesFor returns a function that reports whether clients accept a prerelease for a constraint. As in the clients, the
// constraint is parsed in the syntax of another library: there, a list with commas is not valid, so it accepts no prerelease.
func prereleasesFor(required goversion.Constraints) func(*goversion.Version) bool {
	acceptable, err := versions.MeetingConstraintsString(vPrefix.ReplaceAllString(required.String(), "$1$2"))
	return func(v *goversion.Version) bool {
		if err != nil {
			return false
		}
		parsed, err := versions.ParseVersion(v.String())
		return err == nil && acceptable.Has(parsed)
	}
}
