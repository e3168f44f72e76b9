package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/pusher"
)

// packageCount is a number of packages, and their total size in bytes.
type packageCount struct {
	n     int
	bytes int64
}

func (c *packageCount) add(p pusher.PackageResult) {
	c.n++
	c.bytes += p.Size
}

// text returns the number and the size, followed by a note. It returns "" if there are no
// packages.
func (c *packageCount) text(note string) string {
	if c.n == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s (%s)", count(c.n, "package"), note, size(c.bytes))
}

// copyPlan prints a line for each version of a dry run, and the totals.
func (p *progress) copyPlan(copied transfer.Copied) {
	p.mu.Lock()
	defer p.mu.Unlock()
	signs := map[pusher.Status]string{pusher.Pushed: "+", pusher.Unchanged: "="}
	versions := map[string]int{}
	var sent, omitted packageCount
	var last subject.Address
	for _, r := range copied.Results {
		if r.Subject != last {
			p.result("%s to %s", r.Subject, r.Repository)
			last = r.Subject
		}
		sign := cmp.Or(signs[r.Status], "~")
		versions[sign]++
		var mine, left packageCount
		for _, pkg := range r.Packages {
			switch {
			case pkg.Sent:
				mine.add(pkg)
				sent.add(pkg)
			case pkg.Omitted:
				left.add(pkg)
				omitted.add(pkg)
			}
		}
		p.result("  %s %s  %s", sign, r.Version, cmp.Or(listed(mine.text("to send"), left.text("left out")), "no package to send"))
	}
	var parts []string
	for _, s := range []struct{ sign, what string }{{"+", "to copy"}, {"~", "to complete"}, {"=", "in place"}} {
		if n := versions[s.sign]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", count(n, "version"), s.what))
		}
	}
	p.summary("Plan: %s", listed(append(parts, sent.text("to send"), omitted.text("left out"))...))
}

// copied prints the line that sums up a complete copy.
func (p *progress) copied(results transfer.Copied) {
	p.mu.Lock()
	defer p.mu.Unlock()
	by := map[string]int{}
	for _, r := range results.Results {
		by[string(r.Status)]++
	}
	p.summary("Copy: %s", totals(by))
}

// listed joins the texts that are not empty by commas.
func listed(texts ...string) string {
	var out []string
	for _, t := range texts {
		if t != "" {
			out = append(out, t)
		}
	}
	return strings.Join(out, ", ")
}
