package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/inventory"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// progress shows the user how a transfer proceeds. It prints results to standard output, and
// everything else to standard error. If standard error is a terminal, progress shows bars
// there.
type progress struct {
	stdout, stderr io.Writer
	json           bool // the command prints its results itself
	quiet          bool
	onlyChanges    bool // unchanged versions are no results

	mu   sync.Mutex
	bars *mpb.Progress // nil before the first bar
	live map[packageKey]*mpb.Bar
}

type packageKey struct {
	provider provider.Address
	module   module.Address
	version  provider.Version
	platform provider.Platform
}

// progress returns the progress of a command with these flags. The caller must close it.
func (f *commonFlags) progress(stdout, stderr io.Writer) *progress {
	return &progress{stdout: stdout, stderr: stderr, json: f.output.json(), quiet: f.quiet, live: map[packageKey]*mpb.Bar{}}
}

// showsBars reports whether progress shows bars. The first call starts them.
func (p *progress) showsBars() bool {
	if p.bars == nil && !p.quiet && isTerminal(p.stderr) {
		p.bars = mpb.New(mpb.WithOutput(terminal(p.stderr)), mpb.WithWidth(40))
		if isTerminal(p.stdout) {
			p.stdout = printer{p.bars}
		}
		p.stderr = printer{p.bars} // mpb prints these lines above the bars
	}
	return p.bars != nil
}

// Close removes the bars.
func (p *progress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bars == nil {
		return
	}
	for _, bar := range p.live {
		bar.Abort(true)
	}
	p.bars.Wait()
}

// result prints a line about a result to standard output.
func (p *progress) result(format string, args ...any) {
	if !p.json {
		fmt.Fprintf(p.stdout, format+"\n", args...)
	}
}

// summary prints the line that sums up the results.
func (p *progress) summary(format string, args ...any) {
	if !p.quiet {
		p.result(format, args...)
	}
}

// note prints a line about the progress to standard error.
func (p *progress) note(format string, args ...any) {
	if !p.json && !p.quiet {
		fmt.Fprintf(p.stderr, format+"\n", args...)
	}
}

// endings maps each last stage of a package to the word that users see.
var endings = map[pusher.Stage]string{
	pusher.StageDone: "stored", pusher.StageMounted: "mounted", pusher.StageFound: "there already", pusher.StagePresent: "in place",
	pusher.StageOmitted: "left out",
}

// Event implements [transfer.Progress]. It shows the progress of a package.
func (p *progress) Event(e pusher.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := fmt.Sprintf("%s %s %s", e.Provider.Type(), e.Version, e.Platform)
	total := 2 * e.Total // every byte of a package counts twice, because it is downloaded and uploaded
	if !e.Module.IsZero() {
		name, total = fmt.Sprintf("%s %s", e.Module.Name(), e.Version), e.Total
	}
	key := packageKey{e.Provider, e.Module, e.Version, e.Platform}
	bar := p.live[key]
	ending, ends := endings[e.Stage]
	switch {
	case ends:
		if bar != nil {
			bar.Abort(true)
			delete(p.live, key)
		}
		p.note("%s: %s, %s", name, ending, size(e.Total))
	case !p.showsBars():
		if e.Bytes == 0 && e.Stage == pusher.StageFetch {
			p.note("%s: fetching", name)
		}
	default:
		if bar == nil {
			bar = p.bars.AddBar(total, mpb.BarRemoveOnComplete(),
				mpb.PrependDecorators(decor.Name(name+" ")), mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}), decor.Name(" of "+size(e.Total))))
			p.live[key] = bar
		}
		bar.IncrBy(e.Bytes)
	}
}

// Warn implements [transfer.Progress]. It shows a warning, even if p is quiet.
func (p *progress) Warn(s string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	warnAll(p.stderr, []string{s})
}

// warnOf shows the warnings of a result.
func (p *progress) warnOf(r *pusher.Result) {
	for _, w := range r.Warnings {
		p.Warn(fmt.Sprintf("%s %s: %s", r.Provider, r.Version, w))
	}
}

// warnOfModule shows the warnings of the result of a module.
func (p *progress) warnOfModule(r *pusher.ModuleResult) {
	for _, w := range r.Warnings {
		p.Warn(fmt.Sprintf("%s %s: %s", r.Module, r.Version, w))
	}
}

// DoneModule implements [transfer.Progress]. It shows the result of one version of a module.
func (p *progress) DoneModule(r *pusher.ModuleResult) {
	p.warnOfModule(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	contents := size(r.Size)
	if r.Referrers > 0 {
		contents += ", " + count(r.Referrers, "referrer")
	}
	print := p.result
	if p.onlyChanges && r.Status == pusher.Unchanged {
		print = p.note
	}
	print("%s %s: %s, %s, in %s:%s", r.Module, r.Version, r.Status, contents, r.Repository, r.Tag)
}

// Done implements [transfer.Progress]. It shows the result of one version.
func (p *progress) Done(r *pusher.Result) {
	p.warnOf(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	grounds := inventory.Signature{Verdict: r.Verdict, Fingerprint: r.Fingerprint}.Text(false)
	switch {
	case r.EvidenceKept && r.Verdict == artifact.NoEvidence:
		grounds = "evidence refused"
	case r.EvidenceKept:
		grounds += " (evidence of an earlier push)"
	case r.Verdict == artifact.NoEvidence:
		grounds = "no evidence"
	}
	contents := count(len(r.Packages), "platform")
	if r.Referrers > 0 {
		contents += ", " + count(r.Referrers, "referrer")
	}
	print := p.result
	if p.onlyChanges && r.Status == pusher.Unchanged {
		print = p.note
	}
	print("%s %s: %s, %s, %s, in %s:%s", r.Provider, r.Version, r.Status, contents, grounds, r.Repository, r.Tag)
	for _, note := range []struct {
		text    string
		applies func(pusher.PackageResult) bool
	}{
		{"computed h1: for", func(pkg pusher.PackageResult) bool { return pkg.H1Recorded }},
		{"removed a wrong h1: of", func(pkg pusher.PackageResult) bool { return pkg.H1Removed }},
		{"repaired the index entry of", func(pkg pusher.PackageResult) bool { return pkg.Repaired }},
	} {
		var of []provider.Platform
		for _, pkg := range r.Packages {
			if note.applies(pkg) {
				of = append(of, pkg.Platform)
			}
		}
		if len(of) > 0 {
			p.result("  %s %s", note.text, joined(of, ", "))
		}
	}
}

// joined returns the texts of things, with separator between them.
func joined[T fmt.Stringer](things []T, separator string) string {
	var names []string
	for _, t := range things {
		names = append(names, t.String())
	}
	return strings.Join(names, separator)
}

// planning shows how many of the providers are planned. The caller calls planned for each
// planned version and, with the zero version, for each planned provider. done ends the
// display.
func (p *progress) planning(providers int) (planned func(provider.Address, provider.Version), done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.showsBars() {
		return nil, func() {}
	}
	var versions atomic.Int64
	bar := p.bars.AddBar(int64(providers), mpb.BarRemoveOnComplete(), mpb.PrependDecorators(decor.Name("planning ")),
		mpb.AppendDecorators(decor.CountersNoUnit(" %d of %d providers, "), decor.Any(func(decor.Statistics) string {
			return count(int(versions.Load()), "version")
		})))
	return func(_ provider.Address, v provider.Version) {
		if v.IsZero() {
			bar.Increment()
		} else {
			versions.Add(1)
		}
	}, func() { bar.Abort(true) }
}

func count(n int, what string) string { return hint.Count(n, what) }

// size formats a number of bytes for people. A negative number means that the size is unknown.
func size(n int64) string {
	switch {
	case n < 0:
		return "size unknown"
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
