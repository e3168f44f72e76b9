package main

import (
	"context"
	"encoding/json"
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

	"github.com/ocibridge/ocibridge/internal/cliconfig"
	"github.com/ocibridge/ocibridge/internal/doctor"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

const doctorExamples = `  # why does a push to this repository not work?
  ocibridge doctor registry.opentofu.org/hashicorp/null --template 'ghcr.io/acme/${hostname}/${namespace}/${type}'

  # may it write? (a throw-away tag, which is removed again)
  ocibridge doctor --write registry.opentofu.org/hashicorp/null

  # what does a client see of a gateway?
  ocibridge doctor --url https://providers.example.com:8443/providers/ registry.opentofu.org/hashicorp/null`

// doctorFlags are the flags of doctor.
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
		Use:   "doctor [PROVIDER]",
		Short: "Find out why a registry or a gateway does not work",
		Long: `doctor takes the steps of a push, a gateway or a client one by one, and says of
each whether it works and what to do if not: where the credential comes from and
which others were considered, connection, certificate, clock, rights, tags, content.

Without PROVIDER it examines one repository of every template.

It exits with 1 if a step failed. It changes nothing, unless --write allows it.`,
		Example: doctorExamples,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage(hint.New("more than one provider", "name one, or none for one repository of every template"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var a provider.Address
			if len(args) > 0 {
				var err error
				if a, err = provider.ParseAddress(args[0]); err != nil {
					return usage(err)
				}
			}
			for _, name := range []string{"write", "template", "include", "exclude", "data", "plain-http"} {
				if f.url != "" && cmd.Flags().Changed(name) {
					return usage(hint.New(fmt.Sprintf("--%s does not go with --url", name), "--url examines a gateway as clients see it, who know nothing of that"))
				}
			}
			s, err := f.settings(cmd)
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), s, a, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.registryFlags.register(cmd)
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelWarn)
	cmd.Flags().StringVar(&f.url, "url", "", "examine the network mirror at this `URL`, as a client sees it, in place of a registry")
	cmd.Flags().BoolVar(&f.write, "write", false, "push to a throw-away tag, and remove it again")
	return cmd
}

// run examines, prints, and fails if a check did. The zero address stands for
// every template.
func (f *doctorFlags) run(ctx context.Context, s settings, a provider.Address, stdout, stderr io.Writer) error {
	reports, err := f.examine(ctx, s, a, stderr)
	if err != nil {
		return err
	}
	if err := printReports(stdout, reports, f.output.json()); err != nil {
		return err
	}
	for _, r := range reports {
		if r.Failed() {
			return hint.New(r.Subject+" is not well", "each failed check above says what to do")
		}
	}
	return nil
}

func (f *doctorFlags) examine(ctx context.Context, s settings, a provider.Address, stderr io.Writer) ([]*doctor.Report, error) {
	if f.url != "" {
		if a.IsZero() {
			a = provider.MustParsePattern("*/*/*").Example()
		}
		r, err := examineGateway(ctx, s.cli, f.url, a)
		return []*doctor.Report{r}, err
	}
	var named []provider.Address
	if !a.IsZero() {
		named = append(named, a)
	}
	back, err := f.open(s, named, f.log.open(stderr))
	if err != nil {
		return nil, err
	}
	defer back.Close()
	var reports []*doctor.Report
	if a.IsZero() {
		for _, t := range back.templates {
			example := back.templates.Example(t)
			if example.IsZero() {
				reports = append(reports, doctor.Shadowed(t.Source()))
				continue
			}
			named = append(named, example)
		}
	}
	for _, a := range named {
		r, err := f.examineRepository(ctx, back, a)
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	return reports, nil
}

func (f *doctorFlags) examineRepository(ctx context.Context, back *backend, a provider.Address) (*doctor.Report, error) {
	t, err := back.templates.For(a)
	if err != nil {
		return nil, err
	}
	addr, repo, err := back.repository(ctx, a)
	if addr == (ociaddr.Repository{}) {
		return nil, err
	}
	x := doctor.Repository{
		Provider: a, Address: addr, Template: t.Source(), Store: repo, Err: err, Write: f.write, Embedded: back.embedded != nil,
		Explain: func(err error) error { return back.explain(err, addr) },
	}
	if back.auth != nil {
		x.Candidates = back.auth.Considered(ctx, addr)
	}
	return x.Examine(ctx), nil
}

// examineGateway is the client's side: its own token, without our credentials.
func examineGateway(ctx context.Context, cli *cliconfig.Config, mirror string, a provider.Address) (*doctor.Report, error) {
	x := doctor.Gateway{URL: mirror, Provider: a, Platform: provider.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}}
	if host, err := mirrorHost(mirror); err == nil {
		creds, err := cli.CredentialsSource().ForHost(ctx, host)
		if err != nil {
			return nil, fmt.Errorf("token for %s: %w", host, err)
		}
		if creds != nil {
			x.Prepare = func(r *http.Request) { creds.PrepareRequest(r) }
			x.TokenSource = "the one that the CLI configuration or TF_TOKEN_... files for " + host.ForDisplay()
		}
	}
	return x.Examine(ctx), nil
}

// mirrorHost is what clients file a token for a network mirror under. What is
// wrong with the URL the report says.
func mirrorHost(mirror string) (svchost.Hostname, error) {
	u, err := url.Parse(mirror)
	if err != nil {
		return "", err
	}
	return svchost.ForComparison(u.Host)
}

// marks stand before the checks of a report; colours only reach terminals.
var marks = map[doctor.Status]struct{ text, colour string }{
	doctor.OK:   {"ok", "\x1b[32m"},
	doctor.Warn: {"warning", "\x1b[33m"},
	doctor.Fail: {"FAILED", "\x1b[31m"},
}

func printReports(w io.Writer, reports []*doctor.Report, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string][]*doctor.Report{"reports": reports})
	}
	var out strings.Builder
	for _, r := range reports {
		fmt.Fprintf(&out, "%s\n", r.Subject)
		for _, c := range r.Checks {
			m := marks[c.Status]
			mark := fmt.Sprintf("%-8s", m.text)
			if isTerminal(w) && os.Getenv("NO_COLOR") == "" {
				mark = m.colour + mark + "\x1b[0m"
			}
			fmt.Fprintf(&out, "  %s %-15s %s\n", mark, c.Name, oneLine(c.Detail))
			if c.Hint != "" {
				fmt.Fprintf(&out, "  %-8s %-15s hint: %s\n", "", "", oneLine(c.Hint))
			}
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}
