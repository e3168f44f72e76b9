package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/app/clientsetup"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/app/serve"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

const configClientExamples = `  # what there is to print
  ocibridge config client

  # all texts, with explanations
  ocibridge config client --for all

  # for Terraform, and a gateway on another machine
  ocibridge config client --for terraform \
    --url https://providers.example.com/ > ~/.terraformrc

  # OpenTofu 1.10 and later, straight from the OCI registry
  ocibridge config client --for oci > ~/.tofurc

  # the credentials of the gateway, beside either
  ocibridge config client --for credentials >> ~/.tofurc

  # variables for a CI job
  ocibridge config client --for tofu > ci.tfrc
  ocibridge config client --for ci --cli-config ci.tfrc \
    --ca-file /etc/ssl/acme.pem > ci.env`

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
		Long: `client prints blocks for the CLI configuration of Terraform (~/.terraformrc) and
OpenTofu (~/.tofurc), CI jobs, and the configuration of other tools. Replace the word
TOKEN by a token of the gateway. Without --for, client lists the texts that it can
print here. With --for, it prints one text without explanations, so that it can be
redirected into a file:

  terraform     the gateway as network mirror, for Terraform
  tofu          the same for OpenTofu, which then trusts the mirror's hashes
  host          the gateway in the place of the origins, for both: clients then
                verify the publisher's signature. If the gateway asks for a token,
                there is a credentials block for each origin. Modules of the hosts
                in module_mirror blocks come from the gateway, too. Without mirror
                blocks, these are the hosts of the modules in the embedded registry
                of this machine. With --url, it is read only if --data names it
  module        a module block, for modules with the gateway's own host name
  oci           the OCI repositories as oci_mirror, for OpenTofu 1.10 and later
  lock          tofu providers lock commands for these repositories, with a URI
                template in -oci-mirror, for OpenTofu 1.13 and later
  credentials   the token of the gateway
  ci            NAME=value lines for a CI job, with the token
  terragrunt    a CLI configuration that Terragrunt's provider cache server reads, too
  renovate      renovate.json, with the gateway in the place of the origins
  renovate-bot  the variable with the gateway's token, for Renovate's own machine
  dependabot    dependabot.yml, for providers with the gateway's own host name
  github-actions, gitlab-ci
                a job that installs from the gateway. It expects the token in the
                secret or variable OCIBRIDGE_TOKEN
  pulumi        a command, for providers with the gateway's own host name
  all           all of them, with explanations

The gateway is the one at --url or gateway.public_url. Without both, it is the one
that serve would start here. The repositories are those of the oci_mirror and
module_mirror blocks in force, or else the embedded registry in the data folder.`,
		Example: configClientExamples,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, cmd.OutOrStdout(), cmd.ErrOrStderr()) },
	}
	f.configFlag.register(cmd)
	f.output.register(cmd)
	flags := cmd.Flags()
	names := append(clientsetup.Names(), clientsetup.All)
	flags.StringVar(&f.piece, "for", "", "print the text of this `NAME`: "+strings.Join(names, ", "))
	given := &givenText{text: &f.url, help: "leave out --url for the gateway's public_url", emptyVariable: true}
	flags.Var(given, "url", "https `URL` of the gateway (default: gateway.public_url)")
	flags.StringVar(&f.cliConfig, "cli-config", "ocibridge.tfrc", "`file` with the CLI configuration, for CI")
	flags.StringVar(&f.caFile, "ca-file", "", "`file` with a CA that clients should trust, for CI")
	surroundingFlags(cmd, "data", "listen", "template", "include", "exclude")
	cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (f *configClientFlags) run(cmd *cobra.Command, stdout, stderr io.Writer) error {
	if names := append(clientsetup.Names(), clientsetup.All); f.piece != "" && !slices.Contains(names, f.piece) {
		return usage(hint.New(fmt.Sprintf("--for %s is not known", f.piece), "it is one of %s", strings.Join(names, ", ")))
	}
	if f.url != "" {
		u, err := config.ParsePublicURL(f.url)
		if err != nil {
			return usage(hint.Wrap(fmt.Errorf("--url: %w", err), "give the URL that clients reach the gateway by, such as https://providers.example.com/"))
		}
		f.url = u
		if strings.HasSuffix(u, "/providers/") {
			warn(stderr, "the text adds providers/ to --url, which already ends in it: give the URL of the gateway, such as %s", strings.TrimSuffix(u, "providers/"))
		}
	}
	c, err := f.read(cmd.Context())
	if err != nil {
		return err
	}
	cli, err := loadCLIConfig(cmd.Context(), stderr, nil)
	if err != nil {
		return err
	}
	s := surroundings(cmd, cli)
	setup := &clientsetup.Setup{
		URL: cmp.Or(f.url, c.Gateway.PublicURL), Mirrors: c.EffectiveMirrors(s), Modules: c.ModuleTexts(), Pulled: c.PulledModuleHosts(), Tokens: c.Gateway.AsksForTokens(),
		CLIConfig: f.cliConfig, CAFile: f.caFile,
	}
	data := s.Flags["data"].Value
	if len(setup.Mirrors)+len(setup.Modules) == 0 && (data != "" || f.url == "") { // the gateway serves the embedded registry of this machine
		folder := cmp.Or(data, defaultDataFolder())
		if setup.Stored, err = serve.StoredModuleHosts(folder); err != nil {
			warn(stderr, "the text leaves out the hosts of stored modules: %v", err)
		}
		if setup.StoredProviders, err = serve.StoredProviderHosts(folder); err != nil {
			warn(stderr, "the text leaves out the hosts of stored providers: %v", err)
		}
	}
	if setup.URL == "" {
		setup.URL, setup.NoURL = clientsetup.GatewayURL(cmp.Or(s.Flags["listen"].Value, c.Gateway.Listen, config.FlagDefault("listen")))
		if clientsetup.RunsElsewhere(f.piece) && setup.IsLoopback() {
			warn(stderr, "the text has the URL %s, which other machines cannot reach: give --url, or set public_url in the gateway block", setup.URL)
		}
	}
	return f.print(stdout, setup)
}

// print prints the text that --for selects. Without --for, it prints the names of the texts, or all texts as JSON.
func (f *configClientFlags) print(w io.Writer, setup *clientsetup.Setup) error {
	only := f.piece
	if only == clientsetup.All {
		only = ""
	}
	texts, missing := setup.Texts(only)
	switch {
	case len(texts) == 0:
		return missing
	case f.output.json():
		return printJSON(w, texts)
	}
	text := texts[f.piece]
	switch f.piece {
	case "":
		text = linesText(terminalWidth(w), setup.Menu(texts))
	case clientsetup.All:
		text = setup.Guide(texts, missing)
	}
	_, err := io.WriteString(w, text)
	return err
}
