package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/inventory"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/module"
)

const moduleListExamples = `  # all modules in the embedded registry, or in a registry with a catalog
  ocibridge module list

  # one module, and all of a namespace
  ocibridge module list registry.acme.example/platform/vpc/aws \
    'registry.acme.example/platform/*/*'`

func newModuleListCommand() *cobra.Command {
	f := &readerFlags{}
	cmd := &cobra.Command{
		Use:   "list [MODULE | PATTERN]...",
		Short: "List the modules in a registry",
		Long: `module list shows the stored versions of modules with their sizes, hashes and source
commits, as push recorded them. ocibridge module verify checks them.

MODULE is HOSTNAME/NAMESPACE/NAME/SYSTEM. A PATTERN is a MODULE whose last parts are *.
Without arguments, and for patterns, module list searches the registry's catalog. The
embedded registry, Harbor, distribution and some other registries have a catalog.

With --from, module list reads a bundle of ocibridge copy, and no registry.

It exits with 1 if a module or a version could not be read.`,
		Example: moduleListExamples,
		RunE:    func(cmd *cobra.Command, args []string) error { return readsModules.list(f, cmd, args) },
	}
	f.registerModules(cmd)
	return cmd
}

const moduleInspectExamples = `  ocibridge module inspect registry.acme.example/platform/vpc/aws@1.4.0

  # the newest that matches
  ocibridge module inspect 'registry.acme.example/platform/vpc/aws@~> 1.0'`

func newModuleInspectCommand() *cobra.Command {
	f := &readerFlags{}
	cmd := &cobra.Command{
		Use:   "inspect MODULE@VERSION",
		Short: "Show one stored version of a module in full",
		Long: `module inspect shows a stored version: its digests, and the hash and the source commit
as push recorded them. ocibridge module verify checks them.

VERSION is a version or a version constraint. module inspect shows the newest stored
version that matches.`,
		Example: moduleInspectExamples,
		Args:    oneVersion("MODULE@VERSION", "registry.acme.example/platform/vpc/aws@1.4.0"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := query.Modules.ParseRelease(args[0])
			if err != nil {
				return usage(err)
			}
			return show(f, cmd, readsModules, []query.Query[module.Address]{q}, func(ctx context.Context, found *inventory.Selection[module.Address], s settings) (*inventory.ModuleInspection, error) {
				v, err := inventory.InspectModule(ctx, found)
				if err != nil {
					return nil, err
				}
				v.Denied = denial(s.file.Gateway.Denies(v.Module, v.Version))
				return v, nil
			}, moduleInspectText)
		},
	}
	f.registerModules(cmd)
	return cmd
}

const moduleVerifyExamples = `  # all stored versions
  ocibridge module verify

  # the versions that match
  ocibridge module verify 'registry.acme.example/platform/vpc/aws@~> 1.0'`

func newModuleVerifyCommand() *cobra.Command {
	f := &readerFlags{}
	cmd := &cobra.Command{
		Use:   "verify [MODULE | MODULE@VERSION | PATTERN]...",
		Short: "Verify stored versions of modules",
		Long: `module verify downloads the zip of each version and compares it with the manifest: its
size, its digest, and the h1: hash of its files. It also lists everything that keeps
clients from installing a version, whichever tool pushed it, and says what to do about
it. Modules have no signature, so it cannot say who made a version.

Without arguments, it checks all versions that ocibridge module list shows. With --from,
it checks the versions in a bundle of ocibridge copy, and sends no requests.

It exits with 1 if there is an error. Warnings do not count.`,
		Example: moduleVerifyExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			return readsModules.verify(f, cmd, args, func(settings) inventory.Checks[module.Address] { return inventory.Zips{} })
		},
	}
	f.registerModules(cmd)
	return cmd
}

// registerModules adds the flags of a command that reads modules.
func (f *readerFlags) registerModules(cmd *cobra.Command) {
	f.registerModule(cmd)
	f.registerFrom(cmd)
	f.jobs.register(cmd, "number of versions to read at once")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
}

// moduleInspectText formats the description of a version for people.
func moduleInspectText(v *inventory.ModuleInspection, _ io.Writer) string {
	var out strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "  %-11s %s\n", name, hint.OneLine(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(&out, "%s %s\n", v.Module, v.Version)
	line("repository", "%s", v.Repository)
	line("tag", "%s", v.Tag)
	line("manifest", "%s", v.Digest)
	if !*v.Declared {
		line("pushed by", "another tool: the manifest does not say what it is")
	}
	line("zip", "%s", v.Zip)
	line("size", "%s (%d bytes)", size(v.Size), v.Size)
	line("h1", "%s", cmp.Or(v.H1.String(), "not recorded"))
	line("commit", "%s", cmp.Or(v.Revision, "not recorded"))
	if v.Denied != nil {
		line("denied", "by the configuration of the gateway: %s", cmp.Or(v.Denied.Reason, "no reason is given"))
	}
	return out.String()
}
