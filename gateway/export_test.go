package gateway

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/provider"
)

// Limits are the limits that a test can change. A zero field keeps the default.
type Limits struct {
	Metadata, Start, RegistryStall, ClientStall time.Duration
	Resumes                                     int
}

// Backed are options from which a test's gateway makes a catalog of repositories, if Catalog is nil.
type Backed struct {
	Options
	Repository func(context.Context, provider.Address) (Store, error)
	Check      func(context.Context, artifact.Fetcher, provider.Address, provider.Version, *artifact.Version) (*artifact.Version, error)
}

// NewBacked is like [New]. If there is no catalog, it creates one for the repositories, in memory and with default
// times.
func NewBacked(o Backed) http.Handler {
	return newHandler(o.with(catalog.Options{}, defaultLimits()), defaultLimits())
}

// NewWithin is like [New], with other limits. If there is no catalog, it creates one that queries the registry for
// each request, and never returns stale answers.
func NewWithin(o Backed, l Limits) http.Handler {
	d := defaultLimits()
	within := limits{
		metadata: cmp.Or(l.Metadata, d.metadata),
		Limits: archives.Limits{
			Start: cmp.Or(l.Start, d.Start), RegistryStall: cmp.Or(l.RegistryStall, d.RegistryStall),
			ClientStall: cmp.Or(l.ClientStall, d.ClientStall), Resumes: cmp.Or(l.Resumes, d.Resumes),
		},
	}
	return newHandler(o.with(catalog.Options{TagTTL: -1, StaleIfError: -1}, within), within)
}

// with returns the options, with a new catalog if they have none.
func (o Backed) with(c catalog.Options, l limits) Options {
	if o.Catalog == nil {
		c.Repository, c.Check, c.Timeout, c.Log = o.Repository, o.Check, l.metadata, o.Log
		var err error
		if o.Catalog, err = catalog.New(c); err != nil {
			panic(err)
		}
	}
	return o.Options
}

// Paths returns the paths of a gateway's routes, with their variables.
func Paths(o Options) []string {
	g := &gateway{Options: o}
	var out []string
	g.router().Walk(func(r *mux.Route, _ *mux.Router, _ []*mux.Route) error {
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
