package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/inventory"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// progress shows the user how a transfer proceeds. It prints results to standard output, and everything else to standard
// error. If standard error is a terminal, it shows bars.
type progress struct {
	stdout, stderr io.Writer
	json           bool // the command prints its results as JSON at the end
	quiet          bool
	onlyChanges    bool // unchanged versions are left out

	now func() time.Time

	mu   sync.Mutex
	bars *mpb.Progress // nil before the first bar
	live map[packageKey]*mpb.Bar
}

type packageKey struct {
	subject  subject.Address
	version  provider.Version
	platform provider.Platform
}

// progress returns the progress of a command with these flags. The caller must close it.
func (f *commonFlags) progress(stdout, stderr io.Writer) *progress {
	return &progress{stdout: stdout, stderr: stderr, json: f.output.json(), quiet: f.quiet, now: time.Now, live: map[packageKey]*mpb.Bar{}}
}

// showsBars reports whether progress shows bars. The first call starts them.
func (p *progress) showsBars() bool {
	if p.bars == nil && !p.quiet && isTerminal(p.stderr) {
		p.bars = mpb.New(mpb.WithOutput(terminal(p.stderr)))
		if isTerminal(p.stdout) {
			p.stdout = printer{aboveBars{p.bars, terminal(p.stdout)}}
		}
		p.stderr = printer{aboveBars{p.bars, terminal(p.stderr)}}
	}
	return p.bars != nil
}

// aboveBars is a terminal on which mpb prints lines above the bars.
type aboveBars struct {
	io.Writer
	terminal *os.File
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
		fmt.Fprintln(p.stdout, linesText(terminalWidth(p.stdout), fmt.Sprintf(format, args...)))
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
		fmt.Fprintln(p.stderr, linesText(terminalWidth(p.stderr), fmt.Sprintf(format, args...)))
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
	name, total := fmt.Sprintf("%s %s", e.Subject.Parts()[2], e.Version), e.Total
	if e.Platform != (provider.Platform{}) {
		name, total = fmt.Sprintf("%s %s", name, e.Platform), 2*total // every byte of a package counts twice, because it is downloaded and uploaded
	}
	key := packageKey{e.Subject, e.Version, e.Platform}
	bar := p.live[key]
	ending, ends := endings[e.Stage]
	if bar != nil && (ends || e.Stage == pusher.StageFetched) {
		bar.Abort(true)
		delete(p.live, key)
	}
	switch {
	case e.Stage == pusher.StageFetched:
	case ends:
		p.note("%s: %s, %s", name, ending, size(e.Total))
	case p.showsBars():
		if bar == nil {
			begun, packageSize := p.now(), e.Total
			state := func(s decor.Statistics) string {
				if packageSize < 0 && e.Platform == (provider.Platform{}) { // the files of a module are downloaded
					return size(s.Current)
				}
				done := float64(s.Current) / float64(max(1, s.Total))
				return barText(done, packageSize, p.now().Sub(begun))
			}
			bar = p.bars.AddBar(total, mpb.BarRemoveOnComplete(),
				mpb.PrependDecorators(decor.Name(shortName(name, terminalWidth(p.stderr)), decor.WCSyncWidthR)),
				mpb.AppendDecorators(decor.Any(state)))
			p.live[key] = bar
		}
		bar.IncrBy(e.Bytes)
	}
}

const (
	besideBar = 40 // the width of the text that barText returns, and of the spaces around the bar
	minBar    = 8  // the minimum width of a bar
)

// barText returns the text to the right of a package's bar. bytes is the size of the package. elapsed is the time since
// its transfer began, and done is the finished part, from 0 to 1. In the first second, the text contains no speed and no
// time left, because both vary too much.
func barText(done float64, bytes int64, elapsed time.Duration) string {
	if bytes < 0 {
		return size(bytes)
	}
	speed, left := "", ""
	if seconds := elapsed.Seconds(); seconds >= 1 && done > 0 {
		speed = size(int64(done*float64(bytes)/seconds)) + "/s"
		left = clock(time.Duration(float64(elapsed) * (1 - done) / done))
	}
	return fmt.Sprintf("%3.0f%% of %8s %10s %10s", 100*min(1, done), size(bytes), speed, left)
}

// clock formats a duration as minutes and seconds, with the word left, in a fixed width.
func clock(d time.Duration) string {
	seconds := int(d.Round(time.Second).Seconds())
	if seconds >= 100*60 {
		return fmt.Sprintf("%3d h left", seconds/3600)
	}
	return fmt.Sprintf("%2d:%02d left", seconds/60, seconds%60)
}

// shortName shortens the name of a package in the middle, so that a bar fits next to it. If the terminal is too narrow
// for any bar, the name stays.
func shortName(name string, width int) string {
	most, length := width-besideBar-minBar, utf8.RuneCountInString(name)
	if length <= most || most < minBar {
		return name
	}
	runes := []rune(name)
	return string(runes[:most/2-1]) + "…" + string(runes[length-(most-most/2):])
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
		p.Warn(fmt.Sprintf("%s %s: %s", r.Subject, r.Version, w))
	}
}

// Done implements [transfer.Progress]. It shows the result of one version.
func (p *progress) Done(r *pusher.Result) {
	p.warnOf(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	contents, grounds := count(len(r.Packages), "platform"), groundsOf(r)
	if !subject.TraitsOf(r.Subject).Packages {
		contents, grounds = size(r.Packages[0].Size), ""
	}
	referrers := ""
	if r.Referrers > 0 {
		referrers = count(r.Referrers, "referrer")
	}
	docs := ""
	if r.Docs != "" {
		docs = "documentation"
	}
	print := p.result
	if p.onlyChanges && r.Status == pusher.Unchanged {
		print = p.note
	}
	print("%s %s: %s, in %s:%s", r.Subject, r.Version, listed(string(r.Status), contents, docs, referrers, grounds, approvedText(r)), r.Repository, r.Tag)
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

// approvedText says by whom a push has approved a version. It is "" if the version has no approval by the configured key.
func approvedText(r *pusher.Result) string {
	if r.ApprovedBy == "" {
		return ""
	}
	return "approved by " + r.ApprovedBy
}

// groundsOf says why a pushed version of a provider is trusted.
func groundsOf(r *pusher.Result) string {
	grounds := inventory.Signature{Verdict: r.Verdict, Fingerprint: r.Fingerprint}.Text(false)
	switch {
	case r.EvidenceKept && r.Verdict == artifact.NoEvidence:
		return "evidence refused"
	case r.EvidenceKept:
		return grounds + " (evidence of an earlier push)"
	case r.Verdict == artifact.NoEvidence:
		return "no evidence"
	}
	return grounds
}

// joined returns the texts of things, with separator between them.
func joined[T fmt.Stringer](things []T, separator string) string {
	var names []string
	for _, t := range things {
		names = append(names, t.String())
	}
	return strings.Join(names, separator)
}

// planning shows how many of the providers and modules are planned. The caller must call planned for each planned version, and with
// the zero version when a provider or a module is complete. The function done ends the display. planned is nil if there are no
// bars.
func (p *progress) planning(blocks int) (planned func(subject.Address, provider.Version), done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.showsBars() {
		return nil, func() {}
	}
	var versions atomic.Int64
	bar := p.bars.AddBar(int64(blocks), mpb.BarRemoveOnComplete(), mpb.PrependDecorators(decor.Name("planning", decor.WCSyncWidthR)),
		mpb.AppendDecorators(decor.CountersNoUnit(" %d of %d blocks, "), decor.Any(func(decor.Statistics) string {
			return count(int(versions.Load()), "version")
		})))
	return func(_ subject.Address, v provider.Version) {
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
	if n < 0 {
		return "size unknown"
	}
	return hint.Bytes(n)
}
