package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/origins/closure"
	"github.com/ocibridge/ocibridge/internal/origins/gitfiles"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/origins/modulezip"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// Modules yields versions of public modules from their origin registries.
type Modules struct {
	Origin   *moduleorigin.Origin
	Requests []query.Query[module.Address]
	All      bool // yield every version that matches a constraint, and not only the newest
	DryRun   bool // store nothing
	// Closure also yields the modules that these modules call, and that those call.
	Closure bool
	// Strict fails before anything is stored if something of the closure cannot be brought.
	Strict bool
}

// PushedModule is the result of the push of a public module.
type PushedModule struct {
	*pusher.Result
	Entries int // the number of files; 0 if the module was not fetched, because its commit is stored already
}

// ModuleProgress shows a push of modules to its user. Event, which [pusher.Options] gets, can be called concurrently.
type ModuleProgress interface {
	Event(pusher.Event)
	Warn(string)
	Done(*PushedModule)
	Missing(closure.Missing) // what a closure cannot have; before the first Done
}

// Push fetches the requested versions and stores them in a registry. It overwrites OnEvent of the given options.
func (m *Modules) Push(ctx context.Context, to *registry.Repositories, o pusher.Options, progress ModuleProgress) ([]*PushedModule, error) {
	o.OnEvent = progress.Event
	with := moduleFetch{origin: m.Origin, pusher: pusher.New(o), force: o.Force, dryRun: m.DryRun}
	if m.Closure {
		c, err := m.follow(ctx, to, with, o.Jobs, progress)
		if err != nil {
			return nil, Explain(to, err)
		}
		defer c.close()
		return c.push(ctx, o.Jobs, progress)
	}
	return pushModules(ctx, to, with.pusher, o.Jobs, progress, func(add func(modulePush) error) error {
		return m.each(ctx, to, with, progress.Warn, func(f *moduleFetch) error { return add(f.push) })
	})
}

// modulePush stores one version.
type modulePush func(context.Context) (*PushedModule, error)

// pushModules stores all versions that each adds.
func pushModules(ctx context.Context, to *registry.Repositories, p *pusher.Pusher, jobs int, progress ModuleProgress, each func(add func(modulePush) error) error) ([]*PushedModule, error) {
	all := newBatch(jobs, progress.Done)
	results, err := all.wait(each(func(push modulePush) error {
		return all.add(func() (*PushedModule, error) {
			result, err := push(ctx)
			return result, Explain(to, err)
		})
	}))
	if text := repo.FetchedWarning(p.Summarize(ctx)); text != "" { // even after a failure, for the versions that are stored
		progress.Warn(text)
	}
	return results, err
}

// each calls fn for every requested version. with has the fields that all fetches have in common.
func (m *Modules) each(ctx context.Context, to *registry.Repositories, with moduleFetch, warn func(string), fn func(*moduleFetch) error) error {
	spellings := NewSpellings(to)
	for _, r := range m.Requests {
		dest, err := Destination(to)(ctx, r.Address)
		if err != nil {
			return err
		}
		listing, err := m.Origin.Registry.ModuleVersions(ctx, r.Address)
		if err != nil {
			return err
		}
		for _, w := range listing.Warnings {
			warn(fmt.Sprintf("%s: %s", r.Address, w))
		}
		if text := spellings.Warning(ctx, r.Address); text != "" {
			warn(text)
		}
		versions := newest(r, listing.Versions, m.All)
		if len(versions) == 0 {
			return listing.NoMatch(r.Address, r.Versions)
		}
		for _, v := range versions {
			if !slices.Contains(listing.Versions, v) {
				return listing.NoVersion(r.Address, v)
			}
			f := with
			f.module, f.version, f.spellings, f.dest = r.Address, v, listing.Spellings[v], dest
			if err := fn(&f); err != nil {
				return err
			}
		}
	}
	return nil
}

// moduleFetch is the fetch and the push of one version.
type moduleFetch struct {
	origin    *moduleorigin.Origin
	pusher    *pusher.Pusher
	module    module.Address
	version   provider.Version
	spellings []string               // the forms in which the origin lists the version
	at        *moduleorigin.Location // nil: the origin is asked
	dest      repo.Destination
	force     bool
	dryRun    bool
	// unless is the ETag of the archive whose files are stored. If the archive still has it, the fetch fails with
	// [origin.ErrNotModified]. "": the archive is fetched in any case.
	unless string
}

// push fetches the version and stores it.
func (f *moduleFetch) push(ctx context.Context) (*PushedModule, error) {
	p, err := f.prepare(ctx)
	if err != nil {
		return nil, err
	}
	return p.pushAndClose(ctx)
}

func (p *preparedModule) pushAndClose(ctx context.Context) (*PushedModule, error) {
	defer p.close()
	return p.push(ctx)
}

// preparedModule is a version that is ready to be stored.
type preparedModule struct {
	*moduleFetch
	stored   *artifact.Version
	zip      *modulezip.Zip // nil if the version is stored already, or if the zip was dropped
	files    int            // in the zip
	warnings []string
	dropped  bool // the zip was closed before it was stored, so push fetches the version again
	at       moduleorigin.Location
	etag     string // of the archive at the location; "" if there is none
}

// prepare fetches the version, unless it is stored. The caller must close the result.
func (f *moduleFetch) prepare(ctx context.Context) (*preparedModule, error) {
	// 1. Ask the origin where the version is, and for the commit there.
	at, err := f.locate(ctx)
	if err != nil {
		return nil, err
	}
	var commit gitfiles.Commit
	if !f.force {
		if commit, err = f.resolve(ctx, at); err != nil {
			return nil, err
		}
	}
	return f.prepareAt(ctx, at, commit)
}

// locate returns the location of the version.
func (f *moduleFetch) locate(ctx context.Context) (moduleorigin.Location, error) {
	if f.at != nil {
		return *f.at, nil
	}
	return f.origin.Locate(ctx, f.module, f.version.String())
}

// prepareAt prepares the version that is at a location. The commit is zero if it is not known yet.
func (f *moduleFetch) prepareAt(ctx context.Context, at moduleorigin.Location, commit gitfiles.Commit) (*preparedModule, error) {
	// 2. If a commit of the same location is stored, the commits decide.
	if known, err := f.known(ctx, at, commit); err != nil {
		return nil, f.failed(err)
	} else if known != nil {
		return &preparedModule{moduleFetch: f, stored: known, at: at}, nil
	}
	// 3. Fetch and pack the files.
	z, commit, etag, err := f.fetch(ctx, at, f.unless)
	if err != nil {
		return nil, f.failed(err)
	}
	return &preparedModule{moduleFetch: f, stored: &artifact.Version{
		Owner: f.module, Version: f.version, Packages: []artifact.Package{{Digest: z.Digest, Size: z.Size, H1: z.H1}}, Revision: commit.Commit,
		Provenance: artifact.Provenance{Location: at.String(), Folder: at.Folder, Tree: commit.Tree, TagObject: commit.TagObject},
	}, zip: z, files: len(z.Files), warnings: z.Warnings, at: at, etag: etag}, nil
}

// close removes the fetched files.
func (p *preparedModule) close() {
	if p.zip != nil {
		p.zip.Close()
	}
}

// drop removes the fetched files. A later push fetches them again.
func (p *preparedModule) drop() {
	p.close()
	p.zip, p.dropped = nil, true
}

// push stores the version.
func (p *preparedModule) push(ctx context.Context) (*PushedModule, error) {
	if p.dropped && !p.dryRun { // a dry run compares the digests, and reads no zip
		return p.pushAgain(ctx)
	}
	result, err := p.put(ctx, p.stored, p.zip)
	if err != nil {
		return nil, err
	}
	result.Warnings = append(result.Warnings, p.warnings...)
	return &PushedModule{result, p.files}, nil
}

// pushAgain fetches a version again, and stores it if it is still the same.
func (p *preparedModule) pushAgain(ctx context.Context) (*PushedModule, error) {
	again, err := p.prepare(ctx)
	if err != nil {
		return nil, err
	}
	defer again.close()
	if again.zip != nil && again.zip.Digest != p.stored.Zip().Digest {
		return nil, p.failed(hint.New("its origin changed while the modules that it calls were fetched", "run it again"))
	}
	return again.push(ctx)
}

// failed adds the version to an error.
func (f *moduleFetch) failed(err error) error {
	return fmt.Errorf("%s %s: %w", f.module, f.version, err)
}

// put stores a version, or plans it in a dry run. A nil zip is for a version that is stored.
func (f *moduleFetch) put(ctx context.Context, v *artifact.Version, z *modulezip.Zip) (*pusher.Result, error) {
	put := f.pusher.PushZip
	if f.dryRun {
		put = f.pusher.PlanZip
	}
	if z == nil {
		return put(ctx, f.dest, v, func() io.ReadCloser { return io.NopCloser(removedZip{}) })
	}
	return put(ctx, f.dest, v, z.Open)
}

// removedZip is the zip of a version that was stored when it was read, and is not any more.
type removedZip struct{}

func (removedZip) Read([]byte) (int, error) {
	return 0, hint.New("the stored version was removed meanwhile", "run it again")
}

// resolve returns the commit at the location that clients get, if the server's list of references tells it. If the origin
// lists the version in several forms, all of them must lead to the same content.
func (f *moduleFetch) resolve(ctx context.Context, at moduleorigin.Location) (gitfiles.Commit, error) {
	commit, err := f.origin.Resolve(ctx, at)
	if err != nil {
		return commit, f.failed(err)
	}
	for _, spelling := range f.spellings {
		if spelling == f.version.String() {
			continue
		}
		other, err := f.origin.Locate(ctx, f.module, spelling)
		if errors.Is(err, origin.ErrVersionNotFound) {
			continue // the origin knows the version by its canonical form only
		}
		if err != nil {
			return commit, err
		}
		if err := f.compare(ctx, at, other, spelling); err != nil {
			return commit, f.failed(err)
		}
	}
	return commit, nil
}

// compare returns an error that wraps [moduleorigin.ErrTwins] unless two locations of the version have the same content.
func (f *moduleFetch) compare(ctx context.Context, at, other moduleorigin.Location, spelling string) error {
	if at.Same(other) {
		return nil
	}
	mine, err := f.content(ctx, at)
	if err != nil {
		return err
	}
	theirs, err := f.content(ctx, other)
	if err == nil && mine != theirs {
		err = moduleorigin.TwinError(other, f.version.String(), mine, spelling, theirs)
	}
	return err
}

// content names the content at a location: a commit, or the h1: hash of an archive's files, and the module's folder.
func (f *moduleFetch) content(ctx context.Context, at moduleorigin.Location) (string, error) {
	in := ""
	if at.Folder != "" {
		in = "the folder " + at.Folder + " of "
	}
	commit, err := f.origin.Resolve(ctx, at)
	if err != nil || commit.Commit != "" {
		return in + "the commit " + commit.Commit, err
	}
	z, commit, _, err := f.fetch(ctx, at, "")
	if err != nil {
		return "", err
	}
	defer z.Close()
	if commit.Commit != "" {
		return in + "the commit " + commit.Commit, nil
	}
	return in + "files with " + z.H1.String(), nil
}

// known returns what is known of a version without fetching it: the stored version, if it is from the same location, with
// the commit that is there now. It returns nil if the version must be fetched.
func (f *moduleFetch) known(ctx context.Context, at moduleorigin.Location, commit gitfiles.Commit) (*artifact.Version, error) {
	if f.force || commit.Commit == "" {
		return nil, nil
	}
	stored, err := artifact.ReadZip(ctx, f.dest.Store, f.module, f.version)
	switch {
	case errors.Is(err, errdef.ErrNotFound), artifact.IsContent(err):
		return nil, nil // the push says what is wrong
	case err != nil:
		return nil, &repo.RegistryError{Op: "read " + f.version.String() + " in", Repository: f.dest.Repository, Err: err}
	case stored.Provenance.Location != at.String() || stored.Revision == "":
		return nil, nil
	}
	out := *stored
	out.Owner, out.Version, out.Revision = f.module, f.version, commit.Commit
	return &out, nil
}

// report reports the progress of a fetch. Its size is not known.
func (f *moduleFetch) report(stage pusher.Stage, n int) {
	f.pusher.Report(pusher.Event{Subject: f.module, Version: f.version, Stage: stage, Bytes: n, Total: -1})
}

// progressMeter reports the bytes of a fetch as its progress.
type progressMeter struct{ *moduleFetch }

// Received implements [gitfiles.Meter].
func (m progressMeter) Received(n int64) error {
	m.report(pusher.StageFetch, int(n))
	return nil
}

// Unpacked implements [gitfiles.Meter].
func (progressMeter) Unpacked(int64) error { return nil }

// fetch fetches a location, and packs its files. The caller must close the zip. It also returns the ETag of an archive; see
// [moduleorigin.Origin.FetchArchive].
func (f *moduleFetch) fetch(ctx context.Context, at moduleorigin.Location, unless string) (*modulezip.Zip, gitfiles.Commit, string, error) {
	if err := moduleorigin.CheckSystem(runtime.GOOS); err != nil {
		return nil, gitfiles.Commit{}, "", err
	}
	dir, err := os.MkdirTemp(f.origin.Temp, "ocibridge-module-*")
	if err != nil {
		return nil, gitfiles.Commit{}, "", hint.Wrap(fmt.Errorf("temporary folder: %w", err), "TMPDIR names another folder for temporary files")
	}
	defer os.RemoveAll(dir)
	var warnings []string
	from := *f.origin
	from.Warn = func(text string) { warnings = append(warnings, text) }
	if from.Meter == nil {
		from.Meter = progressMeter{f}
	}
	f.report(pusher.StageFetch, 0)
	defer f.report(pusher.StageFetched, 0)
	var commit gitfiles.Commit
	etag := ""
	if at.Git {
		commit, err = from.Fetch(ctx, at, dir)
	} else {
		etag, err = from.FetchArchive(ctx, at, dir, unless)
	}
	if err != nil {
		return nil, gitfiles.Commit{}, "", err
	}
	z, err := modulezip.PackFetched(ctx, dir)
	if err == nil {
		z.Warnings = append(warnings, z.Warnings...)
	}
	return z, commit, etag, err
}
