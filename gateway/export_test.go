package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

// Limits are the limits that a test can change. A field that is zero keeps the default.
type Limits struct {
	Metadata, Start, RegistryStall, ClientStall time.Duration
	Resumes                                     int
}

// Backed are the options of a gateway in a test. If Catalog is nil, the gateway creates a catalog that reads the
// repositories from Repository, and checks versions with Check.
type Backed struct {
	Options
	Repository func(context.Context, subject.Address) (catalog.Store, error)
	Deny       []catalog.Deny
	Check      func(context.Context, artifact.Fetcher, provider.Address, provider.Version, *artifact.Version) (*artifact.Version, error)
}

// NewBacked is like [New]. If Catalog is nil, NewBacked creates a catalog in memory with default times.
func NewBacked(o Backed) http.Handler {
	return newHandler(o.with(catalog.Options{}, defaultLimits()), defaultLimits())
}

// NewWithin is like [New], with the given limits. If Catalog is nil, NewWithin creates a catalog that queries the
// registry for each request, and never returns stale answers.
func NewWithin(o Backed, l Limits) http.Handler {
	d := defaultLimits()
	within := limits{
		metadata: cmp.Or(l.Metadata, d.metadata), module: d.module,
		Limits: archives.Limits{
			Start: cmp.Or(l.Start, d.Start), RegistryStall: cmp.Or(l.RegistryStall, d.RegistryStall),
			ClientStall: cmp.Or(l.ClientStall, d.ClientStall), Resumes: cmp.Or(l.Resumes, d.Resumes),
		},
	}
	return newHandler(o.with(catalog.Options{TagTTL: -1, StaleIfError: -1}, within), within)
}

// with returns the options. If they have no catalog, it adds a new one.
func (o Backed) with(c catalog.Options, l limits) Options {
	if o.Catalog == nil {
		c.Repository, c.Check, c.Timeout, c.Log = o.Repository, o.Check, l.metadata, o.Log
		c.Deny = o.Deny
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

// SharedList calls sharedList of a new gateway with its default limits.
func SharedList(log *slog.Logger) func(ctx context.Context, key string, list func(context.Context) error) error {
	g := &gateway{Options: Options{Log: log}, limits: defaultLimits()}
	return func(ctx context.Context, key string, list func(context.Context) error) error {
		_, err := g.sharedList(ctx, key, func(ctx context.Context) (*answer, error) { return &answer{}, list(ctx) })
		return err
	}
}
