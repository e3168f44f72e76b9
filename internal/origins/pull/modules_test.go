package pull

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/gitfiles"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

var (
	network  = module.MustParseAddress("registry.acme.example/acme/net/aws")
	one      = provider.MustParseVersion("1.0.0")
	ofModule = Scope{Selector: subject.Selector{Include: []subject.Pattern{module.MustParsePattern("registry.acme.example/*/*/*")}}}
)

// modules is an origin of modules in memory, which can fail and lie.
type modules struct {
	mu                     sync.Mutex
	versions               []string
	spellings              map[string][]string
	listErr, atErr, putErr error
	delay                  time.Duration              // of each call
	receive                func(gitfiles.Meter) error // what a fetch costs; nil: nothing
	listed, located, put   int                        // calls
	fetch                  ModuleFetch                // the last one
}

func (m *modules) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *modules) Versions(ctx context.Context, _ module.Address) (*origin.ModuleListing, error) {
	m.mu.Lock()
	m.listed++
	l, delay, err := &origin.ModuleListing{Spellings: map[provider.Version][]string{}}, m.delay, m.listErr
	for _, text := range m.versions {
		v := provider.MustParseVersion(text)
		l.Versions = append(l.Versions, v)
		if l.Spellings[v] = m.spellings[text]; l.Spellings[v] == nil {
			l.Spellings[v] = []string{text}
		}
	}
	m.mu.Unlock()
	if ended := hang(ctx, delay); ended != nil {
		return nil, ended
	}
	return l, err
}

func (m *modules) Locate(ctx context.Context, _ module.Address, _ provider.Version) (moduleorigin.Location, error) {
	m.mu.Lock()
	m.located++
	delay, err := m.delay, m.atErr
	m.mu.Unlock()
	if ended := hang(ctx, delay); ended != nil {
		return moduleorigin.Location{}, ended
	}
	if err != nil {
		return moduleorigin.Location{}, err
	}
	return moduleorigin.ParseLocation("git::https://user:secret@git.acme.example/net//sub?ref=v1.0.0")
}

func (m *modules) Store(ctx context.Context, f ModuleFetch) (*pusher.Result, error) {
	m.mu.Lock()
	m.put++
	m.fetch = f
	delay, err, receive := m.delay, m.putErr, m.receive
	m.mu.Unlock()
	if ended := hang(ctx, delay); ended != nil {
		return nil, ended
	}
	if receive != nil {
		if err := receive(f.Meter); err != nil {
			return nil, fmt.Errorf("fetch https://git.acme.example/net: %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	return &pusher.Result{Repository: ociaddr.Repository{Registry: "registry.example", Name: "net"}, Status: pusher.Pushed}, nil
}

// modulePuller returns a Puller for modules. It is closed at the end of the test.
func modulePuller(t *testing.T, m *modules, o Options) *Puller {
	t.Helper()
	if len(o.Scope.Selector.Include) == 0 {
		o.Scope.Selector = ofModule.Selector
	}
	o.Modules = m
	return puller(t, &source{}, o)
}

// announced returns the versions in the list of a module, and the folder of the version 1.0.0 or why it cannot be had.
func announced(t *testing.T, p *Puller) (listed, folder string) {
	t.Helper()
	offers, _, err := p.Offers(t.Context(), network)
	if err != nil {
		listed = "error"
	}
	for _, o := range offers {
		listed = strings.TrimSpace(listed + " " + o.Version.String())
	}
	v, err := p.Complete(t.Context(), network, one, nil)
	switch {
	case errors.Is(err, catalog.ErrSource):
		return listed, "unavailable"
	case err != nil:
		return listed, "refused"
	case v == nil:
		return listed, "absent"
	}
	if v.Zip().Digest != "" || v.Zip().Size != artifact.UnknownSize || v.Zip().Filename != "net-1.0.0.zip" || strings.Contains(v.Provenance.Location, "secret") {
		t.Errorf("announced: %+v", v)
	}
	return listed, v.Provenance.Folder
}

// TestModulesNeedAPattern shows that modules are pulled through only if a pattern of four parts covers them, and providers only
// if there are no patterns or one of three parts covers them.
func TestModulesNeedAPattern(t *testing.T) {
	three, four := provider.MustParsePattern("registry.acme.example/*/*"), module.MustParsePattern("registry.acme.example/*/*/*")
	for name, tc := range map[string]struct {
		include, exclude   []subject.Pattern
		providers, modules bool
	}{
		"nothing":           {nil, nil, true, false},
		"providers":         {[]subject.Pattern{three}, nil, true, false},
		"modules":           {[]subject.Pattern{four}, nil, false, true},
		"both":              {[]subject.Pattern{three, four}, nil, true, true},
		"excluded modules":  {[]subject.Pattern{three, four}, []subject.Pattern{four}, true, false},
		"only an exclusion": {nil, []subject.Pattern{four}, true, false},
	} {
		p := puller(t, &source{}, Options{Scope: Scope{Selector: subject.Selector{Include: tc.include, Exclude: tc.exclude}}, Modules: &modules{}})
		if a, b := p.Selects(widget), p.Selects(network); a != tc.providers || b != tc.modules {
			t.Errorf("%s: providers %t, modules %t", name, a, b)
		}
		if without := puller(t, &source{}, Options{Scope: Scope{Selector: subject.Selector{Include: tc.include}}}); without.Selects(network) {
			t.Errorf("%s: modules without an origin", name)
		}
	}
}

// TestHostsWithoutADot shows that a host without a dot and a port is an origin only if the configuration names it.
func TestHostsWithoutADot(t *testing.T) {
	named := func(host svchost.Hostname) bool { return host == "mirror" }
	for address, want := range map[string]bool{
		"registry.acme.example/acme/widget": true, "mirror/acme/widget": true, "localhost:8443/acme/widget": true,
		"localhost/acme/widget": false, "terraform-aws-modules/vpc/aws": false,
	} {
		a := provider.MustParseAddress(address)
		if got := puller(t, &source{}, Options{Names: named}).Selects(a); got != want {
			t.Errorf("%s: %t, want %t", address, got, want)
		}
		if got := puller(t, &source{}, Options{}).Selects(a); got != (want && a.Hostname() != "mirror") {
			t.Errorf("%s without named hosts: %t", address, got)
		}
	}
}

// TestAnnouncedModules shows what clients get of a version that is not stored: it is announced with one request for its location,
// and absent only if the origin says so. A stored version costs no request.
func TestAnnouncedModules(t *testing.T) {
	notFound := fmt.Errorf("x: %w", origin.ErrVersionNotFound)
	for name, tc := range map[string]struct {
		change         func(*modules)
		listed, folder string
	}{
		"listed":                     {func(*modules) {}, "1.0.0 1.1.0", "sub"},
		"another version":            {func(m *modules) { m.versions = []string{"1.1.0"} }, "1.1.0", "absent"},
		"no such module":             {func(m *modules) { m.listErr = origin.ErrModuleNotFound }, "", "absent"},
		"no module registry":         {func(m *modules) { m.listErr = origin.ErrNoModules }, "", "absent"},
		"the list fails":             {func(m *modules) { m.listErr = errors.New("500") }, "error", "unavailable"},
		"the list hangs":             {func(m *modules) { m.delay = time.Hour }, "error", "unavailable"},
		"the location fails":         {func(m *modules) { m.atErr = errors.New("500") }, "1.0.0 1.1.0", "unavailable"},
		"listed, but not there":      {func(m *modules) { m.atErr = notFound }, "1.0.0 1.1.0", "unavailable"},
		"a location of another kind": {func(m *modules) { m.atErr = moduleorigin.ErrLocation }, "1.0.0 1.1.0", "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &modules{versions: []string{"1.0.0", "1.1.0"}}
				tc.change(m)
				p := modulePuller(t, m, Options{})
				for range 2 { // the second time from memory
					if listed, folder := announced(t, p); listed != tc.listed || folder != tc.folder {
						t.Errorf("listed %q, announced %q; want %q and %q", listed, folder, tc.listed, tc.folder)
					}
				}
				if m.listed > 2 || m.located > 1 || m.put > 0 {
					t.Errorf("%d lists, %d locations, %d fetches", m.listed, m.located, m.put)
				}
				before := m.listed + m.located
				stored := &artifact.Version{}
				if v, err := p.Complete(t.Context(), network, one, stored); v != stored || err != nil || m.listed+m.located != before {
					t.Errorf("a stored version: %v, %v, after %d requests", v, err, m.listed+m.located-before)
				}
				p.Close()
			})
		})
	}
}

// TestModuleCooldown shows that a version is hidden while it is too young, also after a restart.
func TestModuleCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &modules{versions: []string{"0.9.0"}}
		o := Options{Scope: Scope{Selector: ofModule.Selector, Cooldown: 24 * time.Hour}, Directory: t.TempDir(), ListTTL: time.Minute}
		p := modulePuller(t, m, o)
		expect := func(listed, folder string) {
			t.Helper()
			time.Sleep(2 * time.Minute)
			if a, b := announced(t, p); a != listed || b != folder {
				t.Errorf("listed %q, announced %q; want %q and %q", a, b, listed, folder)
			}
		}
		expect("0.9.0", "absent")
		m.set(func() { m.versions = append(m.versions, "1.0.0") })
		expect("0.9.0", "absent")
		if err := p.Store(t.Context(), network, one); !errors.Is(err, catalog.ErrAbsent) || m.put > 0 {
			t.Errorf("a young version: %v", err)
		}
		p.Close()
		p = modulePuller(t, m, o)
		time.Sleep(12 * time.Hour)
		expect("0.9.0", "absent")
		time.Sleep(12 * time.Hour)
		expect("0.9.0 1.0.0", "sub")
		p.Close()
	})
}

// TestOneFetchOfAModule shows that many clients cause one fetch, which goes on when they leave.
func TestOneFetchOfAModule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &modules{versions: []string{"1.0.0"}, spellings: map[string][]string{"1.0.0": {"1.0.0", "v1.0.0"}}, delay: time.Second}
		p := modulePuller(t, m, Options{})
		announced(t, p)
		m.set(func() { m.delay = 25 * time.Second })
		var clients sync.WaitGroup
		for i := range 20 {
			clients.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*2*time.Second+time.Second/2)
				defer cancel()
				err := p.Store(ctx, network, one)
				if left := i < 12; left != errors.Is(err, context.DeadlineExceeded) || !left && err != nil {
					t.Errorf("client %d: %v", i, err)
				}
			})
		}
		synctest.Wait()
		if n := p.Pending(); n != 1 {
			t.Errorf("%d versions wait", n)
		}
		clients.Wait()
		// Nobody waits for this one.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Store(ctx, network, one); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		p.Drain(t.Context())
		if m.put != 2 || p.Pending() != 0 {
			t.Errorf("%d fetches, %d versions wait", m.put, p.Pending())
		}
		if f := m.fetch; len(f.Spellings) != 2 || f.At.Folder != "sub" || f.Module != network || f.Version != one {
			t.Errorf("fetched %+v", f)
		}
		if left, err := os.ReadDir(filepath.Dir(m.fetch.Temp)); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		if err := p.Store(t.Context(), network, one); !errors.Is(err, catalog.ErrSource) {
			t.Errorf("after Drain: %v", err)
		}
		p.Close()
	})
}

// TestModuleFetchesFail shows which errors clients get, that an error is remembered for a while, and that the log has it without
// a secret.
func TestModuleFetchesFail(t *testing.T) {
	notFound := fmt.Errorf("x: %w", origin.ErrVersionNotFound)
	for name, tc := range map[string]struct {
		err      error
		source   bool // the origin is unavailable
		lasts    time.Duration
		outcome  error
		withdraw bool
	}{
		"the server fails":                  {err: errors.New("500"), source: true, lasts: failureTTL},
		"a vanished tag":                    {err: gitfiles.ErrNoRef, source: true, lasts: failureTTL},
		"an archive that is not there":      {err: notFound, source: true, lasts: failureTTL},
		"a version that was withdrawn":      {err: notFound, outcome: catalog.ErrAbsent, withdraw: true},
		"two tags for one version":          {err: moduleorigin.ErrTwins, lasts: refusalTTL, outcome: moduleorigin.ErrTwins},
		"a damaged archive":                 {err: moduleorigin.ErrArchive, lasts: refusalTTL, outcome: moduleorigin.ErrArchive},
		"a tree with ..":                    {err: gitfiles.ErrRefused, lasts: refusalTTL, outcome: gitfiles.ErrRefused},
		"a tag that moved in the meantime":  {err: pusher.ErrMoved, lasts: refusalTTL, outcome: pusher.ErrMoved},
		"a repository of another module":    {err: repo.ErrOccupied, lasts: refusalTTL, outcome: repo.ErrOccupied},
		"an approved version":               {err: pusher.ErrApproved, lasts: refusalTTL, outcome: pusher.ErrApproved},
		"a registry that refuses the write": {err: &repo.RegistryError{Op: "push to", Err: errors.New("403")}, lasts: failureTTL},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &modules{versions: []string{"1.0.0"}, putErr: tc.err}
				log := &collected.Text{}
				var events []Event
				p := modulePuller(t, m, Options{Log: slog.New(slog.NewTextHandler(log, nil)), Events: func(e Event) { events = append(events, e) }})
				announced(t, p)
				if tc.withdraw {
					m.set(func() { m.versions = nil })
				}
				err := p.Store(t.Context(), network, one)
				if err == nil || errors.Is(err, catalog.ErrSource) != tc.source || tc.outcome != nil && !errors.Is(err, tc.outcome) {
					t.Errorf("the error is %v", err)
				}
				if text := log.String(); strings.Contains(text, "secret") || !strings.Contains(text, "pulled through: a version") {
					t.Errorf("the log: %s", text)
				}
				if len(events) == 0 || events[0].Kind != Fetched || events[len(events)-1].Err == nil || events[0].Subject != subject.Address(network) {
					t.Errorf("events: %+v", events)
				}
				if tc.lasts > 0 {
					time.Sleep(tc.lasts - time.Second)
					if again := p.Store(t.Context(), network, one); again == nil || m.put != 1 {
						t.Errorf("within %s: %v, %d fetches", tc.lasts, again, m.put)
					}
					time.Sleep(2 * time.Second)
				}
				m.set(func() { m.putErr, m.versions = nil, []string{"1.0.0"} })
				p.Forget(network)
				if err := p.Store(t.Context(), network, one); err != nil || m.put != 2 {
					t.Errorf("afterwards: %v, %d fetches", err, m.put)
				}
				p.Close()
			})
		})
	}
}

// TestModuleLimits shows that the limits hold for what is received and unpacked, and that everything is free again afterwards.
func TestModuleLimits(t *testing.T) {
	endless := func(count func(int64) error) error {
		for n := 0; n < 1<<20; n++ {
			if err := count(64 << 10); err != nil {
				return err
			}
		}
		return errors.New("no limit")
	}
	received := func(m gitfiles.Meter) error { return endless(m.Received) }
	unpacked := func(m gitfiles.Meter) error { return endless(m.Unpacked) }
	plenty := func() (int64, error) { return 1 << 40, nil }
	for name, tc := range map[string]struct {
		limits  Limits
		receive func(gitfiles.Meter) error
		want    string
	}{
		"max_size":                {Limits{MaxSize: 1 << 20, Free: plenty}, received, "max_size"},
		"max_per_day":             {Limits{MaxPerDay: 20 << 20, Free: plenty}, received, "max_per_day"},
		"max_spool":               {Limits{MaxSpool: 20 << 20, Free: plenty}, received, "max_spool"},
		"max_spool by an archive": {Limits{MaxSpool: 20 << 20, Free: plenty}, unpacked, "max_spool"},
		"a full disk":             {Limits{Free: func() (int64, error) { return keepFree, nil }}, unpacked, "disk"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &modules{versions: []string{"1.0.0"}, receive: tc.receive}
				p := modulePuller(t, m, Options{Limits: tc.limits})
				err := p.Store(t.Context(), network, one)
				got := ""
				if busy, ok := errors.AsType[*catalog.BusyError](err); ok {
					got = busy.Limit
				} else if errors.As(err, new(*SizeError)) {
					got = "max_size"
				}
				if got != tc.want || errors.Is(err, catalog.ErrSource) {
					t.Errorf("the error is %v", err)
				}
				if u := p.Usage(); u.Fetching != 0 || u.Spool != 0 {
					t.Errorf("in use at the end: %+v", u)
				}
				p.Close()
			})
		})
	}
}

// TestModuleListSurvives shows that the list of a module is served after a restart while its origin fails, with the forms of its
// versions, and that it is not mixed up with that of a provider.
func TestModuleListSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &modules{versions: []string{"1.0.0"}, spellings: map[string][]string{"1.0.0": {"v1.0.0"}}}
		o := Options{Directory: t.TempDir()}
		p := modulePuller(t, m, o)
		announced(t, p)
		p.Close()
		m.set(func() { m.listErr = errors.New("500") })
		p = modulePuller(t, m, o)
		if listed, folder := announced(t, p); listed != "1.0.0" || folder != "sub" {
			t.Errorf("after a restart: %q, %q", listed, folder)
		}
		if err := p.Store(t.Context(), network, one); err != nil || len(m.fetch.Spellings) != 1 || m.fetch.Spellings[0] != "v1.0.0" {
			t.Errorf("fetched %+v, %v", m.fetch, err)
		}
		p.Close()
	})
}

// TestSweptModules shows that a Puller removes the folders that an earlier process left, and keeps those that may be in use.
func TestSweptModules(t *testing.T) {
	spool := t.TempDir()
	old, young := filepath.Join(spool, "ocibridge-pull-module-1"), filepath.Join(spool, "ocibridge-pull-module-2")
	for _, dir := range []string{old, young} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-3 * moduleTimeout)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	modulePuller(t, &modules{}, Options{Spool: spool})
	left, err := os.ReadDir(spool)
	if err != nil || len(left) != 1 || left[0].Name() != "ocibridge-pull-module-2" {
		t.Errorf("left: %v, %v", left, err)
	}
}
