package origin

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// mirrorIndex is the content of index.json.
type mirrorIndex struct {
	Versions member[map[string]json.RawMessage] `json:"versions"`
}

// check returns an error for a document without a list, or with too many versions.
func (i *mirrorIndex) check() error {
	if !i.Versions.given {
		return noVersionList("the mirror does not keep to the provider network mirror protocol")
	}
	return checkCount("versions", len(i.Versions.value), maxVersions)
}

// mirrorVersion is the content of VERSION.json.
type mirrorVersion struct {
	Archives map[string]mirrorArchive `json:"archives"`
}

// check returns an error for a document with too many packages or hashes.
func (c *mirrorVersion) check() error {
	if err := checkCount("packages of one version", len(c.Archives), maxPlatforms); err != nil {
		return err
	}
	for _, a := range c.Archives {
		if err := checkCount("hashes of one package", len(a.Hashes), maxHashes); err != nil {
			return err
		}
	}
	return nil
}

// knownPlatforms returns the platforms of the packages, sorted, and the keys that are not
// platforms. A client looks up only its own platform, so it ignores such keys.
func (c *mirrorVersion) knownPlatforms() (out []provider.Platform, ignored names) {
	for _, s := range slices.Sorted(maps.Keys(c.Archives)) {
		p, err := provider.ParsePlatform(s)
		if err != nil {
			ignored = append(ignored, quote(s))
			continue
		}
		out = append(out, p)
	}
	provider.SortPlatforms(out)
	return out, ignored
}

type mirrorArchive struct {
	URL    string   `json:"url"`
	Hashes []string `json:"hashes"`
}

// check returns the package's hashes. The URL must be the given file name, relative to
// the JSON document.
func (a mirrorArchive) check(filename string) ([]provider.Hash, error) {
	if a.URL != filename || !provider.ValidFilename(filename) {
		return nil, hint.New(fmt.Sprintf("the package is at %.200q, not at %s", a.URL, filename),
			"only packages beside their JSON, named as providers mirror names them, are read from a folder")
	}
	out, err := a.knownHashes()
	return out, hint.Wrap(err, helpRewrite)
}

// knownHashes returns the hashes of known schemes. It returns none if the document gives
// no hash at all; clients install such a package unchecked. Like clients, knownHashes
// ignores unknown schemes if there is a known one, and fails if there is not.
func (a mirrorArchive) knownHashes() ([]provider.Hash, error) {
	out, err := parseHashes(a.Hashes)
	if err == nil && len(out) == 0 && len(a.Hashes) > 0 {
		return nil, hint.New(fmt.Sprintf("the JSON gives no hash to check the package with, only unknown schemes: %s", quoteAll(a.Hashes)),
			"clients refuse the package, too: write the mirror anew with a current client's providers mirror")
	}
	return out, err
}

// parseHashes returns the hashes of known schemes.
func parseHashes(hashes []string) ([]provider.Hash, error) {
	var out []provider.Hash
	for _, s := range hashes {
		scheme, _, _ := strings.Cut(s, ":")
		if scheme != "h1" && scheme != "zh" {
			continue
		}
		h, err := provider.ParseHash(s)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

// checkSchemes returns an error if any hash has no scheme. Clients of network mirrors
// refuse the package then, even if it has other hashes.
func (a mirrorArchive) checkSchemes() error {
	for _, s := range a.Hashes {
		if scheme, _, found := strings.Cut(s, ":"); !found || scheme == "" {
			return fmt.Errorf("the hash %.80q has no scheme: clients refuse the package", s)
		}
	}
	return nil
}

// mirrorContents is the content of a mirror folder's documents about a provider.
type mirrorContents map[provider.Version]*mirrorVersion

// another returns a different version with one of the same hashes for a platform. A bug
// in OpenTofu's providers mirror produces such folders.
func (c mirrorContents) another(v provider.Version, platform string, hashes []string) (provider.Version, bool) {
	for other, document := range c {
		theirs := document.Archives[platform].Hashes
		if other != v && slices.ContainsFunc(hashes, func(h string) bool { return slices.Contains(theirs, h) }) {
			return other, true
		}
	}
	return provider.Version{}, false
}
