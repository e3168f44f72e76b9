package provider

import (
	"net/url"
	"time"
)

// About holds the source and the publication time of a version, if its origin states them.
type About struct {
	// Source is the URL of the repository with the version's source code; "" if unknown.
	Source string `json:"source,omitempty"`
	// PublishedAt is a time in UTC in the format of RFC 3339; "" if unknown.
	PublishedAt string `json:"published_at,omitempty"`
}

const (
	maxSource = 512 // the maximum length of a repository's URL in bytes
	maxTime   = 64  // the maximum length in bytes of a time, including a fraction of a second and a zone
)

// Normal returns the valid fields, with the time in canonical form.
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
