package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/inventory"
	"github.com/ocibridge/ocibridge/internal/registries/moduledoc"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

func newModuleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "module",
		Short: "Store modules in an OCI registry",
		Long: `module stores the modules of Terraform and OpenTofu in OCI registries.

The module HOSTNAME/NAMESPACE/NAME/SYSTEM has a repository of its own, and each
version is a tag. OpenTofu 1.10 and later installs modules from there by oci://
addresses, and every client installs them from a gateway.`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newModulePushCommand())
	cmd.AddCommand(newModuleListCommand())
	cmd.AddCommand(newModuleInspectCommand())
	cmd.AddCommand(newModuleVerifyCommand())
	return cmd
}

// registerModule adds the flags of a command that processes a single module.
func (f *commonFlags) registerModule(cmd *cobra.Command) {
	f.connectionFlags.register(cmd)
	f.registerPlace(cmd, subject.Module, "repository `template`, such as ghcr.io/acme/modules/${hostname}/${namespace}/${name}/${system} (variable OCIBRIDGE_MODULE_TEMPLATE; default: the module_mirror blocks of ocibridge.hcl, else the embedded registry)")
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelWarn)
	f.registerQuiet(cmd)
}

// openFor opens the repositories of the given addresses, or all repositories if none are given. The caller must close the
// repositories.
//
// --template is for the kind of the addresses. If they have several kinds, it is for providers. Without addresses, the
// placeholders in the template decide. A template in OCIBRIDGE_TEMPLATE is for modules only if it has the placeholders of
// modules. Each of the other variables is for one kind. It counts only if this kind is needed, because a template of one
// kind hides the embedded registry of the others.
func (f *registryFlags) openFor(s settings, of []subject.Address, log *slog.Logger) (*registry.Repositories, error) {
	named := subject.ByKind(of, func(a subject.Address) subject.Address { return a })
	needs := func(kind subject.Kind) bool { return len(of) == 0 || len(named[kind]) > 0 }
	given := templates.KindOf(f.template)
	switch fromVariable := !f.ignoresVariables && f.template == os.Getenv(variablePrefix+"TEMPLATE"); {
	case len(named) == 1 && !fromVariable:
		given = of[0].Kind()
	case len(named[subject.Provider]) > 0:
		given = subject.Provider
	}
	own := *f
	if !given.Traits().Mirrors || !needs(given) {
		own.include, own.exclude = nil, nil
	}
	o := f.options(s)
	o.Log = log
	for _, kind := range subject.Kinds {
		text := ""
		switch {
		case kind == given && needs(kind):
			text = f.template
		case f.ignoresVariables && f.template != "":
			continue // --template names a place for another kind
		case !f.ignoresVariables && (len(named[kind]) > 0 || len(of) == 0 && len(o.Templates) > 0):
			text = os.Getenv(templateVariable(kind))
		}
		set, err := own.templatesOf(s, kind, text, named[kind])
		if err != nil {
			return nil, err
		}
		o.Templates = append(o.Templates, set...)
	}
	return registry.Open(o)
}

// parseModuleVersion parses MODULE@VERSION.
func parseModuleVersion(s string) (module.Address, provider.Version, error) {
	address, version, found := strings.Cut(s, "@")
	a, err := module.ParseAddress(address)
	if err != nil {
		return a, provider.Version{}, err
	}
	if !found || version == "" {
		return a, provider.Version{}, hint.New(fmt.Sprintf("%s names no version", s), "write the version of the module, such as %s@1.4.0", a)
	}
	v, err := provider.ParseVersion(version)
	return a, v, hint.Wrap(err, "write the version of the module, such as %s@1.4.0", a)
}

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
commits, as push recorded them. ocibridge module verify checks them. If trust blocks have
require blocks, module list checks the approvals, and shows which versions wait for one.

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
as push recorded them. ocibridge module verify checks the hash. Of a public module, it
also shows where push fetched the module from. It downloads the zip to show the inputs,
outputs, providers, submodules and examples. It lists the signatures of the manifest
that approve or cosign attached. Those that meet a require block are verified.

VERSION is a version or a version constraint. module inspect shows the newest stored
version that matches.`,
		Example: moduleInspectExamples,
		Args:    oneVersion("MODULE@VERSION", "registry.acme.example/platform/vpc/aws@1.4.0"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return inspect(f, cmd, readsModules, args[0], inventory.InspectModule, moduleInspectText)
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
	f, waiting := &readerFlags{}, false
	cmd := &cobra.Command{
		Use:   "verify [MODULE | MODULE@VERSION | PATTERN]...",
		Short: "Verify stored versions of modules",
		Long: `module verify downloads the zip of each version and compares it with the manifest: its
size, its digest, and the h1: hash of its files. It also lists everything that keeps
clients from installing a version, whichever tool pushed it, and says what to do about
it. Modules have no signature, so it cannot say who made a version.

Without arguments, it checks all versions that ocibridge module list shows. With --from,
it checks the versions in a bundle of ocibridge copy, and sends no requests.

With --waiting, it only checks the approvals that require blocks ask for, and lists the
versions that wait for one. It then exits with 3 if there is such a version.

It exits with 1 if there is an error. Warnings do not count.`,
		Example: moduleVerifyExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			if waiting {
				return readsModules.waiting(f, cmd, args)
			}
			return readsModules.verify(f, cmd, args, func(settings) inventory.Checks[module.Address] { return inventory.Zips{} })
		},
	}
	f.registerModules(cmd)
	cmd.Flags().BoolVar(&waiting, "waiting", false, waitingUsage)
	return cmd
}

// registerModules adds the flags of a command that reads modules.
func (f *readerFlags) registerModules(cmd *cobra.Command) {
	f.registerModule(cmd)
	f.registerFrom(cmd)
	f.jobs.register(cmd, "number of versions to read at once")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return f.completeKinds(cmd, subject.Module)
	}
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
	for _, of := range []struct{ name, value string }{
		{"tree", v.Source.Tree}, {"tag object", v.Source.TagObject}, {"source", v.Source.Location}, {"folder", v.Source.Folder},
	} {
		if of.value != "" {
			line(of.name, "%s", of.value)
		}
	}
	approvalLines(v.Approval, v.Signatures, v.SignaturesError, line)
	if v.Denied != nil {
		line("denied", "by the configuration of the gateway: %s", cmp.Or(v.Denied.Reason, "no reason is given"))
	}
	if v.Deprecated != nil {
		line("deprecated", "by the configuration of the gateway: %s", v.Deprecated.Reason)
	}
	moduleContents(v.Contents, line)
	if v.Unread != nil {
		line("contents", "not read: %s", v.Unread.Message)
	}
	return out.String()
}

// moduleContents prints what the files of a module declare.
func moduleContents(doc *moduledoc.Doc, line func(name, format string, args ...any)) {
	if doc == nil {
		return
	}
	list := func(name string, all []string) {
		if len(all) > 0 {
			line(name, "%s", strings.Join(all, ", "))
		}
	}
	var required, optional, outputs, providers []string
	for _, in := range doc.Root.Inputs {
		if in.Required {
			required = append(required, in.Name)
		} else {
			optional = append(optional, in.Name)
		}
	}
	for _, o := range doc.Root.Outputs {
		outputs = append(outputs, o.Name)
	}
	for _, r := range doc.Root.Requires {
		providers = append(providers, strings.TrimSpace(cmp.Or(r.Source, r.Name)+" "+strings.Join(r.Version, ", ")))
	}
	list("inputs", required)
	list("optional", optional)
	list("outputs", outputs)
	list("providers", providers)
	list("client", doc.Root.Core)
	paths := func(parts []moduledoc.Part) (out []string) {
		for _, p := range parts {
			out = append(out, p.Path)
		}
		return out
	}
	list("submodules", paths(doc.Modules))
	list("examples", paths(doc.Examples))
	list("not read", doc.Root.Skipped)
}
