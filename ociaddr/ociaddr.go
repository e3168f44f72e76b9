// Package ociaddr defines types for registry hosts, repositories and tags. It converts provider versions into tags and
// tags into versions. It does no I/O.
//
// Other programs may import this package. Until version 1.0, a change that breaks them needs a new minor version.
//
// Repository names and tags follow the OCI distribution specification 1.1. Digests have the type of the Go module
// go-digest.
package ociaddr

import (
	"crypto/rand"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

// Registry is the HOST or HOST:PORT of an OCI registry, such as ghcr.io or localhost:5000.
type Registry string

// IsLoopback reports whether the registry's host is a loopback address, localhost or a name
// under .localhost (RFC 6761). Requests to such a registry cross no network.
func (r Registry) IsLoopback() bool {
	host := string(r)
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// DockerHub is the canonical name of Docker Hub.
const DockerHub Registry = "docker.io"

// Canonical returns the form of the name that is used for comparison. The form is in lower
// case, and is [DockerHub] for each name of Docker Hub.
func (r Registry) Canonical() Registry {
	switch host := Registry(strings.ToLower(string(r))); host {
	case "index.docker.io", "registry-1.docker.io":
		return DockerHub
	default:
		return host
	}
}

// Repository is a repository of a registry, such as ghcr.io/acme/null. The zero value is not
// a valid repository.
type Repository struct {
	Registry Registry
	Name     string // the path within the registry, without leading and trailing slashes
}

// String returns REGISTRY/NAME.
func (r Repository) String() string { return string(r.Registry) + "/" + r.Name }

// MarshalText implements [encoding.TextMarshaler].
func (r Repository) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

var (
	// These expressions follow the grammar of the distribution specification and of its
	// reference implementation.
	hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)
	ipv6     = regexp.MustCompile(`^\[[0-9a-fA-F:.]+\]$`)
	namePart = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*$`)
	tag      = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`) // of at most maxTag characters
)

// maxTag is the maximum length of a tag.
const maxTag = 128

// maxRepositoryLen is the maximum length in bytes of REGISTRY/NAME. The distribution specification notes that many
// clients have this limit.
const maxRepositoryLen = 255

// ParseRegistry parses HOST or HOST:PORT.
func ParseRegistry(s string) (Registry, error) {
	host := s
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		host = s[:i]
		if port, err := strconv.ParseUint(s[i+1:], 10, 16); err != nil || port == 0 {
			return "", invalidRegistry(s)
		}
	}
	if len(host) > 253 || !hostname.MatchString(host) && !(ipv6.MatchString(host) && net.ParseIP(strings.Trim(host, "[]")) != nil) {
		return "", invalidRegistry(s)
	}
	return Registry(s), nil
}

func invalidRegistry(s string) error {
	if s = HideLogin(s); strings.Contains(s, "://") {
		return hint.New(fmt.Sprintf("invalid registry %q", s), "leave out the scheme: write the host alone, such as ghcr.io")
	}
	return hint.New(fmt.Sprintf("invalid registry %q", s), "a registry is HOST or HOST:PORT, such as ghcr.io or localhost:5000")
}

// ParseRepository parses REGISTRY/NAME. It returns an error if the registry is missing, or
// if a tag or digest follows the name.
func ParseRepository(s string) (Repository, error) {
	const help = "a repository is REGISTRY/NAME in lower case, such as ghcr.io/acme/providers/null"
	if strings.Contains(s, "://") {
		return Repository{}, hint.New(fmt.Sprintf("invalid repository %q: it starts with a scheme", HideLogin(s)), "write it without, such as ghcr.io/acme/null")
	}
	host, name, ok := strings.Cut(s, "/")
	if !ok {
		return Repository{}, hint.New(fmt.Sprintf("invalid repository %q: it has no name after the registry", HideLogin(s)), help)
	}
	registry, err := ParseRegistry(host)
	if err != nil {
		return Repository{}, fmt.Errorf("invalid repository %q: %w", HideLogin(s), err)
	}
	if len(s) > maxRepositoryLen {
		return Repository{}, fmt.Errorf("invalid repository %q: it is longer than %d characters", HideLogin(s), maxRepositoryLen)
	}
	for part := range strings.SplitSeq(name, "/") {
		if !namePart.MatchString(part) {
			return Repository{}, hint.New(fmt.Sprintf("invalid repository %q: %s", HideLogin(s), nameProblem(HideLogin(part))), help)
		}
	}
	return Repository{registry, name}, nil
}

// HideLogin replaces the user name and password in an address with [redacted], for use in
// messages. It keeps a digest at the end of the address, although an @ precedes the digest.
func HideLogin(s string) string {
	login := digestEnd.ReplaceAllString(s, "")
	i := strings.LastIndexByte(login, '@')
	if i < 0 || !strings.Contains(s[:i], ":") {
		return s
	}
	return scheme.FindString(s) + "[redacted]" + s[i:]
}

var (
	digestEnd = regexp.MustCompile(`@[a-z0-9]+:[0-9a-fA-F]+$`)
	scheme    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)
)

// nameProblem says why a part of a repository name is invalid.
func nameProblem(part string) string {
	switch {
	case part == "":
		return "its name has an empty part"
	case strings.ContainsAny(part, "@:"):
		return fmt.Sprintf("%q has a character that a repository name cannot have; neither port, tag nor digest belongs there", part)
	case strings.ToLower(part) != part:
		return fmt.Sprintf("%q is not in lower case", part)
	}
	return fmt.Sprintf("%q is not letters and digits, joined by single dots, one or two underscores, or dashes", part)
}

// Tag is a tag of a repository.
type Tag string

// ParseTag parses a tag.
func ParseTag(s string) (Tag, error) {
	if len(s) > maxTag || !tag.MatchString(s) {
		return "", fmt.Errorf("invalid tag %.80q", s)
	}
	return Tag(s), nil
}

// VersionTag returns the tag of a version. The tag has _ instead of +, because a tag cannot
// contain a +. VersionTag returns an error if the tag would have more than 128 characters.
func VersionTag(v provider.Version) (Tag, error) {
	t, err := ParseTag(strings.ReplaceAll(v.String(), "+", "_"))
	if err != nil {
		return "", fmt.Errorf("version %s cannot be written as a tag: %w", v, err)
	}
	return t, nil
}

// Version returns the version whose [VersionTag] is t, and false if there is no such
// version. For example, 1.2.3_b1 is the tag of 1.2.3+b1. The tags v1.2.3, 1.2 and latest
// belong to no version.
func (t Tag) Version() (provider.Version, bool) {
	v, err := provider.ParseVersion(strings.ReplaceAll(string(t), "_", "+"))
	if err != nil {
		return provider.Version{}, false
	}
	back, err := VersionTag(v)
	return v, err == nil && back == t
}

// Versions returns the versions that tags belong to, oldest first.
func Versions(tags []Tag) []provider.Version {
	var out []provider.Version
	for _, t := range tags {
		if v, ok := t.Version(); ok {
			out = append(out, v)
		}
	}
	provider.SortVersions(out)
	return out
}

// TagsOf returns the tag of each version of a provider or a module among the tags of its repository.
func TagsOf(a subject.Address, tags []Tag) map[provider.Version]Tag {
	if subject.TraitsOf(a).LeadingV {
		return ModuleTags(tags)
	}
	out := map[provider.Version]Tag{}
	for _, t := range tags {
		if v, ok := t.Version(); ok {
			out[v] = t
		}
	}
	return out
}

// ModuleTags returns the tag of each version of a module. Tags of modules may begin with a v,
// such as v1.2.3. If a version has a tag with a v and a tag without one, the tag without a v
// takes precedence.
func ModuleTags(tags []Tag) map[provider.Version]Tag {
	out := map[provider.Version]Tag{}
	for _, t := range tags {
		v, ok := t.Version()
		if ok {
			out[v] = t
			continue
		}
		if v, ok = Tag(strings.TrimPrefix(string(t), "v")).Version(); ok && out[v] == "" {
			out[v] = t
		}
	}
	return out
}

// partialPrefix is the prefix of announcement tags. A push of only some platforms of a version uses such a tag to
// announce these platforms to other pushes. No client mistakes an announcement tag for a version.
const partialPrefix = "ocibridge-part."

// NewAnnouncementID returns a random ID for an announcement.
func NewAnnouncementID() string { return strings.ToLower(rand.Text()[:announcementID]) }

// announcementID is the length of an announcement's ID in characters.
const announcementID = 16

// AnnouncementTag returns the tag of the announcement with the given version and ID. It
// returns an error if the tag would have more than 128 characters.
func AnnouncementTag(v provider.Version, id string) (Tag, error) {
	vt, err := VersionTag(v)
	if err != nil {
		return "", err
	}
	t, err := ParseTag(partialPrefix + string(vt) + "." + id)
	if err != nil {
		return "", hint.Wrap(fmt.Errorf("version %s is too long to be pushed platform by platform: %w", v, err),
			"push all its platforms at once, from its registry: a push of some platforms needs a tag whose name contains the version, and a tag has at most 128 characters")
	}
	return t, nil
}

// Announcement returns the version in an announcement tag, and false for any other tag.
// [AnnouncementTag] makes these tags.
func (t Tag) Announcement() (provider.Version, bool) {
	v, id, ok := t.cutPartial()
	return v, ok && len(id) == announcementID && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// Partial returns the version and the platform in a tag of the form
// ocibridge-part.VERSION.OS_ARCH, and false for any other tag. Earlier releases of
// ocibridge put such a tag on the manifest of a platform.
func (t Tag) Partial() (provider.Version, provider.Platform, bool) {
	v, name, ok := t.cutPartial()
	p, err := provider.ParsePlatform(name)
	return v, p, ok && err == nil
}

// PartialEvidence returns the version in a tag of the form ocibridge-part.VERSION.evidence,
// and false for any other tag. Earlier releases of ocibridge put such a tag on signed
// evidence.
func (t Tag) PartialEvidence() (provider.Version, bool) {
	v, name, ok := t.cutPartial()
	return v, ok && name == "evidence"
}

// PartOf returns the version that [Tag.Announcement], [Tag.Partial] or
// [Tag.PartialEvidence] finds in the tag. It returns false if none of them does.
func (t Tag) PartOf() (provider.Version, bool) {
	if v, _, ok := t.Partial(); ok {
		return v, true
	}
	if v, ok := t.PartialEvidence(); ok {
		return v, true
	}
	return t.Announcement()
}

// cutPartial splits a tag of the form ocibridge-part.VERSION.NAME into the version and the
// name. ok is false for any other tag.
func (t Tag) cutPartial() (v provider.Version, name string, ok bool) {
	rest, ok := strings.CutPrefix(string(t), partialPrefix)
	dot := strings.LastIndexByte(rest, '.')
	if !ok || dot < 0 {
		return provider.Version{}, "", false
	}
	v, ok = Tag(rest[:dot]).Version()
	return v, rest[dot+1:], ok
}

// ReferrersTag returns the tag sha256-HEX of a manifest with the given digest. In a registry
// without the referrers API, the index under this tag lists the manifest's referrers. See
// "referrers tag schema" in the OCI distribution specification 1.1.
func ReferrersTag(d digest.Digest) Tag {
	return Tag(string(d.Algorithm()) + "-" + d.Encoded())
}

// cosignSuffixes are the suffixes of the tags that cosign gives to the artifacts that it
// attaches to a manifest.
var cosignSuffixes = []string{".sig", ".att", ".sbom"}

// CosignTags returns the tags that cosign uses for a manifest's signatures, attestations and SBOMs, such as
// sha256-HEX.sig.
func CosignTags(d digest.Digest) []Tag {
	var out []Tag
	for _, suffix := range cosignSuffixes {
		out = append(out, ReferrersTag(d)+Tag(suffix))
	}
	return out
}

// Subject returns the digest of the manifest for which [ReferrersTag] or [CosignTags] returned the tag. It returns
// false for any other tag. No client mistakes such a tag for a version.
func (t Tag) Subject() (digest.Digest, bool) {
	name := string(t)
	for _, suffix := range cosignSuffixes {
		if cut, ok := strings.CutSuffix(name, suffix); ok {
			name = cut
			break
		}
	}
	encoded, ok := strings.CutPrefix(name, string(digest.SHA256)+"-")
	d := digest.NewDigestFromEncoded(digest.SHA256, encoded)
	return d, ok && d.Validate() == nil
}

// StateTag is the tag of the record that ocibridge keeps in a repository. No client
// mistakes this tag for a version.
const StateTag Tag = "ocibridge-state"
