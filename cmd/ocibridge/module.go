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
	f.registerPlace(cmd, moduleTemplateVariable, "repository `template`, such as ghcr.io/acme/modules/${hostname}/${namespace}/${name}/${system} (variable OCIBRIDGE_MODULE_TEMPLATE; default: the module_mirror blocks of ocibridge.hcl, else the embedded registry)")
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelWarn)
	f.registerQuiet(cmd)
}

// openForModule opens the repositories of modules. --template applies only to the given module.
// The caller must close them.
func (f *registryFlags) openForModule(s settings, a module.Address, log *slog.Logger) (*registry.Repositories, error) {
	return f.openForModules(s, []module.Address{a}, log)
}

// openForModules opens the repositories of modules. --template applies only to the given modules,
// or to all modules if none are given. The caller must close them.
func (f *registryFlags) openForModules(s settings, modules []module.Address, log *slog.Logger) (*registry.Repositories, error) {
	if f.template == "" {
		return f.open(s, nil, log)
	}
	o := f.options(s)
	var err error
	if o.ModuleTemplates, err = moduleSet(f.template, modules); err != nil {
		return nil, err
	}
	o.Log = log
	return registry.Open(o)
}

// moduleSet returns the template, for the given modules, or for all modules if none are given.
func moduleSet(template string, modules []module.Address) (templates.ModuleSet, error) {
	if err := checkTemplate(template); err != nil {
		return nil, err
	}
	var sel module.Selector
	for _, a := range modules {
		sel.Include = append(sel.Include, module.PatternFor(a))
	}
	t, err := templates.ParseModule(template, sel)
	if err != nil {
		return nil, usage(err)
	}
	return templates.ModuleSet{t}, nil
}

// isModuleTemplate reports whether a template has a placeholder that only templates for modules
// have.
func isModuleTemplate(template string) bool {
	return strings.Contains(template, "${name}") || strings.Contains(template, "${system}")
}

// openFor opens the repositories of the given providers and modules, or all repositories if none are given. --template is
// for modules if no provider is given, and if a module is given or the template has the placeholders of modules. Otherwise
// it is for providers. The variables OCIBRIDGE_TEMPLATE and OCIBRIDGE_MODULE_TEMPLATE are for one kind each, and count only
// if this kind is needed: a template of one kind hides the embedded registry of the other. The caller must close the
// repositories.
func (f *registryFlags) openFor(s settings, of []subject.Address, log *slog.Logger) (*registry.Repositories, error) {
	providers, modules := subject.Of[provider.Address](of), subject.Of[module.Address](of)
	onlyModules := len(providers) == 0 && len(modules) > 0
	fromVariable := !f.ignoresVariables && f.template == os.Getenv(variablePrefix+"TEMPLATE")
	ofProviders, ofModules := *f, ""
	if len(providers) == 0 && isModuleTemplate(f.template) || onlyModules && !fromVariable {
		ofModules = f.template
	}
	if ofModules != "" || onlyModules {
		ofProviders.template, ofProviders.include, ofProviders.exclude = "", nil, nil
	}
	o := f.options(s)
	o.Log = log
	var err error
	if ofModules == "" || !f.ignoresVariables {
		if o.Templates, err = ofProviders.templateSet(s, providers); err != nil {
			return nil, err
		}
	}
	if variable := os.Getenv(moduleTemplateVariable); ofModules == "" && !f.ignoresVariables && (len(modules) > 0 || len(providers) == 0 && len(o.Templates) > 0) {
		ofModules = variable
	}
	if ofModules != "" {
		if o.ModuleTemplates, err = moduleSet(ofModules, modules); err != nil {
			return nil, err
		}
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
