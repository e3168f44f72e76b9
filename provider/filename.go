package provider

import (
	"fmt"
	"regexp"
	"strings"
)

// PackageFilename returns the file name under which a provider's package is published:
// terraform-provider-TYPE_VERSION_OS_ARCH.zip.
func PackageFilename(a Address, v Version, p Platform) string {
	return fmt.Sprintf("terraform-provider-%s_%s_%s.zip", a.Type(), v, p)
}

// packageForms match the file names that contain a type, a version and a platform. In the first form,
// any text between the underscores counts as a version. In the second form, the separators differ.
// The version begins with three numbers with dots, because types contain no dots, and ends before a
// known operating system: other words, such as -bin, can follow the platform.
var packageForms = []*regexp.Regexp{
	regexp.MustCompile(`^terraform-provider-([^_]+)_([^_]+)_([a-z0-9]+)_([a-z0-9]+)\.zip$`),
	regexp.MustCompile(`^terraform-provider-(.+?)[_-]([vV]?[0-9]+\.[0-9]+\.[0-9]+(?:[+-][0-9A-Za-z.+-]+)?)[._-](` +
		`aix|android|darwin|dragonfly|freebsd|illumos|ios|js|linux|netbsd|openbsd|plan9|solaris|wasip1|windows)[_-]([a-z0-9]+)\.zip$`),
}

// packageName holds the parts of a package's file name, as the name spells them.
type packageName struct {
	typ, version string
	platform     Platform
}

func parsePackageName(filename string) (packageName, bool) {
	for _, form := range packageForms {
		if m := form.FindStringSubmatch(filename); m != nil {
			return packageName{m[1], m[2], Platform{m[3], m[4]}}, true
		}
	}
	return packageName{}, false
}

// is reports whether the name contains a version and a platform. The version may have a v before it, or
// another spelling that [LooseVersion] reads.
func (n packageName) is(v Version, p Platform) bool {
	if n.platform != p {
		return false
	}
	text := n.version
	if strings.HasPrefix(text, "v") || strings.HasPrefix(text, "V") {
		text = text[1:]
	}
	if exact, err := parseVersion(text); err == nil {
		return exact == v
	}
	named, ok := LooseVersion(text)
	return ok && named == v && !strings.HasPrefix(text, "v")
}

// SpellsPackage reports whether the file name of a package contains the given type, version and
// platform. The name may spell the version otherwise than [PackageFilename], such as v1.2.0 for
// 1.2.0, and may separate its parts otherwise.
func SpellsPackage(filename string, a Address, v Version, p Platform) bool {
	n, ok := parsePackageName(filename)
	return ok && n.typ == a.Type() && n.is(v, p)
}

// NamedPlatform returns the platform in the file name of a package if the name contains the given
// type and version. See [SpellsPackage] for the spelling of such a name.
func NamedPlatform(filename string, a Address, v Version) (Platform, bool) {
	n, ok := parsePackageName(filename)
	if !ok || !n.platform.valid() || n.typ != a.Type() || !n.is(v, n.platform) {
		return Platform{}, false
	}
	return n.platform, true
}

// Misnamed reports whether the file name of a package contains another version or platform
// than the given ones. A signature covers only the file name and the bytes of a package,
// so only the file name shows for which version and platform the bytes were signed. For a
// file name that contains no version and platform, Misnamed returns false.
func Misnamed(filename string, v Version, p Platform) bool {
	n, ok := parsePackageName(filename)
	return ok && !n.is(v, p)
}

// NamesAnother reports whether a file name has the form of a package's name, but names another
// type, version or platform than the given ones. Letter case in the type makes no difference.
func NamesAnother(filename string, a Address, v Version, p Platform) bool {
	n, ok := parsePackageName(filename)
	return ok && !(strings.EqualFold(n.typ, a.Type()) && n.is(v, p))
}

// SpellsFile reports whether a file of a release has the given name, in any spelling of the
// version. The name begins with terraform-provider-TYPE_VERSION_ and ends with the given end.
func SpellsFile(filename string, a Address, v Version, end string) bool {
	rest, ok := strings.CutPrefix(filename, "terraform-provider-"+a.Type())
	if ok {
		rest, ok = strings.CutSuffix(rest, end)
	}
	return ok && len(rest) > 2 && isSeparator(rest[0]) && isSeparator(rest[len(rest)-1]) && packageName{version: rest[1 : len(rest)-1]}.is(v, Platform{})
}

func isSeparator(c byte) bool { return c == '_' || c == '-' }

// filename has no bound on the length, with which the expression would be slow to compile at every start of the program.
var filename = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+~-]*$`)

const maxFilename = 255

// ValidFilename reports whether name is acceptable as the file name of a package. Such a
// name is plain ASCII, and has no special meaning in paths, URLs and shells.
func ValidFilename(name string) bool { return len(name) <= maxFilename && filename.MatchString(name) }
