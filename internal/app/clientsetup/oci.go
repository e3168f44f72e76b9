package clientsetup

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

// errNoURITemplate means that no URI template is equivalent to the repository template.
var errNoURITemplate = errors.New("no URI template means the same as")

// OCI returns the configuration with which OpenTofu installs providers directly from the
// repositories. It contains oci_mirror blocks, and oci_credentials blocks for the
// registries.
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

// lock returns a "tofu providers lock" command for each mirror. Each command names its
// mirror, because "providers lock" does not read the mirrors in the CLI configuration.
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

// mirrorsForTofu returns the oci_mirror blocks. Without blocks, it returns a block for the
// embedded registry. It omits patterns that OpenTofu refuses, because OpenTofu would
// refuse the whole file. It also omits a block if all its include patterns are refused.
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

// writeLoginComments writes an oci_credentials block for each registry. The blocks are
// comments, and only users who cannot run docker login need them.
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
