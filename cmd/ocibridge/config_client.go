package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/opentofu/svchost"
	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/registry/embedded"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

const configClientExamples = `  # everything, with what it is for
  ocibridge config client

  # for Terraform, of a gateway that this machine does not know
  ocibridge config client --for terraform --url https://providers.example.com/ > ~/.terraformrc

  # OpenTofu 1.10 and later, straight from the OCI registry
  ocibridge config client --for oci > ~/.tofurc

  # the credentials of the gateway, beside either
  ocibridge config client --for credentials >> ~/.tofurc

  # variables for a CI job
  ocibridge config client --for tofu > ci.tfrc
  ocibridge config client --for ci --cli-config ci.tfrc --ca-file /etc/ssl/acme.pem > ci.env`

// configClientFlags are the flags of config client.
type configClientFlags struct {
	configFlag
	output    outputFlag
	piece     string
	url       string
	cliConfig string
	caFile    string
}

func newConfigClientCommand() *cobra.Command {
	f := &configClientFlags{}
	cmd := &cobra.Command{
		Use:   "client",
		Short: "Print ready-to-paste configuration for clients",
		Long: `client prints what goes into the CLI configuration of Terraform (~/.terraformrc)
and OpenTofu (~/.tofurc), and into the environment of a CI job. With --for it
prints one of that alone, to be sent into a file:

  terraform     the gateway as network mirror, for Terraform
  tofu          the same for OpenTofu, which then trusts the mirror's hashes
  host          the gateway in the place of the origins, for either: what it
                serves is checked as the publisher signed it. Where it asks for a
                token, this is filed for each of the origins; put it in the place
                of TOKEN
  oci           the OCI repositories as oci_mirror, for OpenTofu 1.10 and later
  lock          tofu providers lock for those repositories, which it finds by the
                URI template in -oci-mirror; for OpenTofu 1.13 and later
  credentials   the token for the gateway; put it in the place of TOKEN
  ci            NAME=value lines for a CI job; the token in the place of TOKEN

The gateway is the one at gateway.public_url or --url; else the one that serve
would start here. The repositories are those of the oci_mirror blocks in force.`,
		Example: configClientExamples,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.configFlag.register(cmd)
	f.output.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.piece, "for", "", "print only what is for `CLIENT`: "+strings.Join(pieceNames(), ", "))
	given := &givenText{text: &f.url, help: "leave out --url for the gateway's public_url", emptyVariable: true}
	flags.Var(given, "url", "https `URL` of the gateway (default: gateway.public_url)")
	flags.StringVar(&f.cliConfig, "cli-config", "ocibridge.tfrc", "`file` that the CLI configuration is in, for CI")
	flags.StringVar(&f.caFile, "ca-file", "", "`file` with the CA that clients are to trust, for CI")
	surroundingFlags(cmd)
	cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(pieceNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// clientPiece is a part of what clients need.
type clientPiece struct {
	name, about string
	text        func(*clientSetup) (string, error)
}

func clientPieces() []clientPiece {
	return []clientPiece{
		{"terraform", "Terraform, in ~/.terraformrc or the file that TF_CLI_CONFIG_FILE names:", (*clientSetup).terraform},
		{"tofu", "OpenTofu, in ~/.tofurc. From 1.12 on, trust_all_hashes lets one init lock every platform:", (*clientSetup).tofu},
		{"host", "Either of them, in place of the mirror or beside it: what is signed comes as from its origin, and providers lock and providers mirror work without that:", (*clientSetup).hosts},
		{"oci", "OpenTofu 1.10 and later, straight from the OCI registry:", (*clientSetup).oci},
		{"lock", "Lock files by OpenTofu 1.13 and later, straight from the OCI registry; add -platform=OS_ARCH for each platform:", (*clientSetup).lock},
		{"credentials", "Beside either, where the gateway asks for a token:", (*clientSetup).credentials},
		{"ci", "The environment of a CI job that has one of these in a file:", (*clientSetup).ci},
	}
}

func pieceNames() []string {
	var out []string
	for _, p := range clientPieces() {
		out = append(out, p.name)
	}
	return out
}

func (f *configClientFlags) run(cmd *cobra.Command, stdout, stderr io.Writer) error {
	if f.piece != "" && !slices.Contains(pieceNames(), f.piece) {
		return usage(hint.New(fmt.Sprintf("--for %s is not known", f.piece), "it is one of %s", strings.Join(pieceNames(), ", ")))
	}
	if f.url != "" {
		u, err := config.ParsePublicURL(f.url)
		if err != nil {
			return usage(hint.Wrap(fmt.Errorf("--url: %w", err), "give the URL that clients reach the gateway by, such as https://providers.example.com/"))
		}
		f.url = u
	}
	c, err := f.read()
	if err != nil {
		return err
	}
	cli, err := loadCLIConfig(stderr, nil)
	if err != nil {
		return err
	}
	s := surroundings(cmd, cli)
	setup := &clientSetup{mirrors: c.MirrorsInForce(s), cliConfig: f.cliConfig, caFile: f.caFile, url: f.url, tokens: settings{file: c}.asksForTokens()}
	if setup.url == "" {
		setup.url, setup.noURL = gatewayURL(c, s)
	}
	return f.print(stdout, setup)
}

// gatewayURL is the gateway that the configuration says clients reach, or the one
// that serve would start here.
func gatewayURL(c *config.Config, s config.Surroundings) (string, error) {
	if c.Gateway.PublicURL != "" {
		return c.Gateway.PublicURL, nil
	}
	listen := "localhost:8443"
	if v, ok := s.Flags["listen"]; ok {
		listen = v.Value
	} else if c.Gateway.Listen != "" {
		listen = c.Gateway.Listen
	}
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err != nil || host == "" || port == "0" || ip != nil && ip.IsUnspecified() {
		return "", hint.New(fmt.Sprintf("nothing says by which name clients reach the gateway: it listens on %s", listen),
			"give --url, or set public_url in the gateway block")
	}
	return "https://" + net.JoinHostPort(host, port) + "/", nil
}

// print prints one piece alone, or all that can be had with what they are for.
func (f *configClientFlags) print(w io.Writer, setup *clientSetup) error {
	texts := map[string]string{}
	var missing error
	for _, p := range clientPieces() {
		if f.piece != "" && f.piece != p.name {
			continue
		}
		text, err := p.text(setup)
		if errors.Is(err, errNoURITemplate) && f.piece == "" {
			continue // the other pieces need none
		}
		if err != nil {
			missing = cmp.Or(missing, err)
			continue
		}
		texts[p.name] = text
	}
	switch {
	case len(texts) == 0:
		return missing
	case f.output.json():
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(texts)
	case f.piece != "":
		_, err := io.WriteString(w, texts[f.piece])
		return err
	}
	var out strings.Builder
	for _, p := range clientPieces() {
		if texts[p.name] != "" {
			fmt.Fprintf(&out, "%s\n\n%s\n", p.about, indent(texts[p.name]))
		}
	}
	out.WriteString(setup.notes())
	if missing != nil {
		fmt.Fprintf(&out, "That is not all: %v. To have the rest, %s.\n", missing, hint.Of(missing))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// errNoURITemplate is the error where a template has more than a URI template can say.
var errNoURITemplate = errors.New("no URI template means the same as")

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n  ") + "\n"
}

// clientSetup is what clients are to be set up for.
type clientSetup struct {
	url       string // of the gateway, with a slash at the end
	noURL     error  // why it is not known
	mirrors   []config.MirrorText
	tokens    bool // it asks for one
	cliConfig string
	caFile    string
}

func (s *clientSetup) mirrorURL() string { return strings.TrimSuffix(s.url, "/") + gateway.MirrorPath }

func (s *clientSetup) terraform() (string, error) {
	return fmt.Sprintf("provider_installation {\n  network_mirror {\n    url = %q\n  }\n}\n", s.mirrorURL()), s.noURL
}

func (s *clientSetup) tofu() (string, error) {
	return fmt.Sprintf("provider_installation {\n  network_mirror {\n    url              = %q\n    trust_all_hashes = true\n  }\n}\n", s.mirrorURL()), s.noURL
}

// hosts sends requests for the registries of mirrored providers to the gateway, and
// files its token where clients then look for it: under the names of those.
func (s *clientSetup) hosts() (string, error) {
	if s.noURL != nil {
		return "", s.noURL
	}
	var out strings.Builder
	for _, host := range s.mirroredHosts() {
		name := host.ForDisplay()
		fmt.Fprintf(&out, "host %q {\n  services = {\n", name)
		if slices.Contains(publicHosts, name) {
			// A host block stands for all that the host says of itself.
			modules := fmt.Sprintf("\"modules.v1\"   = \"https://%s/v1/modules/\"", name)
			if s.tokens {
				modules = "# " + modules + " # would get the token, too"
			}
			fmt.Fprintf(&out, "    %s\n", modules)
		}
		fmt.Fprintf(&out, "    %-14s = %q\n  }\n}\n", `"providers.v1"`, gateway.RegistryURL(s.url, string(host)))
		if s.tokens {
			out.WriteString(tokenFor(host))
		}
	}
	return out.String(), nil
}

// tokenFor files the gateway's token for a host.
func tokenFor(host svchost.Hostname) string {
	return fmt.Sprintf("credentials %q {\n  token = \"TOKEN\"\n}\n", host.ForDisplay())
}

// publicHosts are the registries of most providers, and of modules.
var publicHosts = []string{"registry.opentofu.org", "registry.terraform.io"}

// mirroredHosts are the hosts that oci_mirror blocks include by name, and the
// public ones where one includes any.
func (s *clientSetup) mirroredHosts() []svchost.Hostname {
	var names []string
	for _, m := range s.mirrors {
		for _, pattern := range m.Include {
			if name, _, _ := strings.Cut(pattern, "/"); name == "*" {
				names = append(names, publicHosts...)
			} else {
				names = append(names, name)
			}
		}
		if len(m.Include) == 0 {
			names = append(names, publicHosts...)
		}
	}
	if len(s.mirrors) == 0 {
		names = publicHosts
	}
	var out []svchost.Hostname
	for _, name := range names {
		if host, err := svchost.ForComparison(svchost.ForDisplay(name)); err == nil && !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	slices.Sort(out)
	return out
}

func (s *clientSetup) oci() (string, error) {
	mirrors, err := s.mirrorsForTofu()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	switch {
	case len(s.mirrors) > 0:
		writeLoginComments(&out, mirrors)
	case s.tokens:
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

// lock prints a command for each mirror: providers lock does not read the CLI
// configuration.
func (s *clientSetup) lock() (string, error) {
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

// mirrorsForTofu returns the mirrors in force, or the one for the embedded registry. It
// leaves out the patterns that OpenTofu refuses, because OpenTofu would refuse the whole
// file, and each mirror that includes nothing else.
func (s *clientSetup) mirrorsForTofu() ([]config.MirrorText, error) {
	if len(s.mirrors) == 0 {
		m, err := s.embedded()
		return []config.MirrorText{m}, err
	}
	refused := func(pattern string) bool {
		p, err := provider.ParsePatternAsOpenTofu(pattern)
		return err == nil && p.ClientWarning() != ""
	}
	var out []config.MirrorText
	for _, m := range s.mirrors {
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

// writeLoginComments writes the block for a login to each registry, for those who
// have none by docker login.
func writeLoginComments(out *strings.Builder, mirrors []config.MirrorText) {
	var hosts []string
	for _, m := range mirrors {
		host, _, _ := strings.Cut(m.Template, "/")
		if _, err := ociaddr.ParseRegistry(host); err == nil && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
			fmt.Fprintf(out, "# Where docker login is not to be had:\n# oci_credentials %q {\n#   username = \"USER\"\n#   password = \"PASSWORD\"\n# }\n", host)
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

// embedded is the oci_mirror block for the embedded registry, which the gateway
// has at the root of its host.
func (s *clientSetup) embedded() (config.MirrorText, error) {
	if s.noURL != nil {
		return config.MirrorText{}, s.noURL
	}
	u, err := url.Parse(s.url)
	if err != nil {
		return config.MirrorText{}, err
	}
	if u.Path != "/" {
		return config.MirrorText{}, hint.New(fmt.Sprintf("the embedded registry cannot be read below a path, as in %s", s.url),
			"no oci_mirror block is configured: add one, or have clients use the gateway as network mirror")
	}
	return config.MirrorText{Template: u.Host + "/" + embedded.Template}, nil
}

// host is what clients file a token for the gateway under: its host, with the
// port unless that is 443.
func (s *clientSetup) host() (svchost.Hostname, error) {
	if s.noURL != nil {
		return "", s.noURL
	}
	u, err := url.Parse(s.url)
	if err != nil {
		return "", err
	}
	host, err := svchost.ForComparison(svchost.ForDisplay(u.Host))
	if err != nil {
		return "", hint.New(fmt.Sprintf("clients can file no token for %s", u.Host), "give the gateway a host name")
	}
	return host, nil
}

func (s *clientSetup) credentials() (string, error) {
	host, err := s.host()
	return tokenFor(host), err
}

func (s *clientSetup) ci() (string, error) {
	variable, err := s.tokenVariable()
	out := fmt.Sprintf("TF_CLI_CONFIG_FILE=%s\n%s=TOKEN\n", s.cliConfig, variable)
	if s.caFile != "" {
		out += fmt.Sprintf("SSL_CERT_FILE=%s\n", s.caFile)
	}
	return out, err
}

// tokenVariable is the variable that clients look for a host's token in: dashes
// are written as two underscores there, and dots as one.
func (s *clientSetup) tokenVariable() (string, error) {
	host, err := s.host()
	return "TF_TOKEN_" + strings.NewReplacer("-", "__", ".", "_").Replace(string(host)), err
}

// notes are what is to be known of the environment beside its lines.
func (s *clientSetup) notes() string {
	var out strings.Builder
	if v, err := s.tokenVariable(); err == nil && strings.Contains(v, ":") {
		fmt.Fprintf(&out, "No shell can set a variable with a colon in its name; env can: env '%s=TOKEN' tofu init\n", v)
	}
	if s.caFile == "" && s.noURL == nil {
		out.WriteString("If a CA of your own or ocibridge serve's local CA signed the gateway's certificate, name the CA's file in SSL_CERT_FILE, on Unix other than macOS.\n")
	}
	return out.String()
}
