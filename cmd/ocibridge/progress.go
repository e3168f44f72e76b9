package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/inventory"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// progress shows the user how a transfer proceeds. It shows bars on a terminal, and lines
// elsewhere. If a program reads the output, quiet is set, and progress shows only warnings.
type progress struct {
	out, err io.Writer
	quiet    bool

	mu   sync.Mutex
	bars *mpb.Progress
	live map[packageKey]*mpb.Bar
}

type packageKey struct {
	provider provider.Address
	version  provider.Version
	platform provider.Platform
}

func newProgress(stdout, stderr io.Writer, quiet bool) *progress {
	p := &progress{out: stdout, err: stderr, quiet: quiet, live: map[packageKey]*mpb.Bar{}}
	if isTerminal(stdout) && !quiet {
		p.bars = mpb.New(mpb.WithOutput(stdout), mpb.WithWidth(40))
		p.out = p.bars // mpb prints these lines above the bars
		if isTerminal(stderr) {
			p.err = p.bars
		}
	}
	return p
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Close removes the bars.
func (p *progress) Close() {
	if p.bars == nil {
		return
	}
	p.mu.Lock()
	for _, bar := range p.live {
		bar.Abort(true)
	}
	p.mu.Unlock()
	p.bars.Wait()
}

// endings maps each last stage of a package to the word that users see.
var endings = map[pusher.Stage]string{
	pusher.StageDone: "stored", pusher.StageMounted: "mounted", pusher.StageFound: "there already", pusher.StagePresent: "in place",
	pusher.StageOmitted: "left out",
}

// Event implements [transfer.Progress]. It shows the progress of a package.
func (p *progress) Event(e pusher.Event) {
	if p.quiet {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	name := fmt.Sprintf("%s %s %s", e.Provider.Type(), e.Version, e.Platform)
	key := packageKey{e.Provider, e.Version, e.Platform}
	bar := p.live[key]
	ending, ends := endings[e.Stage]
	switch {
	case ends:
		if bar != nil {
			bar.Abort(true)
			delete(p.live, key)
		}
		p.line("%s: %s, %s", name, ending, size(e.Total))
	case p.bars == nil:
		if e.Bytes == 0 && e.Stage == pusher.StageFetch {
			p.line("%s: fetching", name)
		}
	default:
		if bar == nil {
			// Every byte of a package counts twice, because the program downloads and uploads
			// it.
			bar = p.bars.AddBar(2*e.Total, mpb.BarRemoveOnComplete(),
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
	fmt.Fprintf(p.err, "warning: %s\n", s)
}

// warnOf shows the warnings of a result.
func (p *progress) warnOf(r *pusher.Result) {
	for _, w := range r.Warnings {
		p.Warn(fmt.Sprintf("%s %s: %s", r.Provider, r.Version, w))
	}
}

// Done implements [transfer.Progress]. It shows the result of one version.
func (p *progress) Done(r *pusher.Result) {
	p.warnOf(r)
	if p.quiet {
		return
	}
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
	p.line("%s %s: %s, %s, %s, in %s:%s", r.Provider, r.Version, r.Status, contents, grounds, r.Repository, r.Tag)
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
			p.line("  %s %s", note.text, joined(of, ", "))
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

func (p *progress) line(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

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
