package clientsetup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// Tool is the text for a tool or a CI system that runs Terraform or OpenTofu, or that reads their registries.
type Tool struct {
	Name  string // as in [Names]
	Title string
	Where string // the file or the place to paste the text
	About string // one or two sentences
	Text  string
}

func tools() []Tool {
	return []Tool{
		{Name: "terragrunt", Title: "Terragrunt", Where: "the file that TF_CLI_CONFIG_FILE names, or ~/.terraformrc",
			About: "Terragrunt runs Terraform or OpenTofu, which read this file. Its provider cache server (--provider-cache) also reads network_mirror and host blocks in it, but no oci_mirror blocks."},
		{Name: "renovate", Title: "Renovate", Where: "renovate.json",
			About: "Renovate then reads versions from this gateway. For providers, it also reads the hashes of lock files, from the first URL."},
		{Name: "renovate-bot", Title: "Renovate's bot", Where: "the environment of the bot",
			About: "Leave hostRules for this gateway out of renovate.json, because they would replace these."},
		{Name: "dependabot", Title: "Dependabot", Where: ".github/dependabot.yml",
			About: "Dependabot reads no CLI configuration. Only providers whose address has the gateway's own host name come from the gateway."},
		{Name: "github-actions", Title: "GitHub Actions", Where: ".github/workflows/NAME.yml",
			About: "The job writes the configuration into a file, and installs the providers."},
		{Name: "gitlab-ci", Title: "GitLab CI", Where: ".gitlab-ci.yml",
			About: "The job writes the configuration into a file, and installs the providers."},
		{Name: "pulumi", Title: "Pulumi", Where: "the shell, in a Pulumi project",
			About: "Pulumi reads no CLI configuration. It installs only providers whose address has the gateway's own host name."},
	}
}

// RunsElsewhere reports whether the text with the given name is for programs that do not run on the user's machine. In
// such a text, the gateway's URL must not name this machine.
func RunsElsewhere(name string) bool {
	return slices.Contains([]string{"ci", "renovate", "renovate-bot", "dependabot", "github-actions", "gitlab-ci"}, name)
}

// toolPieces returns the tools' texts as pieces of a guide.
func toolPieces() []piece {
	pieces := map[string]piece{
		"terragrunt":     {brief: "a CLI configuration that Terragrunt's cache server reads, too", text: (*Setup).terragrunt},
		"renovate":       {brief: "renovate.json, with the gateway in place of the origins", text: (*Setup).renovate},
		"renovate-bot":   {brief: "the gateway's token, for the machine of Renovate", text: (*Setup).renovateBot},
		"dependabot":     {brief: "dependabot.yml, for the gateway's own providers", text: (*Setup).dependabot},
		"github-actions": {brief: "a workflow for GitHub that installs from the gateway", text: (*Setup).githubActions},
		"gitlab-ci":      {brief: "a job for GitLab that installs from the gateway", text: (*Setup).gitlabCI},
		"pulumi":         {brief: "a command, for the gateway's own providers", text: (*Setup).pulumi},
	}
	var out []piece
	for _, t := range tools() {
		p := pieces[t.Name]
		p.name, p.heading = t.Name, fmt.Sprintf("%s, in %s. %s", t.Title, t.Where, t.About)
		out = append(out, p)
	}
	return out
}

// Tools returns the tools whose texts can be written.
func (s *Setup) Tools() []Tool {
	texts, _ := s.Texts("")
	var out []Tool
	for _, t := range tools() {
		if t.Text = texts[t.Name]; t.Text != "" {
			out = append(out, t)
		}
	}
	return out
}

// terragrunt returns a CLI configuration. Terragrunt and its provider cache server read network_mirror blocks, but not
// oci_mirror blocks. Terraform and OpenTofu look up the token by the gateway's host and port. Terragrunt looks it up by
// the host alone.
func (s *Setup) terragrunt() (string, error) {
	text, err := s.Terraform()
	if err != nil || !s.Tokens {
		return text, err
	}
	host, err := s.host()
	if err != nil {
		return "", err
	}
	text += credentials(host)
	if name, _, hasPort := strings.Cut(string(host), ":"); hasPort {
		text += "\n# Terragrunt's own requests, which look up the token without the port:\n" + credentials(svchost.Hostname(name))
	}
	return text, nil
}

// renovateRule is an element of packageRules in a renovate.json.
type renovateRule struct {
	MatchDatasources    []string `json:"matchDatasources"`
	MatchDepTypes       []string `json:"matchDepTypes,omitempty"`
	MatchDepNames       []string `json:"matchDepNames,omitempty"`
	RegistryURLs        []string `json:"registryUrls"`
	OverridePackageName string   `json:"overridePackageName,omitempty"`
}

// renovate returns a renovate.json. For a provider, Renovate requests the URLs in order. For a module, it requests only
// the first URL. So there is one rule for the providers, and one rule for the modules of each host. There are no
// hostRules: the rules of a repository would replace the rules of the bot, which have the token.
func (s *Setup) renovate() (string, error) {
	if s.NoURL != nil {
		return "", s.NoURL
	}
	out := struct {
		Schema       string         `json:"$schema"`
		PackageRules []renovateRule `json:"packageRules"`
	}{Schema: "https://docs.renovatebot.com/renovate-schema.json"}
	noProviders := s.noProviders()
	if noProviders == nil {
		r := renovateRule{MatchDatasources: []string{"terraform-provider"}}
		for _, host := range s.mirroredHosts() {
			r.RegistryURLs = append(r.RegistryURLs, strings.TrimSuffix(gateway.RegistryURL(s.URL, string(host)), "/v1/providers/"))
		}
		out.PackageRules = append(out.PackageRules, r)
	}
	out.PackageRules = append(out.PackageRules, s.renovateModules()...)
	if len(out.PackageRules) == 0 {
		return "", noProviders
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(out)
	return text.String(), err
}

// renovateBot returns the command that sets hostRules in the bot's environment. A gateway that requires no token needs
// hostRules, too: Renovate 44 trusts an internal host only if the bot's own configuration names it.
func (s *Setup) renovateBot() (string, error) {
	token := ""
	if s.Tokens {
		token = `, "token": "TOKEN"`
	}
	return fmt.Sprintf("export RENOVATE_HOST_RULES='[{\"matchHost\": %q%s}]'\n", s.URL, token), s.NoURL
}

// renovateModules returns the rules for the modules of [Setup.ModuleHosts]. Renovate ignores registryUrls if the package
// name of a module begins with a host, so the rules remove the host. The dependency name keeps the host.
func (s *Setup) renovateModules() []renovateRule {
	var out []renovateRule
	byDefault := ""
	for _, host := range s.ModuleHosts() {
		at := strings.TrimSuffix(gateway.ModulesURL(s.URL, string(host)), "/v1/modules/")
		if slices.Contains(publicHosts, host) {
			byDefault = at // registry.terraform.io comes last, and is also Renovate's default
		}
		names := []string{string(host) + "/**"}
		if host.ForDisplay() != string(host) {
			names = append(names, host.ForDisplay()+"/**")
		}
		out = append(out, renovateRule{
			MatchDatasources: []string{"terraform-module"}, MatchDepNames: names, RegistryURLs: []string{at},
			OverridePackageName: "{{{replace '^[^/]+/' '' depName}}}",
		})
	}
	if byDefault != "" {
		out = append(out, renovateRule{
			MatchDatasources: []string{"terraform-module"}, MatchDepNames: []string{"*/*/*"}, RegistryURLs: []string{byDefault},
			MatchDepTypes: []string{"module"}, // not Terragrunt's modules, whose dependency names never have a host
		})
	}
	return out
}

// ownHost returns the gateway's HOST or HOST:PORT. Clients need no configuration for a provider whose address begins
// with this host. ownHost fails if providers have no repositories, or if the gateway's URL has a path, because clients
// look for the discovery document at the root of a host.
func (s *Setup) ownHost() (string, error) {
	if err := s.noProviders(); err != nil {
		return "", err
	}
	host, err := s.host()
	if err != nil {
		return "", err
	}
	if u, err := url.Parse(s.URL); err != nil || u.Path != "/" {
		return "", hint.New(fmt.Sprintf("no provider address can name a gateway below a path, as in %s", s.URL),
			"give the gateway a host name of its own for Dependabot and Pulumi")
	}
	return host.ForDisplay(), nil
}

// dependabot returns a dependabot.yml.
func (s *Setup) dependabot() (string, error) {
	host, err := s.ownHost()
	if err != nil {
		return "", err
	}
	registries, use := "", ""
	if s.Tokens {
		registries = fmt.Sprintf("registries:\n  ocibridge:\n    type: terraform-registry\n    url: https://%s\n    token: ${{secrets.OCIBRIDGE_TOKEN}}\n", host)
		use = "    registries:\n      - ocibridge\n"
	}
	return fmt.Sprintf("# for providers such as %s/NAMESPACE/TYPE\nversion: 2\n%supdates:\n  - package-ecosystem: terraform # or opentofu\n    directory: /\n%s    schedule:\n      interval: weekly\n",
		host, registries, use), nil
}

// pulumi returns the command that adds a provider to a Pulumi project.
func (s *Setup) pulumi() (string, error) {
	host, err := s.ownHost()
	return fmt.Sprintf("pulumi package add terraform-provider %s/NAMESPACE/TYPE\n", host), err
}

// job is what a CI job needs to install providers from the gateway.
type job struct {
	script   string // writes the CLI configuration into the file that the variable TF_CLI_CONFIG_FILE names
	init     string // the command that installs providers
	variable string // the variable that must hold the token; "" if the gateway requires none
	caFile   string // the CA file, quoted for YAML; "" if clients need none
}

// job returns the parts of a CI job. If the name of the token's variable has a colon, no shell and no CI system can set
// the variable. In that case, the command sets the variable from OCIBRIDGE_TOKEN.
func (s *Setup) job() (j job, err error) {
	text, err := s.Terraform()
	if err != nil {
		return job{}, err
	}
	j = job{script: "cat > \"$TF_CLI_CONFIG_FILE\" <<'END'\n" + text + "END\n", init: "terraform init"}
	if s.CAFile != "" {
		j.caFile = quoteYAML(s.CAFile)
	}
	if !s.Tokens {
		return j, nil
	}
	if j.variable, err = s.TokenVariable(); strings.Contains(j.variable, ":") {
		j.init = fmt.Sprintf("env \"%s=$OCIBRIDGE_TOKEN\" terraform init", j.variable)
		j.variable = "OCIBRIDGE_TOKEN"
	}
	j.init = quoteYAML(j.init)
	return j, err
}

// githubActions returns a workflow. GitHub's runners lack Terraform, so a step installs it.
func (s *Setup) githubActions() (string, error) {
	j, err := s.job()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString("name: providers\non: push\njobs:\n  init:\n    runs-on: ubuntu-latest\n")
	if j.caFile != "" {
		fmt.Fprintf(&out, "    env:\n      SSL_CERT_FILE: %s\n", j.caFile)
	}
	out.WriteString("    steps:\n      - uses: actions/checkout@v7\n      - uses: hashicorp/setup-terraform@v3\n      - run: |\n")
	out.WriteString(indentBy("          ", "export TF_CLI_CONFIG_FILE=\"$RUNNER_TEMP/ocibridge.tfrc\"\n"+j.script+"echo \"TF_CLI_CONFIG_FILE=$TF_CLI_CONFIG_FILE\" >> \"$GITHUB_ENV\"\n"))
	fmt.Fprintf(&out, "      - run: %s\n", j.init)
	if j.variable != "" {
		fmt.Fprintf(&out, "        env:\n          %s: ${{ secrets.OCIBRIDGE_TOKEN }}\n", j.variable)
	}
	return out.String(), nil
}

// gitlabCI returns a job. Its project defines OCIBRIDGE_TOKEN as a masked variable.
func (s *Setup) gitlabCI() (string, error) {
	j, err := s.job()
	if err != nil {
		return "", err
	}
	var variables strings.Builder
	if j.caFile != "" {
		fmt.Fprintf(&variables, "    SSL_CERT_FILE: %s\n", j.caFile)
	}
	if j.variable != "" && j.variable != "OCIBRIDGE_TOKEN" {
		fmt.Fprintf(&variables, "    %s: $OCIBRIDGE_TOKEN\n", j.variable)
	}
	var out strings.Builder
	out.WriteString("init:\n  image:\n    name: hashicorp/terraform:1.11\n    entrypoint: [\"\"] # the image's own is terraform\n")
	if variables.Len() > 0 {
		out.WriteString("  variables:\n" + variables.String())
	}
	out.WriteString("  before_script:\n    - |\n")
	out.WriteString(indentBy("      ", "export TF_CLI_CONFIG_FILE=\"$(mktemp)\"\n"+j.script))
	fmt.Fprintf(&out, "  script:\n    - %s\n", j.init)
	return out.String(), nil
}

// quoteYAML returns a YAML scalar, in single quotes if it needs quotes.
func quoteYAML(s string) string {
	if !strings.ContainsAny(s, "\"':#{}[],&*!|>%@`\\") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}
