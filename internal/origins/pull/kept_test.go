package pull

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// wordy contains functions that return an error. Each error holds 1 MiB of an origin's text, or other data of that
// size.
var wordy = map[string]func() error{
	"long text": func() error { return errors.New(strings.Repeat("x", 1<<20)) },
	"long hint": func() error { return hint.New("no way", "%s", strings.Repeat("x", 1<<20)) },
	"certificate": func() error {
		return &tls.CertificateVerificationError{UnverifiedCertificates: []*x509.Certificate{{Raw: make([]byte, 1<<20)}}, Err: errors.New("no way")}
	},
}

// failing is a source that can fail to return lists, releases or packages.
type failing struct {
	source
	listed, released, opened func() error // nil means success
}

func (s *failing) Versions(ctx context.Context, a provider.Address) (*origin.Listing, error) {
	if s.listed != nil {
		return nil, s.listed()
	}
	return s.source.Versions(ctx, a)
}

func (s *failing) Release(ctx context.Context, a provider.Address, l *origin.Listing, v provider.Version, want []provider.Platform) (*origin.Release, error) {
	if s.released != nil {
		return nil, s.released()
	}
	r, err := s.source.Release(ctx, a, l, v, want)
	if err == nil && s.opened != nil {
		r.Packages[0].Open = func(context.Context) (io.ReadCloser, int64, error) { return nil, 0, s.opened() }
	}
	return r, err
}

func failingPuller(t *testing.T, s *failing, o Options) *Puller {
	t.Helper()
	for i := range 20 {
		s.versions = append(s.versions, fmt.Sprintf("1.%d.0", i))
	}
	o.Origin, o.Policy, o.Spool = locating{s}, allowUnsigned, t.TempDir()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// fail makes requests that must fail. If s fails to return lists, it requests the lists of 20 providers. Otherwise, it
// requests one package of each version.
func fail(t *testing.T, p *Puller, s *failing) {
	t.Helper()
	if s.listed != nil {
		for i := range 20 {
			a := provider.MustParseAddress(fmt.Sprintf("registry.acme.example/acme/widget%d", i))
			if _, _, err := of(p, a).Offers(t.Context()); !errors.Is(err, catalog.ErrSource) {
				t.Fatal(err)
			}
		}
		return
	}
	store := of(p, widget)
	for _, v := range s.versions {
		found, err := store.Complete(t.Context(), provider.MustParseVersion(v), nil)
		if err == nil {
			_, _, err = store.blob(found.Packages[0]).Open(t.Context(), 1, 0)
		}
		if err == nil {
			t.Fatal("the request does not fail")
		}
	}
}

// TestFailuresKeepLittle shows that cached failures take little memory, however large the origin's errors are.
func TestFailuresKeepLittle(t *testing.T) {
	for name, f := range wordy {
		for where, s := range map[string]*failing{"list": {listed: f}, "version": {released: f}, "package": {opened: f}} {
			t.Run(where+"/"+name, func(t *testing.T) {
				p := failingPuller(t, s, Options{})
				cost.Kept(t, 1<<20, func() any {
					fail(t, p, s)
					return p
				})
			})
		}
	}
}

// TestFailuresAreCounted shows that the memory of cached failures is counted, and that a new failure evicts expired
// failures.
func TestFailuresAreCounted(t *testing.T) {
	for where, s := range map[string]*failing{
		"list": {listed: wordy["long text"]}, "version": {released: wordy["long text"]}, "package": {opened: wordy["long text"]},
	} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := failingPuller(t, s, Options{})
				fail(t, p, s)
				synctest.Wait()
				held := func() (failures int, size int64) {
					lists, listBytes := p.lists.Size()
					releases, releaseBytes := p.releases.Size()
					return lists - len(p.lists.Good()) + releases - len(p.releases.Good()) + len(p.failed), listBytes + releaseBytes
				}
				if n, size := held(); n != 20 || size < 20*2048 {
					t.Errorf("%d failures of 20, counted as %d bytes", n, size)
				}
				time.Sleep(time.Minute)
				if s.listed != nil {
					if _, err := p.list(t.Context(), widget); err == nil {
						t.Error("the request does not fail")
					}
				} else {
					s.versions = s.versions[:1]
					fail(t, p, s)
				}
				synctest.Wait()
				if n, _ := held(); n != 1 {
					t.Errorf("%d failures are left, want only the new one", n)
				}
			})
		})
	}
}

// TestReasonsOfFailures shows that errors.Is and errors.As give the same results for a cached error and for the
// original error.
func TestReasonsOfFailures(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, reason := range []error{
		catalog.ErrSource, ErrNotOffered, origin.ErrVersionNotFound, origin.ErrPlatformNotFound,
		trust.ErrUnsigned, trust.ErrSignature, trust.ErrChecksum, trust.ErrNotListed, provider.ErrNotZip, artifact.ErrTooLarge,
		context.Canceled, context.DeadlineExceeded, os.ErrDeadlineExceeded, document.ErrBusy, &catalog.BusyError{Limit: "disk", RetryAfter: time.Second}, &SizeError{2, 1},
	} {
		err := hint.Wrap(fmt.Errorf("%s: %w", long, reason), "help")
		for name, got := range map[string]error{"kept": flatten(err), "brief": brief(err)} {
			var busy, wantBusy *catalog.BusyError
			var size, wantSize *SizeError
			var network net.Error
			switch {
			case !errors.Is(got, reason), errors.Is(got, io.EOF), trust.Refused(got) != trust.Refused(reason), hint.Of(got) != "help":
				t.Errorf("%s of %v: %v", name, reason, got)
			case errors.As(reason, &wantBusy) && (!errors.As(got, &busy) || *busy != *wantBusy), errors.As(reason, &wantSize) && (!errors.As(got, &size) || *size != *wantSize):
				t.Errorf("%s of %v: %v, %v", name, reason, busy, size)
			case strings.HasSuffix(reason.Error(), "timeout") && (!errors.As(got, &network) || !network.Timeout()):
				t.Errorf("%s of %v is no timeout", name, reason)
			case len(got.Error()) > 3<<10:
				t.Errorf("%s of %v has %d bytes", name, reason, len(got.Error()))
			}
		}
	}
	if brief(nil) != nil {
		t.Error("nil becomes an error")
	}
}

// TestTimeoutsStayTimeouts shows that, if a timeout error is shortened, the result is still a timeout. The next client
// therefore gets the same response as the first client.
func TestTimeoutsStayTimeouts(t *testing.T) {
	for name, err := range map[string]error{
		"short": &net.OpError{Op: "read", Err: syscall.ETIMEDOUT},
		"long":  &net.OpError{Op: strings.Repeat("x", 1<<20), Err: syscall.ETIMEDOUT},
	} {
		err = hint.Wrap(outage(err), "help")
		for how, got := range map[string]error{"kept": flatten(err), "brief": brief(err)} {
			var network net.Error
			if !errors.As(got, &network) || !network.Timeout() || !errors.Is(got, catalog.ErrSource) || hint.Of(got) != "help" || len(got.Error()) > 3<<10 {
				t.Errorf("%s, %s: %.200v", name, how, got)
			}
		}
	}
	if got := flatten(&net.OpError{Op: "read", Err: syscall.ECONNREFUSED}); errors.As(got, new(net.Error)) {
		t.Errorf("%v is a timeout", got)
	}
}

// TestLocationsGoBeforeReleases shows that, if the memory for releases is full, expired locations are evicted before
// any release.
func TestLocationsGoBeforeReleases(t *testing.T) {
	p := puller(t, &source{}, Options{})
	subjects := func(i int) providerVersion {
		return providerVersion{provider: widget, version: provider.MustParseVersion(fmt.Sprintf("1.0.%03d", i+100))}
	}
	per := 512 + int64(len(subjects(0).String()))
	count := int(maxReleaseBytes / (per + locationBytes))
	var last *release
	for i := range count {
		last = &release{subject: subjects(i), learned: learned{locations: map[provider.Platform]location{}}}
		if i < count-1 {
			last.addLocation(provider.Platform{OS: "x", Arch: "y"}, location{since: time.Now().Add(-packageLasts)})
		}
		p.releases.Put(last.subject, releaseAnswer{Value: last, At: time.Now(), TTL: releaseTTL})
	}
	for i := range 2 {
		p.addLocation(last, provider.Platform{OS: "x", Arch: fmt.Sprint(i)}, location{since: time.Now()})
	}
	if n, bytes := p.releases.Size(); n != count || bytes != int64(count)*per+2*locationBytes {
		t.Errorf("%d of %d releases are left, with %d bytes", n, count, bytes)
	}
}

// TestLogOfFailures shows that an origin cannot fill the log with long errors.
func TestLogOfFailures(t *testing.T) {
	for name, f := range wordy {
		for where, s := range map[string]*failing{"list": {listed: f}, "version": {released: f}, "package": {opened: f}} {
			t.Run(where+"/"+name, func(t *testing.T) {
				var log bytes.Buffer
				p := failingPuller(t, s, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
				fail(t, p, s)
				p.report(t.Context(), &job{subject: providerVersion{widget, provider.MustParseVersion("1.0.0")}}, nil, f())
				p.Close()
				lines := strings.Split(log.String(), "\n")
				if len(lines) < 21 {
					t.Errorf("%d lines", len(lines))
				}
				for _, line := range lines {
					if len(line) > 8<<10 {
						t.Errorf("a line of %d bytes: %.200s", len(line), line)
					}
				}
			})
		}
	}
}

// answers is a transport that responds like an origin. It sends a valid discovery document. The function returns the
// bodies of all other responses.
type answers func(path string) string

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body := `{"providers.v1":"/v1/"}`
	if !strings.HasPrefix(r.URL.Path, "/.well-known") {
		body = f(r.URL.Path)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}, nil
}

// keepsWhatItCounts checks the Puller that fill returns. It fails the test if the Puller takes more memory than the
// Puller counts, or if the counted memory exceeds the given maximum in bytes.
func keepsWhatItCounts(t *testing.T, most int64, fill func() *Puller) {
	t.Helper()
	p := fill()
	_, counted := p.releases.Size()
	_, lists := p.lists.Size()
	counted += lists
	t.Logf("the Puller counts %d bytes", counted)
	if counted > most {
		t.Errorf("the Puller counts %d bytes, more than %d", counted, most)
	}
	cost.Kept(t, uint64(counted)+64<<10, func() any { return fill() })
}

// TestListsKeepWhatIsCounted shows that lists take no more memory than the Puller counts, and keep only the versions
// that are offered.
func TestListsKeepWhatIsCounted(t *testing.T) {
	testkit.LeaveToAll(t)
	const lists = 1
	newer, err := provider.ParseConstraint(">= 1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	versions := func(n int, version, rest string) string {
		return string(cost.Counted(n, `{"versions":[`, `{"version":"`+version+`"`+rest+`}`, `]}`))
	}
	// Each version has its own platforms.
	var own []string
	for i := range 1_000 {
		platforms := cost.Counted(128, "", fmt.Sprintf(`{"os":"x%020d","arch":"y%%d"}`, i), "")
		own = append(own, fmt.Sprintf(`{"version":"0.%d.0","platforms":[%s]}`, i, platforms))
	}
	protocols := `,"protocols":[` + string(cost.Counted(16, "", `"%d.1234.1234"`, "")) + `]`
	many := `{"versions":[` + strings.Join(own, ",") + `]}`
	for name, tc := range map[string]struct {
		document string
		scope    Scope
		most     int64 // the maximum size of one list in bytes
	}{
		"plain":           {versions(10_000, "1.%d.0", ""), Scope{}, 9 << 20},
		"prereleases":     {versions(9_000, "1.0.%d-"+strings.Repeat("a", 110), ""), Scope{}, 9 << 20},
		"cooldown":        {versions(9_000, "1.0.%d-"+strings.Repeat("a", 110), ""), Scope{Cooldown: time.Hour}, 12 << 20},
		"held back":       {versions(9_000, "0.0.%d-"+strings.Repeat("a", 110), ""), Scope{Versions: newer, Cooldown: time.Hour}, 4 << 20},
		"protocols":       {versions(9_000, "1.%d.0", protocols), Scope{}, 18 << 20},
		"platforms":       {many, Scope{}, 24 << 20},
		"out of scope":    {many, Scope{Versions: newer}, 8 << 10},
		"warnings":        {string(cost.Counted(64, `{"versions":[],"warnings":[`, `"`+strings.Repeat("\U00020000", 600)+`"`, `]}`)), Scope{}, 192 << 10},
		"spaced warnings": {string(cost.Counted(64, `{"versions":[],"warnings":[`, `"x`+strings.Repeat(" ", 8_000)+`"`, `]}`)), Scope{}, 8 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			keepsWhatItCounts(t, lists*tc.most, func() *Puller {
				o := Options{Scope: tc.scope, Spool: t.TempDir(), Origin: origin.NewRegistry(origin.RegistryOptions{Transport: answers(func(string) string { return tc.document })})}
				if tc.scope.Cooldown > 0 {
					o.Directory = t.TempDir()
				}
				p, err := New(o)
				if err != nil {
					t.Fatal(err)
				}
				for i := range lists {
					if _, err := p.list(t.Context(), provider.MustParseAddress(fmt.Sprintf("registry.acme.example/acme/widget%d", i))); err != nil {
						t.Fatal(err)
					}
				}
				p.Close()
				return p
			})
		})
	}
}

type unreached struct{ error }

func (f unreached) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.error }

// TestHostThatDoesNotExist shows that a host without an address causes no warning, because hosts may only name
// providers. Other failures cause one.
func TestHostThatDoesNotExist(t *testing.T) {
	testkit.LeaveToAll(t)
	for want, failed := range map[string]error{
		"level=INFO": &net.DNSError{Name: "registry.acme.example", IsNotFound: true},
		"level=WARN": &net.DNSError{Name: "registry.acme.example", IsTimeout: true},
	} {
		var log strings.Builder
		p, err := New(Options{Spool: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil)), Origin: origin.NewRegistry(origin.RegistryOptions{Transport: unreached{failed}})})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.list(t.Context(), widget); err == nil || !strings.Contains(log.String(), want) {
			t.Errorf("%v: %v, %s", failed, err, &log)
		}
		p.Close()
	}
}

// TestHeldBackPlatformsAreNotKept shows that a list does not keep the platforms of versions that a cooldown holds
// back.
func TestHeldBackPlatformsAreNotKept(t *testing.T) {
	document := `{"versions":[{"version":"1.0.0"}]}`
	transport := answers(func(string) string { return document })
	p, err := New(Options{Scope: Scope{Cooldown: time.Hour}, Directory: t.TempDir(), Spool: t.TempDir(), Origin: origin.NewRegistry(origin.RegistryOptions{Transport: transport})})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.list(t.Context(), widget); err != nil {
		t.Fatal(err)
	}
	platforms := cost.Counted(128, `{"version":"2.0.0","platforms":[`, `{"os":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxx","arch":"y%d"}`, `]}`)
	document = `{"versions":[{"version":"1.0.0"},` + string(platforms) + `]}`
	l, err := p.askAgain(t.Context(), widget)
	if err != nil || len(l.offers) != 1 || len(l.seen) != 2 || l.bytes > 4<<10 {
		t.Errorf("%+v, %v", l, err)
	}
}

// listing is a source whose list names no platforms. Its releases have the SHA256SUMS that sums returns, and a number
// of reported hashes.
type listing struct {
	source
	sums    func(provider.Version) []byte
	reports int
}

func (s *listing) Platforms(context.Context, provider.Address, *origin.Listing, provider.Version) ([]provider.Platform, error) {
	return nil, nil // SHA256SUMS names the platforms
}

func (s *listing) Release(_ context.Context, a provider.Address, _ *origin.Listing, v provider.Version, _ []provider.Platform) (*origin.Release, error) {
	reports := map[string]trust.Report{}
	for i := range s.reports {
		h, err := provider.ParseHash(fmt.Sprintf("zh:%064x", i))
		if err != nil {
			return nil, err
		}
		name := fmt.Sprint("file", i/64)
		reports[name] = trust.Report{Hashes: append(reports[name].Hashes, h)}
	}
	return &origin.Release{Origin: a.Hostname(), Claims: trust.Claims{Provider: a, Version: v, SHA256SUMS: s.sums(v), Reported: reports}}, nil
}

// TestReleasesKeepWhatIsCounted shows that releases take no more memory than the Puller counts, including the parsed
// checksums and the reported hashes.
func TestReleasesKeepWhatIsCounted(t *testing.T) {
	testkit.LeaveToAll(t)
	const lines = 9_000 // the number of packages that 1 MiB of SHA256SUMS can list
	for name, s := range map[string]*listing{
		"other files": {sums: func(v provider.Version) []byte {
			out := fmt.Appendf(nil, "%064x  %s\n", 1, provider.PackageFilename(widget, v, linux))
			for i := range 14_500 {
				out = fmt.Appendf(out, "%064x  %x\n", i, i)
			}
			return out
		}},
		"packages": {sums: func(v provider.Version) (out []byte) {
			for i := range lines {
				platform := provider.Platform{OS: "x", Arch: fmt.Sprint(i)}
				out = fmt.Appendf(out, "%064x  %s\n", i, provider.PackageFilename(widget, v, platform))
			}
			return out
		}},
		"reports": {reports: 18_000, sums: func(v provider.Version) []byte {
			return fmt.Appendf(nil, "%064x  %s\n", 1, provider.PackageFilename(widget, v, linux))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s.versions = []string{"1.0.0"}
			keepsWhatItCounts(t, 24<<20, func() *Puller {
				p, err := New(Options{Origin: locating{s}, Policy: allowUnsigned, Spool: t.TempDir()})
				if err != nil {
					t.Fatal(err)
				}
				l, err := p.list(t.Context(), widget)
				if err != nil {
					t.Fatal(err)
				}
				// Put adds the release even if it is too large for the cache. Smaller releases are kept in the same form.
				r, _, err := p.resolve(t.Context(), providerVersion{widget, l.offers[0].Version})
				if err != nil {
					t.Fatal(err)
				}
				p.releases.Put(r.subject, releaseAnswer{Value: r, At: r.at, TTL: releaseTTL})
				p.Close()
				return p
			})
		})
	}
}

// metadata returns an origin's response about a package of widget, with the given download URL.
func metadata(platform provider.Platform, v, url string) string {
	name := provider.PackageFilename(widget, provider.MustParseVersion(v), platform)
	return fmt.Sprintf(`{"os":%q,"arch":%q,"filename":%q,"shasum":"%x","shasums_url":"SHA256SUMS","download_url":%q}`,
		platform.OS, platform.Arch, name, sha256.Sum256([]byte(name)), url)
}

// TestLocationsAreCounted shows that the memory of locations is counted, and that expired locations are forgotten.
func TestLocationsAreCounted(t *testing.T) {
	var platforms []provider.Platform
	var listed []string
	var sums strings.Builder
	for i := range 100 {
		platform := provider.Platform{OS: "x", Arch: fmt.Sprint(i)}
		platforms = append(platforms, platform)
		listed = append(listed, fmt.Sprintf(`{"os":%q,"arch":%q}`, platform.OS, platform.Arch))
		name := provider.PackageFilename(widget, provider.MustParseVersion("1.0.0"), platform)
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256([]byte(name)), name)
	}
	for name, url := range map[string]string{
		"long path":    "https://x.example/" + strings.Repeat("a", 8_100),
		"escaped path": "https://x.example/" + strings.Repeat("%C3%A4%2f", 8_100/9),
		"long query":   "https://x.example/?" + strings.Repeat("a", 8_100),
	} {
		t.Run(name, func(t *testing.T) {
			transport := answers(func(path string) string {
				if strings.HasSuffix(path, "/versions") {
					return `{"versions":[{"version":"1.0.0","platforms":[` + strings.Join(listed, ",") + `]}]}`
				}
				if strings.HasSuffix(path, "SHA256SUMS") {
					return sums.String()
				}
				arch := path[strings.LastIndexByte(path, '/')+1:]
				return metadata(provider.Platform{OS: "x", Arch: arch}, "1.0.0", url)
			})
			keepsWhatItCounts(t, 4<<20, func() *Puller {
				p, r := locationsPuller(t, transport)
				for _, pkg := range r.packages {
					if _, err := p.locate(t.Context(), r, wanted{r.subject, pkg.Platform, pkg.Filename, pkg.Digest}); err != nil {
						t.Fatal(err)
					}
				}
				counted := countedLocations(t, p, r)
				if len(r.locations) != len(platforms) || counted != locationBytes*int64(len(platforms)) {
					t.Fatalf("%d locations, counted as %d bytes", len(r.locations), counted)
				}
				return p
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		transport := answers(func(path string) string {
			if strings.HasSuffix(path, "/versions") {
				return `{"versions":[{"version":"1.0.0","platforms":[` + strings.Join(listed, ",") + `]}]}`
			}
			if strings.HasSuffix(path, "SHA256SUMS") {
				return sums.String()
			}
			return metadata(provider.Platform{OS: "x", Arch: path[strings.LastIndexByte(path, '/')+1:]}, "1.0.0", "https://x.example/")
		})
		p, r := locationsPuller(t, transport)
		synctest.Wait()
		place := func(i int) {
			t.Helper()
			pkg := r.packages[i]
			if _, err := p.locate(t.Context(), r, wanted{r.subject, pkg.Platform, pkg.Filename, pkg.Digest}); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(when string, places int) {
			t.Helper()
			if counted := countedLocations(t, p, r); len(r.locations) != places || counted != locationBytes*int64(places) {
				t.Errorf("%s: %d locations, want %d; counted as %d bytes", when, len(r.locations), places, counted)
			}
		}
		for i := range 50 {
			place(i)
		}
		before := len(r.locations)
		expect("at first", before)
		time.Sleep(packageLasts)
		place(60)
		expect("a minute later", 1)
	})
}

// countedLocations returns the counted bytes of the locations of the Puller's only release.
func countedLocations(t *testing.T, p *Puller, r *release) int64 {
	t.Helper()
	n, bytes := p.releases.Size()
	if n != 1 || r.bytes < 1<<10 || r.bytes > 256<<10 {
		t.Errorf("%d releases, of %d bytes", n, r.bytes)
	}
	return bytes - 512 - int64(len(r.subject.String())) - r.bytes
}

func locationsPuller(t *testing.T, transport http.RoundTripper) (*Puller, *release) {
	t.Helper()
	p, err := New(Options{Origin: origin.NewRegistry(origin.RegistryOptions{Transport: transport}), Policy: allowUnsigned, Spool: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if _, err := p.list(t.Context(), widget); err != nil {
		t.Fatal(err)
	}
	r, err := p.release(t.Context(), providerVersion{widget, provider.MustParseVersion("1.0.0")})
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}
