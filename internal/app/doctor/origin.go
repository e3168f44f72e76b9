package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Origin diagnoses the origin of a provider.
type Origin struct {
	Provider provider.Address
	Source   origin.Source
	// Name is the host of a registry, the URL of a network mirror, or a folder.
	Name string
	// URL is the URL to which requests go. It is nil for a folder.
	URL *url.URL
	// Versions selects the versions that are of interest. The zero value selects all.
	Versions provider.VersionSet
	// Platform is the platform of the examined package. If the version lacks it, another platform is examined.
	Platform provider.Platform
	Policy   trust.Policy
}

// originTimeout limits the examination of one origin.
const originTimeout = 30 * time.Second

func (x Origin) subject() string { return fmt.Sprintf("origin %s of %s", x.Name, x.Provider) }

// NotUsed returns a report that the origin was not examined, because the newest stored version came from another
// origin.
func (x Origin) NotUsed(published string) *Report {
	r := &Report{Subject: x.subject()}
	r.skip("origin", "write a provider block to have it examined", "it was not examined: the newest stored version came from %s", published)
	return r
}

// Examine diagnoses an origin. It sends the requests of a push, and reads only the beginning of one package.
func (x Origin) Examine(ctx context.Context) *Report {
	ctx, cancel := context.WithTimeout(ctx, originTimeout)
	defer cancel()
	r := &Report{Subject: x.subject()}
	if x.URL != nil && !r.proxy(ctx, x.URL) {
		return r
	}
	listing, v, ok := x.versions(ctx, r)
	if !ok {
		return r
	}
	if x.URL != nil {
		r.clockOf(ctx, x.URL)
	}
	if release, ok := x.keys(ctx, r, listing, v); ok {
		x.firstPackage(ctx, r, release)
	}
	return r
}

// fail adds a failed check. If the reason is the time limit, the check says so.
func (x Origin) fail(r *Report, name string, err error, help string) {
	r.failOf(x.Name, name, err, help)
}

// failOf adds a failed check of an origin. If the reason is the time limit, the check says so.
func (r *Report) failOf(origin, name string, err error, help string) {
	if errors.Is(err, context.DeadlineExceeded) {
		err = hint.Replace(fmt.Errorf("no answer within %s: %w", originTimeout, err), "check the network, and whether %s wants a proxy (HTTPS_PROXY)", origin)
	}
	r.fail(name, err, help)
}

// versions lists the versions, and returns the newest one that is of interest. The bool is false if there is none.
func (x Origin) versions(ctx context.Context, r *Report) (*origin.Listing, provider.Version, bool) {
	const name = "origin"
	listing, err := x.Source.Versions(ctx, x.Provider)
	if err != nil {
		x.fail(r, name, err, "check the origin's address, and that it is running; push --release-dir needs no origin")
		return nil, provider.Version{}, false
	}
	if len(listing.Versions) == 0 {
		r.fail(name, errors.New("it lists no version"), "check the provider's address")
		return nil, provider.Version{}, false
	}
	matching := listing.Versions
	if !x.Versions.IsZero() {
		if matching = x.Versions.Matches(listing.Versions); len(matching) == 0 {
			r.fail(name, listing.NoMatch(x.Provider, x.Versions), "correct the version constraint")
			return nil, provider.Version{}, false
		}
	}
	newest := matching[len(matching)-1]
	r.ok(name, "it lists %s; the newest one to push is %s", count(len(listing.Versions), "version"), newest)
	return listing, newest, true
}

// clockOf compares an origin's clock with this machine's clock. There is no check if the origin does not answer this
// additional request.
func (r *Report) clockOf(ctx context.Context, at *url.URL) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	resp, err := head(ctx, at)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	r.clock(resp.Header.Get("Date"), time.Now())
}

// keys fetches the documents about a version, and checks its signature. The bool is false if the documents cannot be
// fetched.
func (x Origin) keys(ctx context.Context, r *Report, l *origin.Listing, v provider.Version) (*origin.Release, bool) {
	const name = "keys"
	platforms, err := x.Source.Platforms(ctx, x.Provider, l, v)
	platform := x.Platform
	if len(platforms) > 0 && !slices.Contains(platforms, platform) {
		platform = platforms[0]
	}
	var release *origin.Release
	if err == nil {
		release, err = x.Source.Release(ctx, x.Provider, l, v, []provider.Platform{platform})
	}
	if err != nil {
		x.fail(r, name, err, "the origin lists this version, but does not offer it: ask its operator")
		return nil, false
	}
	sums, err := x.Policy.Accept(ctx, release.Claims)
	switch {
	case err != nil:
		r.fail(name, err, "ask the publisher of the provider")
	case sums.Verdict() != trust.Signed:
		r.warn(name, "nothing to do, if that is intended: a trust block allows it", "version %s is not signed: only its checksums are checked", v)
	case sums.Signer().Expired():
		r.warn(name, "ask the publisher for a new signature; a date in the future may also come from this machine's clock", "version %s is signed, but %s", v, sums.Signer().WhyExpired())
	case sums.Signer().Unread != "":
		r.warn(name, "install it through a network mirror where such clients are in use, or ask the publisher to sign with an RSA key and SHA-256",
			"version %s is signed by the key %s, but %s", v, sums.Signer().Fingerprint, sums.Signer().Unread)
	default:
		r.ok(name, "version %s is signed by the key %s", v, sums.Signer().Fingerprint)
	}
	return release, true
}

// firstPackage requests the release's only package, and reads its first bytes.
func (x Origin) firstPackage(ctx context.Context, r *Report, release *origin.Release) {
	const name = "package"
	if len(release.Packages) == 0 {
		r.fail(name, fmt.Errorf("version %s has no package", release.Version()), "ask the operator of the origin")
		return
	}
	p := release.Packages[0]
	body, size, err := p.Open(ctx)
	if err != nil {
		x.fail(r, name, err, "the origin does not send the package: ask its operator")
		return
	}
	defer body.Close()
	var start [len(zipMagic)]byte
	_, err = io.ReadFull(body, start[:])
	from := p.Host
	if from == "" {
		from = x.Name
	}
	switch {
	case err != nil:
		x.fail(r, name, fmt.Errorf("%s: %w", p.Filename, err), "the download breaks off at once: is there a proxy in between?")
	case string(start[:]) != zipMagic:
		r.fail(name, fmt.Errorf("%s from %s is no zip", p.Filename, from), "is there a proxy or a login page in between?")
	case size < 0:
		r.ok(name, "%s arrives from %s, which does not announce its size", p.Filename, from)
	default:
		r.ok(name, "%s arrives from %s: %s", p.Filename, from, bytesText(size))
	}
}

// zipMagic is the beginning of every zip that is not empty.
const zipMagic = "PK\x03\x04"

// maxListed is the maximum number of names that a check lists.
const maxListed = 8

// list joins names. It cuts long lists.
func list(names []string) string {
	if len(names) > maxListed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}

// bytesText returns a size for people.
func bytesText(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}
