package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"

	"github.com/opentofu/svchost"
	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/internal/app/clientsetup"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/app/doctor"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

const doctorExamples = `  # does everything work that the configuration names?
  ocibridge doctor

  # why does a push to this repository not work?
  ocibridge doctor registry.opentofu.org/hashicorp/null \
    --template 'ghcr.io/acme/${hostname}/${namespace}/${type}'

  # why does a push of this module not work?
  ocibridge doctor registry.acme.example/platform/vpc/aws

  # what is wrong with a registry? (one repository of each of its templates)
  ocibridge doctor ghcr.io

  # may it write? (a test version, which is deleted where the login may delete)
  ocibridge doctor --write registry.opentofu.org/hashicorp/null

  # what does a client see of a gateway?
  ocibridge doctor --url https://providers.example.com:8443/providers/ \
    registry.opentofu.org/hashicorp/null

  # what does a client see of a module? (with the URL of the gateway itself)
  ocibridge doctor --url https://providers.example.com:8443/ \
    registry.acme.example/platform/vpc/aws`

type doctorFlags struct {
	registryFlags
	output outputFlag
	log    logFlag
	url    string
	write  bool
}

func newDoctorCommand() *cobra.Command {
	f := &doctorFlags{}
	cmd := &cobra.Command{
		Use:   "doctor [PROVIDER | MODULE | REGISTRY]",
		Short: "Find out why a registry, an origin or a gateway does not work",
		Long: `doctor takes the steps of a push, a gateway or a client one by one. For each step it
says whether it works, and what to do if not: proxy, the source of the credential and
the other candidates, connection, certificate, clock, rights, tags, content, origin,
keys, package, free space.

With PROVIDER, doctor examines the provider's repository and origin, and the folders of
this machine. With MODULE, it examines the module's repository, and these folders. With
REGISTRY, a host such as ghcr.io, it examines one repository of every template that names
this registry.

With --url, it examines a gateway as clients see it. Give the URL of the network mirror,
which ends in providers/. Without PROVIDER, doctor requests some that the embedded
registry has, or else those of the provider blocks here. For MODULE, give the URL of the
gateway: doctor requests the discovery document, the versions, the location of the newest
one, and its zip. A module of another host needs no discovery document, because of the
host block.

Without arguments it examines one repository of every template and every project, the
repositories and origins of the provider blocks, public_url, whether the patterns of
require, deny and deprecate match anything, and the folders of this machine. It
examines at most ten repositories of providers, ten of modules, and ten origins, and
names the others. In the embedded registry, it examines one stored module.

It exits with 1 if a step failed. It writes to the registry only with --write.`,
		Example: doctorExamples,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage(hint.New("more than one provider, module or registry", "name one, or none for everything that the configuration names"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			what, err := parseExamined(args)
			if err != nil {
				return usage(err)
			}
			if f.url != "" && what.registry != "" {
				return usage(hint.New(fmt.Sprintf("the registry %s does not go with --url", what.registry), "--url takes a provider, such as registry.opentofu.org/hashicorp/null, or a module, such as registry.acme.example/platform/vpc/aws"))
			}
			for _, name := range []string{"write", "template", "include", "exclude", "data", "plain-http", "ca-file"} {
				if f.url != "" && cmd.Flags().Changed(name) {
					return usage(hint.New(fmt.Sprintf("--%s does not go with --url", name), "--url examines a gateway as clients see it, who know nothing of that"))
				}
			}
			s, err := f.settings(cmd)
			if err != nil {
				return err
			}
			return f.run(cmd, s, what)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.registryFlags.register(cmd)
	f.use = config.OwnGateway
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelWarn)
	given := &givenText{text: &f.url, help: "leave out --url to examine a registry", emptyVariable: true}
	cmd.Flags().Var(given, "url", "examine the network mirror at this `URL`, or for MODULE the gateway, as a client sees it, in place of a registry")
	cmd.Flags().BoolVar(&f.write, "write", false, "push a test version, and delete it where the login may delete")
	return cmd
}

// examined selects the repositories that doctor examines. If the field "of" names a provider or module, doctor examines
// its repository. Otherwise, it examines one repository of each template. If the field "registry" is set, doctor leaves
// out the templates that do not name this registry.
type examined struct {
	of       subject.Address // nil if the arguments name no provider or module
	registry ociaddr.Registry
}

// parseExamined parses the argument of doctor. An argument without a slash is a registry. An argument with three slashes
// is a module, and any other argument is a provider.
func parseExamined(args []string) (s examined, err error) {
	switch {
	case len(args) == 0:
	case strings.Count(args[0], "/") == 3 && !strings.Contains(args[0], "://"):
		s.of, err = module.ParseAddress(args[0])
		return s, err // ParseAddress has added a hint about addresses to err
	case strings.Contains(args[0], "/"):
		if s.of, err = provider.ParseAddress(args[0]); !strings.ContainsAny(args[0], ":@") {
			return s, err // ParseAddress has added a hint about addresses to err
		}
	default:
		s.registry, err = ociaddr.ParseRegistry(strings.ToLower(args[0]))
	}
	if err != nil {
		err = hint.Replace(err, "name a provider, such as registry.opentofu.org/hashicorp/null, or a registry, such as ghcr.io")
	}
	return s, err
}

// run examines what the arguments select, and prints the reports. It returns an error if a check has failed.
func (f *doctorFlags) run(cmd *cobra.Command, s settings, what examined) error {
	reports, err := f.examine(cmd.Context(), s, what, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	err = failedChecks(reports)
	if f.output.json() {
		return f.output.print(cmd, map[string][]*doctor.Report{"reports": reports}, err)
	}
	if werr := printReports(cmd.OutOrStdout(), reports); werr != nil {
		return werr
	}
	return err
}

// failedChecks returns an error if a check of any report has failed.
func failedChecks(reports []*doctor.Report) error {
	var failed []string
	for _, r := range reports {
		if r.Failed() {
			failed = append(failed, r.Subject)
		}
	}
	const help = "each failed check above says what to do"
	switch len(failed) {
	case 0:
		return nil
	case 1:
		return hint.New(failed[0]+" failed a check", help)
	}
	return hint.New(fmt.Sprintf("%s and %d more failed a check", failed[0], len(failed)-1), help)
}

func (f *doctorFlags) examine(ctx context.Context, s settings, what examined, stderr io.Writer) ([]*doctor.Report, error) {
	if f.url != "" {
		r, err := examineGateway(ctx, s, f.url, what)
		return []*doctor.Report{r}, err
	}
	var named []subject.Address
	if what.of != nil {
		named = append(named, what.of)
	}
	f.reads = !f.write
	back, err := f.openFor(s, named, f.log.open(stderr))
	if err != nil {
		return nil, err
	}
	defer back.Close()
	if what.of != nil {
		return f.examineSubject(ctx, s, back, what.of)
	}
	if what.registry != "" {
		return f.examineRegistry(ctx, s, back, what.registry)
	}
	return f.examineAll(ctx, s, back)
}

// examineSubject examines everything that a push of a provider or a module needs.
func (f *doctorFlags) examineSubject(ctx context.Context, s settings, back *registry.Repositories, of subject.Address) ([]*doctor.Report, error) {
	repository, err := f.examineRepository(ctx, back, of)
	if err != nil {
		return nil, err
	}
	reports := []*doctor.Report{repository}
	switch a := of.(type) {
	case provider.Address:
		reports = append(reports, f.examineOriginOf(ctx, s, a, repository.Origin)...)
	case module.Address: // a module without a block may be the user's own, without an origin
		reports = append(reports, f.examineModuleOrigins(ctx, s, func(m config.Module) bool { return m.Address == a })...)
	}
	return append(reports, f.examineHere(ctx, s, back.Embedded != nil)...), nil
}

// examineAll examines everything that the configuration names.
func (f *doctorFlags) examineAll(ctx context.Context, s settings, back *registry.Repositories) ([]*doctor.Report, error) {
	reports := f.examineRepositories(ctx, s, back, "")
	reports = append(reports, f.examineOrigins(ctx, s, func(config.Provider) bool { return true })...)
	reports = append(reports, f.examineModuleOrigins(ctx, s, func(config.Module) bool { return true })...)
	reports = append(reports, examinePublic(ctx, s)...)
	reports = append(reports, examinePatterns(ctx, s, back)...)
	return append(reports, f.examineHere(ctx, s, back.Embedded != nil)...), nil
}

// examineRepository examines the repository of a provider or a module.
func (f *doctorFlags) examineRepository(ctx context.Context, back *registry.Repositories, a subject.Address) (*doctor.Report, error) {
	template, err := back.Templates.For(a)
	if err != nil {
		return nil, err
	}
	addr, repo, err := back.Repository(ctx, a)
	return f.examineStore(ctx, back, doctor.Repository{Subject: a, Address: addr, Template: template.Source(), Store: repo, Err: err})
}

// examineStore examines the repository x. If x has no address, it returns x.Err, which says why.
func (f *doctorFlags) examineStore(ctx context.Context, back *registry.Repositories, x doctor.Repository) (*doctor.Report, error) {
	if x.Address == (ociaddr.Repository{}) {
		return nil, x.Err
	}
	x.Write, x.Embedded = f.write, back.Embedded != nil
	x.Explain = func(err error) error { return back.ExplainFor(x.Subject, err) }
	if back.Client != nil {
		x.Candidates = back.Client.Logins.Considered(ctx, x.Address)
	}
	if lock := back.Lock(); f.write && lock != nil {
		unlock, err := lock(ctx, "doctor --write of "+x.Address.String())
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	return x.Examine(ctx), nil
}

// examineGateway examines a gateway as a client sees it. It requests what.of or, if that is nil, providers that the
// gateway may have. The requests carry the client's token from the CLI configuration, and no logins for registries.
func examineGateway(ctx context.Context, s settings, at string, what examined) (*doctor.Report, error) {
	cli := s.cli
	x := doctor.Gateway{
		URL: at, Subject: what.of, Inner: discoveryBelow(at), Guesses: s.configured(),
		Platform: provider.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH},
	}
	if len(x.Guesses) == 0 {
		x.Guesses = []provider.Address{provider.MustParseAddress("registry.opentofu.org/hashicorp/null")}
	}
	host, err := urlHost(at)
	m, isModule := what.of.(module.Address)
	switch {
	case isModule && !clientsetup.IsOwnHost(host, m.ServiceHost()):
		host = m.ServiceHost()
		x.Modules = gateway.ModulesURL(at, string(host))
		x.TokenHost = host.ForDisplay()
		// Do not send the token of this host to another server, for example if the URL is mistyped.
		if cli.Services()[host]["modules.v1"] != x.Modules {
			x.TokenSource = fmt.Sprintf("none is sent, because no host block for %s in the CLI configuration names this gateway", x.TokenHost)
			return x.Examine(ctx), nil
		}
	case err != nil:
		return x.Examine(ctx), nil // the report explains the URL
	case isModule:
		x.Discovery = "https://" + string(host) + gateway.DiscoveryPath
	}
	creds, err := cli.CredentialsSource().ForHost(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("token for %s: %w", host, err)
	}
	if creds != nil {
		x.Prepare = func(r *http.Request) { creds.PrepareRequest(r) }
		x.TokenSource = "the one that the CLI configuration or TF_TOKEN_... files for " + host.ForDisplay()
	}
	return x.Examine(ctx), nil
}

// urlHost returns the host name under which clients look up the token for a URL.
func urlHost(at string) (svchost.Hostname, error) {
	u, err := url.Parse(at)
	if err != nil {
		return "", err
	}
	return svchost.ForComparison(u.Host)
}

// colours maps each word for a result to the escape sequence of the word's colour on
// terminals.
var colours = map[string]string{"ok": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m", "FAILED": "\x1b[31m", "skipped": "\x1b[2m"}

// column pads the word for a result to the width of the result column. If w is a terminal and
// NO_COLOR is not set, column adds the word's colour.
func column(w io.Writer, word string) string {
	padded := fmt.Sprintf("%-8s", word)
	if !isTerminal(w) || os.Getenv("NO_COLOR") != "" {
		return padded
	}
	return colours[word] + padded + "\x1b[0m"
}

func printReports(w io.Writer, reports []*doctor.Report) error {
	_, err := io.WriteString(w, reportText(reports, terminalWidth(w), func(word string) string { return column(w, word) }))
	return err
}

// reportText formats reports. A line has at most width characters, unless a single word is longer. If width is 0, lines
// have any length. column formats the word for a result.
func reportText(reports []*doctor.Report, width int, column func(word string) string) string {
	const before = 2 + 8 + 1 + 15 + 1 // the columns before the text
	wrapped := func(text string) string { return besideText(width, before, text) }
	var out strings.Builder
	for _, r := range reports {
		fmt.Fprintf(&out, "%s\n", r.Subject)
		for _, c := range r.Checks {
			word := string(c.Status)
			if c.Status == doctor.Fail {
				word = "FAILED"
			}
			fmt.Fprintf(&out, "  %s %-15s %s\n", column(word), c.Name, wrapped(c.Detail))
			if c.Hint != "" {
				fmt.Fprintf(&out, "  %-8s %-15s %s\n", "", "", wrapped("hint: "+c.Hint))
			}
		}
	}
	return out.String()
}
