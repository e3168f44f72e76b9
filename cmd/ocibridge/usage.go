package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ocibridge/ocibridge/internal/app/accesslog"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/inventory"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

const usageExamples = `  # who uses what, from the logs of a year
  ocibridge usage /var/log/ocibridge/serve.log*

  # who still uses one version, and who uses older ones
  ocibridge usage --of registry.acme.example/acme/widget@6.2.0 serve.log
  ocibridge usage --of 'registry.acme.example/acme/widget@< 6.2.0' serve.log

  # the log of a service, or of a pod
  journalctl --unit ocibridge --output cat | ocibridge usage
  kubectl logs deploy/ocibridge | ocibridge usage

  # the stored versions that nobody has used for 90 days
  ocibridge usage --unused 90d /var/log/ocibridge/serve.log*`

type usageFlags struct {
	readerFlags
	of     []string
	since  limitFlag[time.Duration]
	unused limitFlag[time.Duration]
}

func newUsageCommand() *cobra.Command {
	f := &usageFlags{}
	cmd := &cobra.Command{
		Use:   "usage [LOG]...",
		Short: "Show from the gateway's logs who uses which versions",
		Long: `usage reads logs of ocibridge serve, in the text or the JSON format, and shows for each
version who has used it, when for the last time, and how often it was installed. Logs
may be compressed with gzip, zstd or bzip2. Their order does not matter. Without LOG, or
for -, usage reads standard input.

A client uses a version if it downloads a package, or requests the description of the
version's packages, as clients do before each installation. A use counts as an
installation if the client was sent the last byte of a package, or was redirected to
the registry for it. A client that has the package in its own cache only requests the
description: it uses the version, and installs nothing. Lists of versions, HEAD requests
and refused requests do not count.

The user of a version is the subject in the log: the name of a token, or an OIDC subject.
If access is not controlled, the user is the address of the client, or of a proxy in
front of the gateway.

--of selects PROVIDER, PROVIDER@VERSIONS, MODULE, MODULE@VERSIONS or a pattern.

--unused lists the versions in the registry that nobody has used for a time. It warns if
the logs do not reach back that far. Clients that read the registry without the gateway,
such as exec and copy, are in no log.`,
		Example: usageExamples,
		RunE:    f.run,
	}
	f.commonFlags.register(cmd, "number of repositories to list at once")
	f.reads = true
	f.since = limitFlag[time.Duration]{parse: config.ParseDuration}
	f.unused = limitFlag[time.Duration]{parse: config.ParseDuration}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.of, "of", nil, "`provider` or module to show, with or without versions, or a pattern (repeatable; default: all)")
	flags.Var(&f.since, "since", "only count uses in the last `time`, such as 30d; 0: in all the logs")
	flags.Var(&f.unused, "unused", "list the versions in the registry that were not used for this `time`, such as 90d")
	cmd.RegisterFlagCompletionFunc("of", func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return f.completeKinds(cmd, subject.Kinds...)
	})
	return cmd
}

// usageMemory is the memory in bytes, without the program itself, from which on garbage is collected early. What usage
// remembers needs less, but the heap would grow to the double, on a machine whose memory belongs to other programs.
const usageMemory = 20 << 20

func (f *usageFlags) run(cmd *cobra.Command, logs []string) error {
	queries, err := parseAll(parseUsageQuery, f.of)
	if err == nil && f.since.value > 0 && f.unused.value > 0 {
		err = hint.New("--since and --unused exclude each other", "--unused itself says how far back the logs count")
	}
	if err != nil {
		return usage(err)
	}
	s, err := f.settings(cmd)
	if err != nil {
		return err
	}
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	debug.SetMemoryLimit(min(before, usageMemory))
	now := time.Now()
	r := accesslog.NewReader(accesslog.Options{Selects: selects(queries), Since: startOf(now, f.since.value)})
	if err := readLogs(cmd.Context(), r, logs, cmd.InOrStdin()); err != nil {
		return err
	}
	out := &usageReport{Logs: r.Logs()}
	if f.unused.value > 0 {
		out.UnusedSince = startOf(now, f.unused.value).UTC().Truncate(time.Second)
		err = f.findUnused(cmd, s, r, queries, out)
	} else {
		out.Providers, out.Modules = usedOf[provider.Address](r), usedOf[module.Address](r)
	}
	if err != nil {
		return err
	}
	warnAll(cmd.ErrOrStderr(), out.warnings(r, now))
	return f.print(cmd, out)
}

// startOf returns the time that is the given duration before now, or zero if the duration is 0.
func startOf(now time.Time, ago time.Duration) time.Time {
	if ago == 0 {
		return time.Time{}
	}
	return now.Add(-ago)
}

// parseUsageQuery parses a value of --of.
func parseUsageQuery(s string) (query.Query[subject.Address], error) {
	if strings.Contains(s, "*") && !strings.Contains(s, "@") {
		p, err := query.ParsePattern(s)
		return query.Query[subject.Address]{Pattern: p}, err
	}
	return query.ParseEither(s)
}

// selects returns a function that reports whether a query selects a version. Without queries, every version is selected, and the
// function is nil.
func selects(queries []query.Query[subject.Address]) func(subject.Address, provider.Version) bool {
	if len(queries) == 0 {
		return nil
	}
	return func(of subject.Address, v provider.Version) bool {
		return slices.ContainsFunc(queries, func(q query.Query[subject.Address]) bool {
			if q.Pattern != nil {
				return q.Pattern.Covers(of)
			}
			return q.Address == of && q.Has(v)
		})
	}
}

// readLogs reads each log. No log may be named twice, because its lines would count twice.
func readLogs(ctx context.Context, r *accesslog.Reader, names []string, stdin io.Reader) error {
	if len(names) == 0 {
		if isTerminalInput(stdin) {
			return usage(hint.New("there is no log", "name the logs, or pipe one: journalctl --unit ocibridge --output cat | ocibridge usage"))
		}
		names = []string{"-"}
	}
	var seen []os.FileInfo
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && name != "-" {
			if slices.ContainsFunc(seen, func(other os.FileInfo) bool { return os.SameFile(info, other) }) {
				return usage(hint.New(fmt.Sprintf("the log %s is named twice", name), "name each log once: its lines would count twice"))
			}
			seen = append(seen, info)
		}
	}
	for _, name := range names {
		if err := readLog(ctx, r, name, stdin); err != nil {
			return err
		}
	}
	return nil
}

func readLog(ctx context.Context, r *accesslog.Reader, name string, stdin io.Reader) error {
	if name == "-" {
		_, err := within(ctx, func() (string, error) { return "", r.Read(ctx, "on standard input", stdin) })
		return err
	}
	in, err := files.OpenGiven(ctx, name)
	if err != nil {
		return hint.Wrap(fmt.Errorf("open the log %s: %w", name, files.Cause(err)), "a LOG is a file; to select a provider or module, use --of")
	}
	defer in.Close()
	return r.Read(ctx, name, in)
}

// isTerminalInput reports whether standard input is a terminal.
func isTerminalInput(stdin io.Reader) bool {
	f, ok := stdin.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// usageReport is the result of usage.
type usageReport struct {
	Logs        accesslog.Logs
	UnusedSince time.Time // with --unused
	Providers   []*usageOf[provider.Address]
	Modules     []*usageOf[module.Address]
	Unlisted    []inventory.Unlisted
}

// members returns the report as a JSON document.
func (r *usageReport) members() []member {
	out := []member{{name: "logs", value: r.Logs}}
	if !r.UnusedSince.IsZero() {
		out = append(out, member{name: "unused_since", value: r.UnusedSince})
	}
	out = append(out, member{name: "providers", list: elements(r.Providers)}, member{name: "modules", list: elements(r.Modules)})
	if len(r.Unlisted) > 0 {
		out = append(out, member{name: "unlisted", list: elements(r.Unlisted)})
	}
	return out
}

// usageOf is the part of a [usageReport] about one provider or module.
type usageOf[A inventory.Address] struct {
	Address  A                  `json:"-"`               // in JSON, under the name of its kind
	Problem  *inventory.Problem `json:"error,omitempty"` // why its versions could not be listed
	Versions []accesslog.Used   `json:"versions"`        // newest first
}

// MarshalJSON implements [json.Marshaler].
func (u usageOf[A]) MarshalJSON() ([]byte, error) {
	type others usageOf[A]
	return document.Join(subject.Member(u.Address), others(u))
}

// usedOf returns what the logs say about one kind, sorted by address.
func usedOf[A inventory.Address](r *accesslog.Reader) []*usageOf[A] {
	out := []*usageOf[A]{}
	for of, versions := range accesslog.Of[A](r) {
		out = append(out, &usageOf[A]{Address: of, Versions: versions})
	}
	slices.SortFunc(out, func(a, b *usageOf[A]) int { return cmp.Compare(a.Address.String(), b.Address.String()) })
	return out
}

// findUnused adds the stored versions that were not used since r.UnusedSince.
func (f *usageFlags) findUnused(cmd *cobra.Command, s settings, logs *accesslog.Reader, queries []query.Query[subject.Address], r *usageReport) error {
	switch {
	case r.Logs.Requests == 0:
		return hint.New("the logs have no request", "serve logs requests at log_level info; without them, every version would look unused")
	case r.Logs.LeftOut > 0:
		return hint.New(fmt.Sprintf("the logs name more than %d versions", accesslog.MaxVersions), "select some of the versions with --of")
	}
	var err error
	if r.Providers, err = unusedOf(f, cmd, readsProviders, s, logs, queries, r); err == nil {
		r.Modules, err = unusedOf(f, cmd, readsModules, s, logs, queries, r)
	}
	return err
}

// unusedOf returns the unused versions of one kind, and adds the catalogs that could not be listed to a report.
func unusedOf[A inventory.Address](f *usageFlags, cmd *cobra.Command, k *reads[A], s settings, logs *accesslog.Reader, all []query.Query[subject.Address], r *usageReport) ([]*usageOf[A], error) {
	out := []*usageOf[A]{}
	queries := queriesOf[A](all)
	if len(all) > 0 && len(queries) == 0 {
		return out, nil
	}
	stored, end, err := k.inventory(cmd.Context(), &f.readerFlags, s, queries, cmd.ErrOrStderr())
	if err != nil {
		return out, err
	}
	defer end()
	found, err := stored.Find(cmd.Context(), queries)
	if err != nil {
		return out, err
	}
	r.Unlisted = append(r.Unlisted, found.Unlisted...)
	used := accesslog.Of[A](logs)
	for _, of := range found.Stored {
		u := &usageOf[A]{Address: of.Address, Versions: []accesslog.Used{}}
		if of.Err != nil {
			u.Problem = &inventory.Problem{Message: hint.OneLine(of.Err.Error()), Hint: hint.OneLine(hint.Of(of.Err))}
		}
		for _, v := range of.Matches {
			i := slices.IndexFunc(used[of.Address], func(u accesslog.Used) bool { return u.Version == v })
			switch {
			case i < 0:
				u.Versions = append(u.Versions, accesslog.Used{Version: v, Users: []accesslog.User{}})
			case used[of.Address][i].Last.Before(r.UnusedSince):
				u.Versions = append(u.Versions, used[of.Address][i])
			}
		}
		if u.Problem != nil || len(u.Versions) > 0 {
			out = append(out, u)
		}
	}
	return out, nil
}

// queriesOf returns the queries about one kind.
func queriesOf[A inventory.Address](all []query.Query[subject.Address]) (out []query.Query[A]) {
	var kind A
	for _, q := range all {
		if a, ok := q.Address.(A); ok {
			out = append(out, query.Query[A]{Address: a, Version: q.Version, Versions: q.Versions})
		} else if q.Pattern != nil && q.Pattern.Kind() == kind.Kind() {
			out = append(out, query.Query[A]{Pattern: q.Pattern})
		}
	}
	return out
}

// failed returns an error if a provider or module could not be listed.
func (r *usageReport) failed() error {
	n := problemsOf(r.Providers) + problemsOf(r.Modules)
	if n == 0 {
		return nil
	}
	return hint.New(count(n, "provider or module")+" cannot be listed", "the list shows the reasons; name others with --of")
}

func problemsOf[A inventory.Address](all []*usageOf[A]) (n int) {
	for _, u := range all {
		if u.Problem != nil {
			n++
		}
	}
	return n
}

// warnings says what makes a report incomplete.
func (r *usageReport) warnings(logs *accesslog.Reader, now time.Time) (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	l := r.Logs
	if l.Broken > 0 {
		add("%d of %d lines do not count: serve has not written them, or they are incomplete", l.Broken, l.Lines)
	}
	if l.Older > 0 {
		add("%d packages do not count: an older release sent them, whose log does not name versions; the log is complete from %s on", l.Older, minute(l.Reach()))
	}
	if l.LeftOut > 0 {
		add("%d uses do not count, because the logs name more than %d versions: select some of the versions with --of", l.LeftOut, accesslog.MaxVersions)
	}
	for _, u := range r.Unlisted {
		out = append(out, u.Warning())
	}
	if r.UnusedSince.IsZero() {
		return out
	}
	if reach := l.Reach(); reach.After(r.UnusedSince) {
		add("the logs reach back to %s, and not to %s: versions that were last used before are listed, too", minute(reach), minute(r.UnusedSince))
	}
	if days := logs.SilentDays(later(l.Reach(), r.UnusedSince), now); days > 0 {
		add("the logs have no line on %s of that time: if a log is missing, versions that are in use may be listed, too", count(days, "day"))
	}
	return out
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// minute formats a time for people.
func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

func (f *usageFlags) print(cmd *cobra.Command, r *usageReport) error {
	if f.output.json() {
		return f.output.printMembers(cmd, r.members(), r.failed())
	}
	stdout := cmd.OutOrStdout()
	switch {
	case len(r.Providers)+len(r.Modules) > 0:
		printUses(stdout, r.Providers, false)
		printUses(stdout, r.Modules, len(r.Providers) > 0)
	case r.UnusedSince.IsZero():
		fmt.Fprintln(stdout, "no version was used")
	default:
		fmt.Fprintln(stdout, "no version is unused")
	}
	if l := r.Logs; !f.quiet && l.Lines > 0 {
		note(cmd.ErrOrStderr(), "the logs reach from %s to %s UTC, with %s", minute(l.From), minute(l.Until), count(int(l.Requests), "request"))
	}
	return r.failed()
}

// printUses prints a table for each provider or module, with a row for each user of each version. Before each table but the
// first, and before the first if further is set, it prints an empty line.
func printUses[A inventory.Address](w io.Writer, all []*usageOf[A], further bool) {
	for _, of := range all {
		if further {
			fmt.Fprintln(w)
		}
		further = true
		fmt.Fprintf(w, "%s\n", of.Address)
		if of.Problem != nil {
			fmt.Fprintf(w, "  cannot be listed: %s\n", of.Problem)
			continue
		}
		rows := [][]string{{"VERSION", "LAST USE (UTC)", "INSTALLS", "BY"}}
		for _, v := range of.Versions {
			if len(v.Users) == 0 {
				rows = append(rows, []string{v.Version.String(), "not in the logs", "", ""})
			}
			for _, u := range v.Users {
				rows = append(rows, []string{v.Version.String(), minute(u.Last), fmt.Sprint(u.Installs), hint.OneLine(u.Name)})
			}
		}
		fmt.Fprint(w, tableText(rows, 3, terminalWidth(w)))
	}
}
