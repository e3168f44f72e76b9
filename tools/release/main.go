// Command release builds the archives of a release. Builds are reproducible. The same
// commit and the same version of Go give the same bytes on every machine.
//
//	release build     build archives, SBOMs and SHA256SUMS for every platform
//	release check     build the last commit twice, and compare
//	release licences  check or write the list of the modules' licences
//
// -root names the project's folder. The default is the working directory.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const platforms = "linux_amd64,linux_arm64,darwin_amd64,darwin_arm64,windows_amd64,windows_arm64"

// options are the flags of all commands.
type options struct {
	root, out, version string
	platforms          []string
	update             bool
}

var commands = map[string]func(options) error{
	"build":    func(o options) error { return build(o, os.Getenv("GOCACHE")) },
	"check":    check,
	"licences": licences,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: release build|check|licences [flags]")
		os.Exit(2)
	}
	var o options
	flags := flag.NewFlagSet("release "+os.Args[1], flag.ExitOnError)
	flags.StringVar(&o.root, "root", ".", "`folder` of the project")
	flags.StringVar(&o.out, "out", "dist", "`folder` for the release")
	flags.StringVar(&o.version, "version", "", "`version` of the release (default: that of tools/version.sh)")
	list := flags.String("platforms", platforms, "`platforms`, with commas between")
	flags.BoolVar(&o.update, "update", false, "write docs/developers/licences.md, rather than compare it")
	_ = flags.Parse(os.Args[2:])
	o.platforms = strings.Split(*list, ",")
	root, err := filepath.Abs(o.root)
	if err == nil {
		o.root = root
		err = commands[os.Args[1]](o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}
