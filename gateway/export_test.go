package gateway

import (
	"cmp"
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
)

// Limits are the limits that a test sets; zero keeps the default.
type Limits struct {
	Metadata, Start, RegistryStall, ClientStall time.Duration
	Resumes                                     int
}

// NewWithin is [New] with other limits. Without a catalog, it uses one that caches nothing: the registry is
// asked each time, and there are no stale answers.
func NewWithin(o Options, l Limits) http.Handler {
	d := defaultLimits()
	within := limits{
		metadata: cmp.Or(l.Metadata, d.metadata),
		Limits: archives.Limits{
			Start: cmp.Or(l.Start, d.Start), RegistryStall: cmp.Or(l.RegistryStall, d.RegistryStall),
			ClientStall: cmp.Or(l.ClientStall, d.ClientStall), Resumes: cmp.Or(l.Resumes, d.Resumes),
		},
	}
	if o.Catalog == nil {
		c, err := catalog.New(catalog.Options{Repository: o.Repository, Check: o.Check, TagTTL: -1, StaleIfError: -1, Timeout: within.metadata, Log: o.Log})
		if err != nil {
			panic(err)
		}
		o.Catalog = c
	}
	return newHandler(o, within)
}

// Paths returns the paths of a gateway's routes, with their variables.
func Paths(o Options) []string {
	g := &gateway{access: o.Access}
	var out []string
	g.router(o).Walk(func(r *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		if path, err := r.GetPathTemplate(); err == nil {
			out = append(out, path)
		}
		return nil
	})
	return out
}

const (
	CopyBuffer   = archives.CopyBuffer
	VersionReads = versionReads
)

var DefaultResumes = defaultLimits().Resumes
