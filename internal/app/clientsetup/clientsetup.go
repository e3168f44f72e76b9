// Package clientsetup writes the configuration that clients need to install providers and modules from a gateway or an OCI
// registry: blocks for the CLI configuration of Terraform and OpenTofu, commands, CI jobs, and the configuration of other
// tools. "ocibridge config client" and the gateway's page print the same texts.
//
// The package opens no files and no connections. The texts contain the word TOKEN in the place of the user's token.
package clientsetup

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
)

// Setup describes the gateway and the repositories that clients use.
type Setup struct {
	URL             string              // the gateway's URL; it ends in a slash
	NoURL           error               // the error that says why URL is unknown; nil if URL is set
	Mirrors         []config.MirrorText // the oci_mirror blocks; empty for the embedded registry
	Modules         []config.ModuleText // the module_mirror blocks
	Stored          []svchost.Hostname  // the hosts of the modules in the embedded registry
	StoredProviders []svchost.Hostname  // the hosts of the providers in the embedded registry
	Pulled          []config.PulledHost // the hosts whose modules the gateway pulls through
	Tokens          bool                // whether the gateway requires a token
	CLIConfig       string              // the file with the CLI configuration of a CI job
	CAFile          string              // the CA file of a CI job; "" to omit it
}

// GatewayURL returns the URL of a gateway that has no configured public URL. listen is the address on which the gateway
// listens. GatewayURL returns an error if the address does not name a host and a port by which clients can reach the
// gateway.
func GatewayURL(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err != nil || host == "" || port == "0" || ip != nil && ip.IsUnspecified() {
		return "", hint.New(fmt.Sprintf("nothing says by which name clients reach the gateway: it listens on %s", listen),
			"give --url, or set public_url in the gateway block")
	}
	return "https://" + net.JoinHostPort(host, port) + "/", nil
}

// IsLoopback reports whether the gateway's URL can be reached only from the gateway's own machine.
func (s *Setup) IsLoopback() bool {
	u, err := url.Parse(s.URL)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// piece is one text of a guide. Its heading says which client the text is for, and brief says the same in few words.
type piece struct {
	name, brief, heading string
	text                 func(*Setup) (string, error)
	modules              string // the heading if there are only module_mirror blocks; "" for the same heading
}

func pieces() []piece {
	return append([]piece{
		{name: "terraform", brief: "the gateway as network mirror, for Terraform", heading: "Terraform, in ~/.terraformrc or the file that TF_CLI_CONFIG_FILE names:", text: (*Setup).Terraform},
		{name: "tofu", brief: "the same for OpenTofu, which then trusts the mirror's hashes", heading: "OpenTofu, in ~/.tofurc. From 1.12 on, trust_all_hashes lets one init lock every platform of a provider of registry.opentofu.org:", text: (*Setup).OpenTofu},
		{name: "host", brief: "the gateway in place of the origins, for both", heading: "Either of them, in place of the mirror or beside it: what is signed comes as from its origin, and providers lock and providers mirror work without that:", text: (*Setup).Hosts,
			modules: "Terraform in ~/.terraformrc, or OpenTofu in ~/.tofurc. Modules of these hosts then come from the gateway:"},
		{name: "module", brief: "a module block, for the gateway's own modules", heading: OwnModules + " Modules of other hosts need the host blocks above, and ocibridge exec writes these blocks itself:", text: (*Setup).Module},
		{name: "oci", brief: "the OCI repositories, for OpenTofu 1.10 and later", heading: "OpenTofu 1.10 and later, straight from the OCI registry:", text: (*Setup).OCI},
		{name: "lock", brief: "tofu providers lock commands, for OpenTofu 1.13 and later", heading: "Lock files by OpenTofu 1.13 and later, straight from the OCI registry; add -platform=OS_ARCH for each platform:", text: (*Setup).lock},
		{name: "credentials", brief: "the token of the gateway, beside any of these", heading: "Beside either, where the gateway asks for a token:", text: (*Setup).Credentials,
			modules: "For modules with the gateway's own host name, if the gateway requires a token:"},
		{name: "ci", brief: "NAME=value lines for a CI job, with the token", heading: "The environment of a CI job that has one of these in a file:", text: (*Setup).ci},
	}, toolPieces()...)
}

// All is the name that selects the guide with all texts. No text has it.
const All = "all"

// Menu lists the texts that can be written, each in a line with its name and a few words, and says how to print a text.
// texts is the result of [Setup.Texts].
func (s *Setup) Menu(texts map[string]string) string {
	var out strings.Builder
	var others []string
	out.WriteString("ocibridge config client --for NAME prints one of these texts:\n\n")
	for _, p := range pieces() {
		if texts[p.name] == "" {
			others = append(others, p.name)
			continue
		}
		fmt.Fprintf(&out, "  %-15s %s\n", p.name, p.brief)
	}
	fmt.Fprintf(&out, "  %-15s all of them, with explanations\n", All)
	if s.NoURL == nil {
		fmt.Fprintf(&out, "\nThe gateway is at %s\n", s.URL)
	}
	if len(others) > 0 {
		fmt.Fprintf(&out, "\nThis configuration has no text for %s: --for says why.\n", strings.Join(others, ", "))
	}
	return out.String()
}

// Names returns the names of all texts, in the order of [Setup.Guide].
func Names() []string {
	var out []string
	for _, p := range pieces() {
		out = append(out, p.name)
	}
	return out
}

// Texts returns all texts by name. If the parameter only is not "", Texts returns no other text than the one with this
// name. It omits texts that cannot be written. The error missing says why the first of these cannot be written. This
// error never reports the lack of a URI template or of a host name for modules, unless the parameter only names the
// text that needs it.
func (s *Setup) Texts(only string) (texts map[string]string, missing error) {
	texts = map[string]string{}
	for _, p := range pieces() {
		if only != "" && only != p.name {
			continue
		}
		text, err := p.text(s)
		switch {
		case (errors.Is(err, errNoURITemplate) || errors.Is(err, errNoModuleHost)) && only == "":
		case err != nil:
			missing = cmp.Or(missing, err)
		default:
			texts[p.name] = text
		}
	}
	return texts, missing
}

// Guide returns a guide for users from the results of [Setup.Texts]: the texts under their headings, and notes.
func (s *Setup) Guide(texts map[string]string, missing error) string {
	var out strings.Builder
	for _, p := range pieces() {
		heading := p.heading
		if p.modules != "" && s.noProviders() != nil {
			heading = p.modules
		}
		if texts[p.name] != "" {
			fmt.Fprintf(&out, "%s\n\n%s\n", heading, indent(texts[p.name]))
		}
	}
	if v, err := s.TokenVariable(); err == nil && strings.Contains(v, ":") {
		fmt.Fprintf(&out, "No shell can set a variable with a colon in its name; env can: env '%s=TOKEN' tofu init\n", v)
	}
	if s.CAFile == "" && s.NoURL == nil {
		out.WriteString("If a CA of your own or ocibridge serve's local CA signed the gateway's certificate, name the CA's file in SSL_CERT_FILE, on Unix other than macOS.\n")
	}
	if missing != nil {
		fmt.Fprintf(&out, "Some texts are missing: %v. To get them, %s.\n", missing, hint.Of(missing))
	}
	return out.String()
}

func indent(s string) string { return indentBy("  ", s) }

func indentBy(by, s string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n"+by) + "\n"
}

func (s *Setup) mirrorURL() string { return strings.TrimSuffix(s.URL, "/") + gateway.MirrorPath }

// noMirror returns an error if clients cannot use the gateway as a network mirror.
func (s *Setup) noMirror() error { return cmp.Or(s.NoURL, s.noProviders()) }

// noProviders returns an error if there are only module_mirror blocks, because in that case providers have no
// repositories.
func (s *Setup) noProviders() error {
	if len(s.Mirrors) > 0 || len(s.Modules) == 0 {
		return nil
	}
	return hint.New("no oci_mirror block is configured, so there are no providers", "add an oci_mirror block beside the module_mirror blocks")
}

// Terraform returns the block that makes the gateway Terraform's network mirror.
func (s *Setup) Terraform() (string, error) {
	return fmt.Sprintf("provider_installation {\n  network_mirror {\n    url = %q\n  }\n}\n", s.mirrorURL()), s.noMirror()
}

// OpenTofu returns the block that makes the gateway OpenTofu's network mirror.
func (s *Setup) OpenTofu() (string, error) {
	return fmt.Sprintf("provider_installation {\n  network_mirror {\n    url              = %q\n    trust_all_hashes = true\n  }\n}\n", s.mirrorURL()), s.noMirror()
}

// host returns the name under which clients look for the gateway's token: HOST:PORT, or only HOST if the port is 443.
func (s *Setup) host() (svchost.Hostname, error) {
	if s.NoURL != nil {
		return "", s.NoURL
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return "", err
	}
	host, err := svchost.ForComparison(svchost.ForDisplay(u.Host))
	if err != nil {
		return "", hint.New(fmt.Sprintf("clients can file no token for %s", u.Host), "give the gateway a host name")
	}
	return host, nil
}

// Credentials returns the credentials block for the gateway.
func (s *Setup) Credentials() (string, error) {
	host, err := s.host()
	return credentials(host), err
}

func credentials(host svchost.Hostname) string {
	return fmt.Sprintf("credentials %q {\n  token = \"TOKEN\"\n}\n", host.ForDisplay())
}

func (s *Setup) ci() (string, error) {
	variable, err := s.TokenVariable()
	out := fmt.Sprintf("TF_CLI_CONFIG_FILE=%s\n%s=TOKEN\n", s.CLIConfig, variable)
	if s.CAFile != "" {
		out += fmt.Sprintf("SSL_CERT_FILE=%s\n", s.CAFile)
	}
	return out, err
}

// TokenVariable returns the name of the variable in which clients look for the gateway's token. In this name, two underscores
// replace each dash of the host, and one underscore replaces each dot.
func (s *Setup) TokenVariable() (string, error) {
	host, err := s.host()
	return "TF_TOKEN_" + strings.NewReplacer("-", "__", ".", "_").Replace(string(host)), err
}

// embeddedMirror returns the oci_mirror block for the embedded registry. The gateway serves it at the root of its host, so the
// gateway's URL must not have a path.
func (s *Setup) embeddedMirror() (config.MirrorText, error) {
	if s.NoURL != nil {
		return config.MirrorText{}, s.NoURL
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return config.MirrorText{}, err
	}
	if u.Path != "/" {
		return config.MirrorText{}, hint.New(fmt.Sprintf("the embedded registry cannot be read below a path, as in %s", s.URL),
			"no oci_mirror block is configured: add one, or have clients use the gateway as network mirror")
	}
	return config.MirrorText{Template: u.Host + "/" + embedded.Template}, nil
}
