package gateway

import (
	"cmp"
	"net/http"
	"time"
)

// Limits are those that a test sets; what is zero stays as it is.
type Limits struct {
	Metadata, Start, RegistryStall, ClientStall time.Duration
	Resumes                                     int
}

// NewWithin is [New] with other limits.
func NewWithin(o Options, l Limits) http.Handler {
	d := defaultLimits()
	return newHandler(o, limits{
		metadata: cmp.Or(l.Metadata, d.metadata), start: cmp.Or(l.Start, d.start),
		registryStall: cmp.Or(l.RegistryStall, d.registryStall), clientStall: cmp.Or(l.ClientStall, d.clientStall),
		resumes: cmp.Or(l.Resumes, d.resumes),
	})
}

const (
	CopyBuffer   = copyBuffer
	MaxTagPages  = maxTagPages
	VersionReads = versionReads
)

var DefaultResumes = defaultLimits().resumes
