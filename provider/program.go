package provider

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// ErrNoProgram means that a package unpacks, but that no client can run the provider in it.
var ErrNoProgram = errors.New("no client can run it")

// CheckProgram checks that clients find the provider's program in the zip in the first size bytes of r, and
// that they may execute it. The zip is the package of a provider with the given type. Otherwise the error
// wraps [ErrNoProgram]. CheckProgram reads only the directory of the zip. An error of that directory is the
// error of [HashContent].
func CheckProgram(ctx context.Context, r io.ReaderAt, size int64, typ string, p Platform) error {
	z, err := newSourceReader(ctx, r, size).open(size)
	if err != nil {
		return err
	}
	return checkProgram(z.File, typ, p)
}

// checkProgram implements [CheckProgram]. Clients take the first file, in the order of names, in the root of the
// unpacked folder that isProgram accepts. The unpacked file has the mode of its entry, of the last one if several have
// one name. A link becomes a file with the link's target as its content.
func checkProgram(entries []*zip.File, typ string, p Platform) error {
	var program, elsewhere *zip.File
	for _, f := range entries {
		switch {
		case f.Mode().IsDir() || strings.HasSuffix(f.Name, "/"):
		case isProgram(unpackedName(f), typ):
			if program == nil || unpackedName(f) <= unpackedName(program) {
				program = f
			}
		case isProgram(path.Base(f.Name), typ):
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
		// Clients start programs with Go's os/exec, which takes a name without a dot only together with an extension.
		return hint.Wrap(fmt.Errorf("%w: its program %.80q has no extension, and Windows starts no such program", ErrNoProgram, program.Name), "name the program %s_vVERSION.exe", name)
	case p.OS != "windows" && program.Mode()&0o100 == 0:
		return hint.Wrap(fmt.Errorf("%w: its program %.80q is not executable: its mode in the zip is %v", ErrNoProgram, program.Name, program.Mode().Perm()),
			"set its mode with chmod 755, and make the zip on a Unix system, or with a tool that writes Unix modes")
	}
	return nil
}

// unpackedName returns the path of an entry in the folder into which clients unpack a zip. They join the entry's name
// to it, so ./NAME, as bsdtar writes it, is in the root.
func unpackedName(f *zip.File) string { return path.Clean("/" + f.Name)[1:] }

// isProgram reports whether clients take a file in the root for the program of a provider with the given type.
func isProgram(name, typ string) bool {
	rest, ok := strings.CutPrefix(name, "terraform-provider-"+typ)
	return ok && !strings.Contains(rest, "/") && (rest == "" || rest[0] == '_' || rest[0] == '.')
}
