package provider

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// PackageFilename returns the file name under which a provider's package is published:
// terraform-provider-TYPE_VERSION_OS_ARCH.zip.
func PackageFilename(a Address, v Version, p Platform) string {
	return fmt.Sprintf("terraform-provider-%s_%s_%s.zip", a.Type(), v, p)
}

// packageForms match the file names that contain a type, a version and a platform. In the first form, any text between
// the underscores counts as a version. In the second form, the separators differ. There, the version begins with three
// numbers and dots, because types contain no dots. The version ends before a known operating system, because other
// words, such as -bin, can follow the platform.
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

// SpellsPackage reports whether the file name of a package contains the given type, version and platform. The name may
// spell the version differently than [PackageFilename], such as v1.2.0 for 1.2.0. Its separators may also differ.
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

// The expression does not bound the length, because a bound would make it slow to compile, at every start of the
// program.
var filename = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+~-]*$`)

const maxFilename = 255

// ValidFilename reports whether name is acceptable as the file name of a package. Such a
// name is plain ASCII, and has no special meaning in paths, URLs and shells.
func ValidFilename(name string) bool { return len(name) <= maxFilename && filename.MatchString(name) }

// ErrNoProgram means that a package unpacks, but that no client can run the provider in it.
var ErrNoProgram = errors.New("no client can run it")

// CheckProgram checks that clients find the provider's program in the zip in the first size bytes of r, and that they
// may execute it. The zip is the package of a provider with the given type. If they cannot, the error wraps
// [ErrNoProgram]. CheckProgram reads only the directory of the zip. If the directory is invalid, the error is the same
// as that of [HashContent].
func CheckProgram(ctx context.Context, r io.ReaderAt, size int64, typ string, p Platform) error {
	z, err := newSourceReader(ctx, r, size).open(size)
	if err != nil {
		return err
	}
	return checkProgram(z.File, typ, p)
}

// checkProgram implements [CheckProgram]. Clients take the first file, in the order of names, in the root of the
// unpacked folder that IsProgram accepts. The unpacked file has the mode of its entry, or of the last entry if several
// have the same name. A link becomes a file with the link's target as its content.
func checkProgram(entries []*zip.File, typ string, p Platform) error {
	var program, elsewhere *zip.File
	for _, f := range entries {
		switch {
		case f.Mode().IsDir() || strings.HasSuffix(f.Name, "/"):
		case IsProgram(unpackedName(f), typ):
			if program == nil || unpackedName(f) <= unpackedName(program) {
				program = f
			}
		case IsProgram(path.Base(f.Name), typ):
			elsewhere = f
		}
	}
	name := "terraform-provider-" + typ
	switch {
	case program == nil && elsewhere != nil:
		return hint.Wrap(fmt.Errorf("%w: its program %.80q is in a folder of the zip", ErrNoProgram, elsewhere.Name), "put the program into the root of the zip, for example with zip -j")
	case program == nil:
		return hint.Wrap(fmt.Errorf("%w: its zip has no program: no file in its root is named %s, or begins with %[2]s_", ErrNoProgram, name), "put the program into the root of the zip as %s_vVERSION", name)
	case program.Mode()&fs.ModeSymlink != 0:
		return hint.Wrap(fmt.Errorf("%w: its program %.80q is a link, and clients do not follow links in a zip", ErrNoProgram, program.Name), "put the program itself into the zip: zip follows links unless it has -y")
	case p.OS == "windows" && !strings.Contains(unpackedName(program), "."):
		// Clients start programs with Go's os/exec. On Windows, os/exec always adds an extension to a name
		// without a dot.
		return hint.Wrap(fmt.Errorf("%w: its program %.80q has no extension, and Windows starts no such program", ErrNoProgram, program.Name), "name the program %s_vVERSION.exe", name)
	case p.OS != "windows" && program.Mode()&0o100 == 0:
		return hint.Wrap(fmt.Errorf("%w: its program %.80q is not executable: its mode in the zip is %v", ErrNoProgram, program.Name, program.Mode().Perm()),
			"set its mode with chmod 755, and make the zip on a Unix system, or with a tool that writes Unix modes")
	}
	return nil
}

// unpackedName returns the path of an entry in the folder into which clients unpack a zip. They join the entry's name
// to that folder, so ./NAME, as bsdtar writes it, is in the root.
func unpackedName(f *zip.File) string { return path.Clean("/" + f.Name)[1:] }

// IsProgram reports whether clients take a file in the root of a package for the program of a provider with the given type.
func IsProgram(name, typ string) bool {
	rest, ok := strings.CutPrefix(name, "terraform-provider-"+typ)
	return ok && !strings.Contains(rest, "/") && (rest == "" || rest[0] == '_' || rest[0] == '.')
}
