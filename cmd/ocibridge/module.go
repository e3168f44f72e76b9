package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
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

// openFor opens the repositories of the given addresses, or all repositories if none are given. --template is for the kind
// of the addresses. Among several kinds it is for providers, and without addresses, its names decide. A template in
// OCIBRIDGE_TEMPLATE is for modules only if its names are theirs. Each of the other variables is for one kind, and counts only
// if this kind is needed: a template of one kind hides the embedded registry of the others. The caller must close the
// repositories.
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
	if given != subject.Provider || !needs(subject.Provider) {
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
			continue // the user names a place for one kind
		case !f.ignoresVariables && (len(named[kind]) > 0 || len(of) == 0 && len(o.Templates) > 0):
			text = os.Getenv(templateVariables[kind])
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
