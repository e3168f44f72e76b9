package closure

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/apparentlymart/go-versions/versions"
	goversion "github.com/hashicorp/go-version"

	"github.com/ocibridge/ocibridge/provider"
)

// maxConstraint is the maximum length of a constraint in bytes.
const maxConstraint = 1024

// candidates are the versions of a module, as clients parse them.
type candidates []candidate

type candidate struct {
	version provider.Version
	parsed  *goversion.Version
}

func newCandidates(versions []provider.Version) (out candidates) {
	for _, v := range versions {
		if parsed, err := goversion.NewVersion(v.String()); err == nil {
			out = append(out, candidate{v, parsed})
		}
	}
	return out
}

// newest returns the version that clients select for a module block: the newest one that the constraint allows. An empty
// constraint allows every release. Clients select a prerelease only if it is the whole constraint.
//
// Constraints of modules are not those of providers: clients parse them with another library, for which ~> 1 allows 2.0.0.
func (c candidates) newest(constraint string) (provider.Version, error) {
	if len(constraint) > maxConstraint {
		return provider.Version{}, fmt.Errorf("its version constraint is longer than %d characters", maxConstraint)
	}
	var required goversion.Constraints
	if constraint != "" {
		var err error
		if required, err = goversion.NewConstraint(constraint); err != nil {
			return provider.Version{}, fmt.Errorf("its version constraint %q is not valid", constraint)
		}
	}
	prereleases := prereleasesFor(required)
	var best candidate
	for _, of := range c {
		if of.parsed.Prerelease() != "" && !prereleases(of.parsed) || !required.Check(of.parsed) {
			continue
		}
		if best.parsed == nil || of.parsed.GreaterThan(best.parsed) {
			best = of
		}
	}
	switch {
	case best.parsed != nil:
		return best.version, nil
	case constraint == "":
		return best.version, errors.New("it has no release")
	}
	return best.version, fmt.Errorf("it has no version that the constraint %q allows", constraint)
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
