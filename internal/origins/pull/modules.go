package pull

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/internal/origins/gitfiles"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/origins/modulezip"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// ModuleOrigin is the source of the modules that are pulled through.
type ModuleOrigin interface {
	// Versions lists the versions of a module.
	Versions(context.Context, module.Address) (*origin.ModuleListing, error)
	// Locate returns the location of a version. The error wraps [origin.ErrVersionNotFound] if the origin lacks it.
	Locate(context.Context, module.Address, provider.Version) (moduleorigin.Location, error)
	// Store fetches a version from its location, verifies it, and stores it in the registry. It never replaces a version.
	Store(context.Context, ModuleFetch) (*pusher.Result, error)
}

// ModuleFetch describes the fetch of a version of a module.
type ModuleFetch struct {
	Module    module.Address
	Version   provider.Version
	Spellings []string // the forms in which the origin lists the version; nil: only the canonical form
	At        moduleorigin.Location
	Temp      string         // the folder for temporary files
	Meter     gitfiles.Meter // counts the bytes of the fetch
}

// moduleVersion is a version of a module.
type moduleVersion struct {
	module  module.Address
	version provider.Version
}

func (m moduleVersion) String() string { return m.module.String() + " " + m.version.String() }

const (
	// maxModules is the maximum number of locations and of results in memory, and maxModuleBytes their size in bytes.
	maxModules     = 1024
	maxModuleBytes = 4 << 20
	// maxModuleFetches is the maximum number of fetches of modules that run or wait for a slot.
	maxModuleFetches = 64
	// moduleTimeout is the maximum time for a fetch, with the wait for a slot and the push.
	moduleTimeout = 40 * time.Minute
)

// moduleFetches fetches modules. Its caches make one request and one fetch of each version, however many clients wait, and
// remember failures for a while.
type moduleFetches struct {
	locations *fresh.Cache[moduleVersion, moduleorigin.Location]
	stores    *fresh.Cache[moduleVersion, struct{}]
}

func (p *Puller) newModuleFetches() moduleFetches {
	return moduleFetches{
		locations: fresh.New(fresh.Options[moduleVersion, moduleorigin.Location]{
			Key: moduleVersion.String, Fetch: p.locateModule, Follow: telemetry.Follow, Log: p.o.Log,
			Size: func(_ moduleVersion, l moduleorigin.Location, err error) int64 {
				return 1024 + 2*int64(len(l.String())) + errorSize(err)
			},
			Timeout: metadataTimeout, FailureTTL: outageTTL, MaxBytes: maxModuleBytes, MaxEntries: maxModules,
		}),
		stores: fresh.New(fresh.Options[moduleVersion, struct{}]{
			Key: moduleVersion.String, Fetch: p.storeModule, Follow: telemetry.Follow, Log: p.o.Log,
			Size:    func(_ moduleVersion, _ struct{}, err error) int64 { return 512 + errorSize(err) },
			Timeout: moduleTimeout, FailureTTL: failureTTL, MaxBytes: maxModuleBytes, MaxEntries: maxModules, MaxFlights: maxModuleFetches,
		}),
	}
}

func (m *moduleFetches) close() {
	m.locations.Close()
	m.stores.Close()
}

func (m *moduleFetches) forget(a subject.Address) {
	about := func(v moduleVersion) bool { return subject.Address(v.module) == a }
	m.locations.Drop(about, nil)
	m.stores.Drop(about, nil)
}

// askForModuleList requests the list of a module's versions, and sets l.spellings.
func (p *Puller) askForModuleList(ctx context.Context, a module.Address, l *list) ([]provider.Version, func(provider.Version) (catalog.Offer, error), error) {
	listing, err := p.o.Modules.Versions(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	p.warned(ctx, a, listing.Warnings)
	l.spellings = map[provider.Version][]string{}
	for v, spellings := range listing.Spellings {
		if !slices.Equal(spellings, []string{v.String()}) {
			l.spellings[v] = spellings
		}
	}
	return listing.Versions, func(v provider.Version) (catalog.Offer, error) { return catalog.Offer{Version: v}, nil }, nil
}

// announce implements [catalog.Origin].Complete for modules. A version that the registry has stays as it is.
func (p *Puller) announce(ctx context.Context, m moduleVersion, stored *artifact.Version) (*artifact.Version, error) {
	if stored != nil {
		return stored, nil
	}
	if _, ok, err := p.find(ctx, m.module, m.version, true); err != nil || !ok {
		return nil, err
	}
	at, err := p.location(ctx, m)
	switch {
	case errors.Is(err, ErrNotOffered):
		return nil, nil
	case err != nil:
		return nil, err
	}
	zip := artifact.Package{Filename: artifact.ZipName(m.module, m.version), Size: artifact.UnknownSize}
	return &artifact.Version{
		Owner: m.module, Version: m.version, Packages: []artifact.Package{zip},
		Provenance: artifact.Provenance{Location: at.String(), Folder: at.Folder},
	}, nil
}

// location returns the location of a version. The error wraps [ErrNotOffered] if the origin no longer lists the version.
func (p *Puller) location(ctx context.Context, m moduleVersion) (moduleorigin.Location, error) {
	a, err := p.locations.Get(ctx, m)
	if err != nil {
		return moduleorigin.Location{}, outage(err)
	}
	return a.Value, a.Err
}

// locateModule implements [fresh.Options].Fetch for locations. A location that cannot be used refuses the version.
func (p *Puller) locateModule(ctx context.Context, m moduleVersion, _ *fresh.Answer[moduleorigin.Location]) (fresh.Answer[moduleorigin.Location], error) {
	spanned, end := telemetry.Start(ctx, "origin version", subject.Attr(m.module), slog.String("version", m.version.String()))
	at, err := p.o.Modules.Locate(spanned, m.module, m.version)
	if errors.Is(err, origin.ErrVersionNotFound) {
		err = p.withdrawn(spanned, m.module, m.version, err)
	}
	err = brief(err)
	end(err)
	switch {
	case err == nil:
		return fresh.Answer[moduleorigin.Location]{Value: at, TTL: packageLasts}, nil
	case errors.Is(err, ErrNotOffered):
		return fresh.Answer[moduleorigin.Location]{Err: err}, nil
	}
	p.o.Log.WarnContext(ctx, "pulled through: nothing is known of a version", "version", m.String(), "err", err, "hint", hint.Of(err))
	if isModuleRefused(err) {
		return fresh.Answer[moduleorigin.Location]{Err: flatten(err), TTL: refusalTTL}, nil
	}
	return fresh.Answer[moduleorigin.Location]{}, flatten(err)
}

// Store implements [catalog.Origin]. Clients that request the same version wait for one fetch, which goes on when they leave.
func (p *Puller) Store(ctx context.Context, a module.Address, v provider.Version) error {
	answer, err := p.stores.Get(ctx, moduleVersion{a, v})
	if err == nil {
		err = answer.Err
	}
	if errors.Is(err, ErrNotOffered) {
		return fmt.Errorf("%w: %w", catalog.ErrAbsent, err)
	}
	return err
}

// storeModule implements [fresh.Options].Fetch for fetches of modules. A refusal of a version is an answer, and not a failure.
// The answer has no TTL, because the registry has the version afterwards.
func (p *Puller) storeModule(ctx context.Context, m moduleVersion, _ *fresh.Answer[struct{}]) (fresh.Answer[struct{}], error) {
	if !p.beginModule() {
		return fresh.Answer[struct{}]{}, outage(errClosed)
	}
	defer p.endModule()
	spanned, end := telemetry.Start(ctx, "origin package", subject.Attr(m.module), slog.String("version", m.version.String()))
	f := &moduleFetch{p: p, want: m}
	result, err := f.run(spanned)
	err = brief(err)
	end(err)
	f.report(ctx, result, err)
	switch {
	case err == nil:
		return fresh.Answer[struct{}]{}, nil
	case errors.Is(err, ErrNotOffered):
		return fresh.Answer[struct{}]{Err: err}, nil
	case isModuleRefused(err):
		return fresh.Answer[struct{}]{Err: flatten(err), TTL: refusalTTL}, nil
	}
	return fresh.Answer[struct{}]{}, flatten(err)
}

// beginModule reports whether a fetch may begin, and counts it among the pushes. Each call that returns true needs a call of
// endModule.
func (p *Puller) beginModule() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.draining {
		return false
	}
	p.pushes.Add(1)
	p.modules++
	return true
}

func (p *Puller) endModule() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.modules--
	p.pushes.Done()
}

// moduleFetch is the fetch and the push of one version.
type moduleFetch struct {
	p    *Puller
	want moduleVersion
	room *reservation // nil before the fetch has a slot
	took time.Duration
}

// run fetches the version and stores it.
func (f *moduleFetch) run(ctx context.Context) (*pusher.Result, error) {
	// 1. Find it, before it occupies a slot.
	l, err := f.p.list(ctx, f.want.module)
	if err != nil {
		return nil, err
	}
	if _, ok := l.offer(f.want.version); !ok {
		return nil, ErrNotOffered
	}
	at, err := f.p.location(ctx, f.want)
	if err != nil {
		return nil, err
	}
	// 2. Wait for a slot.
	if f.room, err = f.p.limit.reserve(ctx, -1, demand{hosts: []string{at.Host()}}); err != nil {
		return nil, err
	}
	defer func() {
		f.took = f.room.age()
		f.room.done()
		f.room.drop()
	}()
	// 3. Fetch and store it.
	temp, err := os.MkdirTemp(f.p.o.Spool, moduleFolder)
	if err != nil {
		return nil, spoolError(err)
	}
	defer os.RemoveAll(temp)
	result, err := f.p.o.Modules.Store(ctx, ModuleFetch{
		Module: f.want.module, Version: f.want.version, Spellings: l.spellings[f.want.version], At: at, Temp: temp, Meter: meter{f.room},
	})
	switch {
	case files.IsFull(err):
		return nil, spoolError(err)
	case err == nil, isModuleRefused(err), isStorage(err), errors.As(err, new(*catalog.BusyError)):
		return result, err
	case errors.Is(err, origin.ErrVersionNotFound):
		return nil, f.p.withdrawn(ctx, f.want.module, f.want.version, err)
	}
	return nil, outage(err)
}

// isModuleRefused reports whether err says that a version or its location cannot be accepted. The same request would fail
// again.
func isModuleRefused(err error) bool {
	return errors.As(err, new(*SizeError)) || isAny(err, moduleRefusals) || isAny(err, conflicts)
}

var (
	moduleRefusals = []error{
		moduleorigin.ErrLocation, moduleorigin.ErrTwins, moduleorigin.ErrArchive, moduleorigin.ErrNoFolder, gitfiles.ErrRefused, modulezip.ErrUnpackable,
	}
	conflicts = []error{pusher.ErrMoved, pusher.ErrConflict, pusher.ErrApproved, repo.ErrOccupied, repo.ErrImmutable} // with what the registry has
)

func isAny(err error, reasons []error) bool {
	return slices.ContainsFunc(reasons, func(reason error) bool { return errors.Is(err, reason) })
}

// IsModuleRefused reports whether err says that the content of a module's version, or its location, is refused.
func IsModuleRefused(err error) bool { return isAny(err, moduleRefusals) }

// isStorage reports whether the registry, rather than the origin, is the reason of err.
func isStorage(err error) bool {
	return errors.As(err, new(*repo.RegistryError)) || isAny(err, conflicts)
}

// report logs the result, and emits its events.
func (f *moduleFetch) report(ctx context.Context, result *pusher.Result, err error) {
	p, log := f.p, f.p.o.Log.With("version", f.want.String(), "from", f.want.module.Hostname())
	fetched := Event{Kind: Fetched, Subject: f.want.module, Version: f.want.version, From: f.want.module.Hostname(), Took: f.took}
	if f.room != nil {
		fetched.Bytes = f.room.received()
		log = log.With("bytes", fetched.Bytes)
	}
	stored := Event{Kind: Stored, Subject: f.want.module, Version: f.want.version, From: f.want.module.Hostname(), Err: err}
	if !isStorage(err) {
		fetched.Err = err
	}
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		fetched.Err = context.Canceled
		p.o.Events(fetched)
		return
	}
	p.o.Events(fetched)
	switch {
	case fetched.Err != nil:
		log.ErrorContext(ctx, "pulled through: a version cannot be had", "err", err, "hint", hint.Of(err))
		return
	case err != nil:
		log.ErrorContext(ctx, "pulled through: a version is not stored, and is not served", "err", err, "hint", hint.Of(err))
	default:
		log.InfoContext(ctx, "pulled through: a version is stored", "repository", result.Repository.String(), "status", result.Status)
		for _, w := range result.Warnings {
			if p.isNew(f.want, w) {
				log.WarnContext(ctx, "pulled through: a version is stored, with a warning", "warning", w)
			}
		}
	}
	p.o.Events(stored)
}

// meter counts the bytes of a fetch against the room that it has reserved.
type meter struct{ room *reservation }

// Received implements [gitfiles.Meter].
func (m meter) Received(n int64) error { return m.room.write(n) }

// Unpacked implements [gitfiles.Meter]. Each file is on disk twice: by itself and in the zip.
func (m meter) Unpacked(n int64) error { return m.room.unpack(2 * n) }

// moduleFolder is the pattern for the names of the folders into which modules are fetched.
const moduleFolder = "ocibridge-pull-module-*"

// sweepModules removes the folders of processes that have ended. Another process may use the folder, so it removes only
// what is older than any fetch.
func sweepModules(spool string) {
	left, _ := filepath.Glob(filepath.Join(spool, moduleFolder)) // the pattern is valid
	for _, name := range left {
		if info, err := os.Lstat(name); err == nil && info.IsDir() && time.Since(info.ModTime()) > 2*moduleTimeout {
			_ = os.RemoveAll(name)
		}
	}
}
