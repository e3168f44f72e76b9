package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// synonyms maps the names of flags in other tools to the flags of ocibridge with that purpose. A
// command suggests the first of these flags that it has.
var synonyms = map[string][]string{
	"addr": {"listen"}, "address": {"listen"}, "bind": {"listen"}, "port": {"listen"}, "p": {"listen"},
	"dest": {"to", "template"}, "destination": {"to", "template"}, "registry": {"to", "template"}, "repo": {"to", "template"},
	"repository": {"to", "template"}, "source": {"from", "release-dir"}, "src": {"from", "release-dir"},
	"folder": {"release-dir", "data"}, "storage": {"data"}, "root": {"data"}, "data-dir": {"data"},
	"config-file": {"config"}, "file": {"config"}, "f": {"config"},
	"ca": {"ca-file"}, "ca-cert": {"ca-file"}, "cacert": {"ca-file"}, "certificate-authority": {"ca-file"},
	"insecure": {"ca-file"}, "insecure-skip-tls-verify": {"ca-file"}, "k": {"ca-file"}, "skip-tls-verify": {"ca-file"}, "tls-verify": {"ca-file"},
	"cert": {"tls-cert"}, "cert-file": {"tls-cert"}, "tls-cert-file": {"tls-cert"}, "key-file": {"tls-key"}, "tls-key-file": {"tls-key"},
	"key": {"tls-key", "public-key"}, "gpg-key": {"public-key"}, "http": {"plain-http"}, "use-http": {"plain-http"},
	"concurrency": {"jobs"}, "j": {"jobs"}, "parallel": {"jobs"}, "parallelism": {"jobs"}, "threads": {"jobs"}, "workers": {"jobs"},
	"debug": {"log-level"}, "v": {"log-level"}, "verbose": {"log-level"}, "verbosity": {"log-level"}, "format": {"output"}, "json": {"output"},
	"check": {"dry-run"}, "n": {"dry-run"}, "plan": {"dry-run"}, "simulate": {"dry-run"}, "delete": {"prune"}, "remove": {"prune"},
	"user": {"username"}, "pass": {"password-stdin"}, "password": {"password-stdin"},
	"arch": {"platform"}, "os": {"platform"}, "target": {"platform"}, "all-platforms": {"all"},
}

// didYouMean returns a question that names the flag that the user probably meant, such as "did
// you mean --listen? ". It returns "" if err is not about an unknown flag, or if the command has
// no similar flag.
func didYouMean(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	// Go's flags, and so Terraform's, begin with a single dash, but pflag reads the letters after
	// a single dash as flags of their own.
	name, _, _ := strings.Cut(cmp.Or(unknown.GetSpecifiedShortnames(), unknown.GetSpecifiedName()), "=")
	name = strings.ToLower(name)
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	for _, flag := range append([]string{name}, synonyms[name]...) {
		if slices.Contains(names, flag) {
			return fmt.Sprintf("did you mean --%s? ", flag)
		}
	}
	if flag := hint.Nearest(name, names); flag != "" {
		return fmt.Sprintf("did you mean --%s? ", flag)
	}
	return ""
}

// withSameFlags returns the end of a hint that names a further command. It names the flags of cmd that select the
// registry, such as ", with the same --data". It returns "" if none of them was given.
func withSameFlags(cmd *cobra.Command) string {
	return same(cmd, "config", "data", "template", "include", "exclude", "plain-http", "ca-file")
}

// withSameModuleFlags is like withSameFlags, for a hint that names a command about modules. A --template for providers is not for
// modules.
func withSameModuleFlags(cmd *cobra.Command) string {
	return same(cmd, "config", "data", "plain-http", "ca-file")
}

func same(cmd *cobra.Command, names ...string) string {
	var same []string
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			same = append(same, "--"+name)
		}
	}
	if len(same) == 0 {
		return ""
	}
	return ", with the same " + strings.Join(same, ", ")
}
