package clientsetup

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

// Hosts returns a host block for each mirrored registry, which makes clients send their requests for the registry to the
// gateway. Clients look for the token of these requests under the registry's name. If the gateway requires a token, Hosts
// therefore also returns a credentials block for each registry.
//
// A block replaces the whole discovery document of its host. The block of a public registry therefore repeats the services that
// the gateway does not replace, unless clients would send the token to these services, too.
func (s *Setup) Hosts() (string, error) {
	if s.NoURL != nil {
		return "", s.NoURL
	}
	providers, modules := s.mirroredHosts(), s.ModuleHosts()
	hosts := slices.Concat(providers, modules)
	slices.Sort(hosts)
	var out strings.Builder
	for _, host := range slices.Compact(hosts) {
		s.writeHost(&out, host, slices.Contains(modules, host), slices.Contains(providers, host))
	}
	return out.String(), nil
}

// errPublicHost means that a host block would hide the modules of a public registry.
var errPublicHost = errors.New("a host block would hide the other modules of this registry")

// ModuleHost returns the block of [Setup.Hosts] that makes clients send their requests for the modules of one host to the
// gateway. For publicHosts, it returns an error unless [Setup.ModuleHosts] contains the host.
func (s *Setup) ModuleHost(host svchost.Hostname) (string, error) {
	if s.NoURL != nil {
		return "", s.NoURL
	}
	if slices.Contains(publicHosts, host) && !slices.Contains(s.ModuleHosts(), host) {
		return "", errPublicHost
	}
	var out strings.Builder
	s.writeHost(&out, host, true, slices.Contains(s.mirroredHosts(), host))
	return out.String(), nil
}

// writeHost writes the host block of a host, and its credentials block if the gateway requires a token. The parameters
// modules and providers say which of the two clients get from the gateway.
func (s *Setup) writeHost(out *strings.Builder, host svchost.Hostname, modules, providers bool) {
	fmt.Fprintf(out, "host %q {\n  services = {\n", host.ForDisplay())
	width := 0
	if providers || slices.Contains(publicHosts, host) {
		width = len(`"providers.v1"`) // the equals signs of two lines are aligned
	}
	s.writeService(out, host, "modules", width, modules, gateway.ModulesURL)
	s.writeService(out, host, "providers", width, providers, gateway.RegistryURL)
	out.WriteString("  }\n}\n")
	if s.Tokens {
		out.WriteString(credentials(host))
	}
}

// writeService writes the gateway's URL for a protocol of a host if the gateway mirrors the protocol. Otherwise, it
// writes the URL of the host's own service if the host is a public registry. It writes this URL as a comment if the
// service would get the token.
func (s *Setup) writeService(out *strings.Builder, host svchost.Hostname, kind string, width int, mirrored bool, at func(public, hostname string) string) {
	line := func(url string) string { return fmt.Sprintf("%-*s = %q", width, `"`+kind+`.v1"`, url) }
	origin := line(fmt.Sprintf("https://%s/v1/%s/", host, kind))
	switch {
	case mirrored:
		fmt.Fprintf(out, "    %s\n", line(at(s.URL, string(host))))
	case !slices.Contains(publicHosts, host):
	case s.Tokens:
		fmt.Fprintf(out, "    # %s # would get the token, too\n", origin)
	default:
		fmt.Fprintf(out, "    %s\n", origin)
	}
}

// publicHosts are the two public registries. They have most providers and modules.
var publicHosts = []svchost.Hostname{"registry.opentofu.org", "registry.terraform.io"}

// mirroredHosts returns the sorted hosts that the oci_mirror blocks include by name, those of the providers in the embedded
// registry, and publicHosts if a block includes every host, or if there are no blocks. The result is empty if there are only module_mirror blocks.
func (s *Setup) mirroredHosts() []svchost.Hostname {
	own, _ := s.host()
	out := slices.DeleteFunc(slices.Clone(s.StoredProviders), func(host svchost.Hostname) bool { return host == own })
	for _, m := range s.Mirrors {
		if len(m.Include) == 0 {
			out = append(out, publicHosts...)
		}
		for _, pattern := range m.Include {
			if name, _, _ := strings.Cut(pattern, "/"); name == "*" {
				out = append(out, publicHosts...)
			} else if host, err := svchost.ForComparison(svchost.ForDisplay(name)); err == nil {
				out = append(out, host)
			}
		}
	}
	if len(s.Mirrors)+len(s.Modules) == 0 {
		out = append(out, publicHosts...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ModuleHosts returns the sorted hosts whose modules clients get from the gateway: those that module_mirror blocks
// and the pull_through block include by name, and those of the modules in the embedded registry, apart from the gateway's own
// host. The result contains publicHosts only if a module_mirror block names them, if one for all hosts falls through, or if
// the pull_through block covers all of their modules. Otherwise, the gateway would hide the other modules of these registries.
func (s *Setup) ModuleHosts() []svchost.Hostname {
	out := slices.DeleteFunc(slices.Clone(s.Stored), func(host svchost.Hostname) bool {
		return s.isOwn(host) || slices.Contains(publicHosts, host)
	})
	for _, host := range s.Pulled {
		if !s.isOwn(host.Name) && (host.Whole || !slices.Contains(publicHosts, host.Name)) {
			out = append(out, host.Name)
		}
	}
	for _, m := range s.Modules {
		include := m.Include
		if len(include) == 0 {
			include = []subject.Pattern{module.MustParsePattern("*/*/*/*")}
		}
		for _, pattern := range include {
			switch host, named := pattern.ServiceHost(); {
			case named && !s.isOwn(host):
				out = append(out, host)
			case !named && m.FallThrough:
				out = append(out, publicHosts...)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *Setup) isOwn(host svchost.Hostname) bool {
	own, err := s.host()
	return err == nil && IsOwnHost(own, host)
}

// IsOwnHost reports whether the host in a module's address is the gateway's own host. Clients write the gateway's port
// into the address, but the addresses in the registry have no port.
func IsOwnHost(gateway, host svchost.Hostname) bool {
	name, _, _ := strings.Cut(string(gateway), ":")
	return host == gateway || string(host) == name
}

// OwnModules is a note for users about modules with the gateway's own host name. The note applies if [Setup.Module]
// returns no error.
const OwnModules = "Modules whose address has the gateway's own host name need no configuration."

// errNoModuleHost means that no address of a module can have the gateway's host name.
var errNoModuleHost = errors.New("no module address can name the gateway")

// Module returns a module block for a module with the gateway's own host name. If the gateway's URL has a port, the
// source has the same port. A comment in the block says that the address in the registry has no port.
func (s *Setup) Module() (string, error) {
	host, err := s.host()
	if err != nil {
		return "", err
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return "", err
	}
	if _, err := module.ParseAddress(host.ForDisplay() + "/namespace/name/system"); err != nil || u.Path != "/" {
		return "", hint.Wrap(fmt.Errorf("%w at %s", errNoModuleHost, s.URL), "give the gateway a host name of its own, with a dot and without a path")
	}
	comment := ""
	if name, _, found := strings.Cut(host.ForDisplay(), ":"); found {
		comment = fmt.Sprintf("# Push it without the port, as %s/NAMESPACE/NAME/SYSTEM.\n", name)
	}
	return comment + fmt.Sprintf("module \"NAME\" {\n  source  = %q\n  version = \"~> 1.0\"\n}\n", host.ForDisplay()+"/NAMESPACE/NAME/SYSTEM"), nil
}

// errNoURITemplate means that no URI template is equivalent to the repository template.
var errNoURITemplate = errors.New("no URI template means the same as")

// OCI returns the configuration with which OpenTofu installs providers directly from the repositories: oci_mirror blocks, and
// oci_credentials blocks for the registries.
func (s *Setup) OCI() (string, error) {
	mirrors, err := s.mirrorsForTofu()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	switch {
	case len(s.Mirrors) > 0:
		writeLoginComments(&out, mirrors)
	case s.Tokens:
		host, _, _ := strings.Cut(mirrors[0].Template, "/")
		fmt.Fprintf(&out, "oci_credentials %q {\n  username = \"token\"\n  password = \"TOKEN\"\n}\n", host)
	}
	out.WriteString("provider_installation {\n")
	for _, m := range mirrors {
		fmt.Fprintf(&out, "  oci_mirror {\n    repository_template = %s\n", config.QuoteTemplate(m.Template))
		writePatterns(&out, "include", m.Include)
		writePatterns(&out, "exclude", m.Exclude)
		out.WriteString("  }\n")
	}
	out.WriteString("}\n")
	return out.String(), nil
}

// lock returns a "tofu providers lock" command for each mirror. The command names the mirror, because "providers lock"
// does not read the mirrors in the CLI configuration.
func (s *Setup) lock() (string, error) {
	mirrors, err := s.mirrorsForTofu()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	usable := false
	for _, m := range mirrors {
		if len(mirrors) > 1 && len(m.Include) > 0 {
			fmt.Fprintf(&out, "# for %s:\n", strings.Join(m.Include, ", "))
		}
		template, ok := templates.URITemplate(m.Template)
		if !ok {
			fmt.Fprintf(&out, "# no URI template means the same as repository_template %q\n", m.Template)
			continue
		}
		usable = true
		fmt.Fprintf(&out, "tofu providers lock -oci-mirror='%s'\n", template)
	}
	if !usable {
		return "", hint.Wrap(fmt.Errorf("%w repository_template %q", errNoURITemplate, mirrors[0].Template),
			"let the template insert ${hostname}, ${namespace} and ${type} alone")
	}
	return out.String(), nil
}

// mirrorsForTofu returns the oci_mirror blocks, or else a block for the embedded registry. It omits patterns that
// OpenTofu refuses, because OpenTofu would refuse the whole file. It omits a block if OpenTofu refuses all its include
// patterns.
func (s *Setup) mirrorsForTofu() ([]config.MirrorText, error) {
	if err := s.noProviders(); err != nil {
		return nil, err
	}
	if len(s.Mirrors) == 0 {
		m, err := s.embeddedMirror()
		return []config.MirrorText{m}, err
	}
	refused := func(pattern string) bool {
		p, err := provider.ParsePatternAsOpenTofu(pattern)
		return err == nil && p.ClientWarning() != ""
	}
	var out []config.MirrorText
	for _, m := range s.Mirrors {
		include := slices.DeleteFunc(slices.Clone(m.Include), refused)
		if len(include) == 0 && len(m.Include) > 0 {
			continue
		}
		m.Include, m.Exclude = include, slices.DeleteFunc(slices.Clone(m.Exclude), refused)
		out = append(out, m)
	}
	if len(out) == 0 {
		return nil, hint.New("the oci_mirror blocks include only providers that OpenTofu refuses", "install them with Terraform 1.16 or later, through the gateway")
	}
	return out, nil
}

// writeLoginComments writes an oci_credentials block for each registry, as comments for users who cannot run docker login.
func writeLoginComments(out *strings.Builder, mirrors []config.MirrorText) {
	var hosts []string
	for _, m := range mirrors {
		host, _, _ := strings.Cut(m.Template, "/")
		if _, err := ociaddr.ParseRegistry(host); err == nil && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
			fmt.Fprintf(out, "# Without docker login:\n# oci_credentials %q {\n#   username = \"USER\"\n#   password = \"PASSWORD\"\n# }\n", host)
		}
	}
}

func writePatterns(out *strings.Builder, name string, patterns []string) {
	if len(patterns) == 0 {
		return
	}
	quoted := make([]string, len(patterns))
	for i, p := range patterns {
		quoted[i] = fmt.Sprintf("%q", p)
	}
	fmt.Fprintf(out, "    %-19s = [%s]\n", name, strings.Join(quoted, ", "))
}
