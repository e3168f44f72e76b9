package origin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// packagesJSON is the report about all packages of a version. Newer origins add it to the
// document about each package. The keys are platforms.
type packagesJSON map[string]struct {
	Hashes []string `json:"hashes"`
	Size   int64    `json:"package_size"`
}

// reports parses the reports about packages. It returns an error if a size is not
// positive, or if there are reports but none for the requested platform. Clients refuse
// such reports, too. Unlike clients, it ignores unknown platforms and hash schemes.
func (ps packagesJSON) reports(asked provider.Platform) (map[provider.Platform]trust.Report, error) {
	if len(ps) == 0 {
		return nil, nil
	}
	if err := checkCount("packages of one version", len(ps), maxPlatforms); err != nil {
		return nil, err
	}
	if _, ok := ps[asked.String()]; !ok {
		return nil, fmt.Errorf("its packages lack %s", asked)
	}
	out := map[provider.Platform]trust.Report{}
	for name, p := range ps {
		platform, err := provider.ParsePlatform(name)
		if err != nil {
			continue
		}
		r := trust.Report{Size: p.Size}
		if p.Size <= 0 {
			return nil, fmt.Errorf("the answer gives the package_size %d for %s", p.Size, platform)
		}
		if err := checkCount("hashes of one package", len(p.Hashes), maxHashes); err != nil {
			return nil, err
		}
		if r.Hashes, err = parseHashes(p.Hashes); err != nil {
			return nil, fmt.Errorf("the answer gives a hash for %s: %w", platform, err)
		}
		slices.SortFunc(r.Hashes, func(a, b provider.Hash) int { return strings.Compare(a.String(), b.String()) })
		r.Hashes = slices.Compact(r.Hashes)
		out[platform] = r
	}
	return out, nil
}

// joinReports merges the reports in the documents about all platforms. The result maps
// file names to reports. It returns an error if two documents contradict each other.
func joinReports(a provider.Address, v provider.Version, platforms []provider.Platform, metas []*packageMeta) (map[string]trust.Report, error) {
	names := map[provider.Platform]string{}
	for i, m := range metas {
		names[platforms[i]] = m.Filename
	}
	out := map[string]trust.Report{}
	for i, m := range metas {
		for p, r := range m.reported {
			name, asked := names[p]
			if !asked {
				name = provider.PackageFilename(a, v, p)
			}
			before, known := out[name]
			if known && (before.Size != r.Size || !slices.Equal(before.Hashes, r.Hashes)) {
				return nil, hint.New(fmt.Sprintf("%s %s: the answer about %s gives for %s %d bytes and %v, another one gives %d bytes and %v",
					a, v, platforms[i], p, r.Size, r.Hashes, before.Size, before.Hashes), "the origin contradicts itself; nothing was stored")
			}
			out[name] = r
		}
	}
	return out, nil
}
