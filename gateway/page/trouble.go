package page

import (
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
)

// troubleView says that a page shows earlier answers, because the registry does not answer now.
type troubleView struct {
	Kind string // one of the constants below
	Part bool   // the registry still answers about a part of the page
	// Since is when the registry gave the oldest of the shown answers. It is zero if none is shown.
	Since time.Time
}

// Kinds of trouble, the worst first.
const (
	troubleFailed  = "failed"  // the registry has failed
	troubleLate    = "late"    // the registry has not answered in time
	troubleList    = "list"    // the registry has failed to send its list of repositories
	troublePending = "pending" // the registry has not sent its list of repositories yet
)

// standings are the standings of what a page shows.
type standings []catalog.Standing

// trouble returns what a page says about the registry, or nil if the registry answers.
func (all standings) trouble() *troubleView {
	t := troubleView{Kind: troubleLate}
	old := 0
	for _, s := range all {
		if s.Failed {
			t.Kind = troubleFailed
		}
		if !s.Failed && !s.Late {
			t.Part = true
			continue
		}
		old++
		if t.Since.IsZero() || !s.Confirmed.IsZero() && s.Confirmed.Before(t.Since) {
			t.Since = s.Confirmed
		}
	}
	if old == 0 {
		return nil
	}
	return &t
}

// troubleOf returns what a list of providers and modules says about the registry, or nil if the registry answers.
func (p *page) troubleOf(k *index, shown ...tableView) *troubleView {
	var all standings
	for _, table := range shown {
		for _, group := range table.Groups {
			for _, row := range group.Rows {
				s := p.Catalog.Registry().Standing(row.Address)
				if s.Failed || s.Late || !s.Confirmed.IsZero() {
					all = append(all, s)
				}
			}
		}
	}
	t := all.trouble()
	switch {
	case t != nil:
		return t
	case k.failed:
		return &troubleView{Kind: troubleList, Since: k.at}
	case k.pending:
		return &troubleView{Kind: troublePending}
	}
	return nil
}
