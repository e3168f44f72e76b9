package provider

import (
	"net/url"
	"time"
)

// About says where and when a version was published, as far as its origin says so.
type About struct {
	// Source is the URL of the repository with the version's source code; "" if it is
	// not known.
	Source string `json:"source,omitempty"`
	// PublishedAt is a time in UTC, as RFC 3339 writes it; "" if it is not known.
	PublishedAt string `json:"published_at,omitempty"`
}

const (
	// maxSource bounds the URL of a repository in bytes.
	maxSource = 512
	// maxTime bounds a time with its fraction of a second and its zone.
	maxTime = 64
)

// Normal returns a without what is no URL or time, and with the time in its one form.
func (a About) Normal() About {
	var out About
	u, err := url.Parse(a.Source)
	if err == nil && len(a.Source) <= maxSource && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil {
		out.Source = a.Source
	}
	if len(a.PublishedAt) <= maxTime {
		t, err := time.Parse(time.RFC3339, a.PublishedAt)
		if t = t.UTC(); err == nil && 0 < t.Year() && t.Year() <= 9999 {
			out.PublishedAt = t.Format(time.RFC3339)
		}
	}
	return out
}
