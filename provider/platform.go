package provider

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// Platform is an operating system and an architecture, by their names in Go.
type Platform struct {
	OS   string
	Arch string
}

// maxPlatformPart is the maximum length in bytes of the name of an operating system or an architecture.
const maxPlatformPart = 32

var platformPart = regexp.MustCompile(`^[a-z0-9]+$`)

// ParsePlatform parses OS_ARCH, such as linux_amd64.
func ParsePlatform(s string) (Platform, error) {
	os, arch, ok := strings.Cut(s, "_")
	p := Platform{os, arch}
	if !ok || !p.valid() {
		return Platform{}, invalidPlatform(s)
	}
	return p, nil
}

func invalidPlatform(s string) error {
	return hint.New(fmt.Sprintf("invalid platform %.80q", s), "a platform is OS_ARCH in lower case, such as linux_amd64 or darwin_arm64")
}

// NewPlatform returns the platform with the given operating system and architecture.
func NewPlatform(os, arch string) (Platform, error) {
	p := Platform{os, arch}
	if !p.valid() {
		return Platform{}, invalidPlatform(fmt.Sprintf("%.80s_%.80s", os, arch))
	}
	return p, nil
}

// MustParsePlatform is like [ParsePlatform], but panics on error. It is for constants.
func MustParsePlatform(s string) Platform { return must(ParsePlatform(s)) }

func (p Platform) valid() bool {
	return max(len(p.OS), len(p.Arch)) <= maxPlatformPart && platformPart.MatchString(p.OS) && platformPart.MatchString(p.Arch)
}

// String returns OS_ARCH.
func (p Platform) String() string { return p.OS + "_" + p.Arch }

// MarshalText implements [encoding.TextMarshaler].
func (p Platform) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] with [ParsePlatform].
func (p *Platform) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePlatform(string(text))
	return err
}

// goSystems and goArchitectures are the names that Go has for operating systems and
// architectures (go tool dist list). A client requests the platform for which it was built.
const (
	goSystems       = " aix android darwin dragonfly freebsd illumos ios js linux netbsd openbsd plan9 solaris wasip1 windows "
	goArchitectures = " 386 amd64 arm arm64 loong64 mips mips64 mips64le mipsle ppc64 ppc64le riscv64 s390x wasm "
)

// IsOfClients reports whether a client can request p: whether Go has its operating system and
// its architecture.
func (p Platform) IsOfClients() bool {
	return strings.Contains(goSystems, " "+p.OS+" ") && strings.Contains(goArchitectures, " "+p.Arch+" ")
}

// Compare orders platforms by operating system, then by architecture.
func (p Platform) Compare(q Platform) int {
	return cmp.Or(cmp.Compare(p.OS, q.OS), cmp.Compare(p.Arch, q.Arch))
}

// SortPlatforms sorts by [Platform.Compare].
func SortPlatforms(ps []Platform) { slices.SortFunc(ps, Platform.Compare) }
