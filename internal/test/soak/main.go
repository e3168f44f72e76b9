// Command soak runs the built gateway at full load for a limited time. Faults come and go between the gateway
// and its registry. Meanwhile, tofu installs from the gateway. The command checks every response against the
// release, and prints statistics. It fails if a response is wrong, or if the status of index.json is 404. It
// also fails if the gateway's memory, threads or open files grow from the second third of the time to the last.
// It needs /proc.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/faultproxy"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/usage"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

const (
	versions = 12
	size     = 2 << 20 // the size of a package's file in bytes
	workers  = 16
	provider = world.Host + "/acme/soaked"
)

func main() {
	length := flag.Duration("for", 2*time.Minute, "how long")
	seed := flag.Uint64("seed", 0, "of what is random; 0: another one each time")
	flag.Parse()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	fmt.Printf("seed %d\n", *seed)
	if err := run(*length, rand.New(rand.NewPCG(*seed, 0))); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// soak runs a gateway under load.
type soak struct {
	*world.World
	gateway  *world.Gateway
	proxy    *faultproxy.Server
	releases []*release.Release

	right, trouble, broken, faults atomic.Int64
	bytes                          atomic.Int64
	installed, notInstalled        atomic.Int64 // the numbers of successful and of failed installations

	mu    sync.Mutex
	wrong []error
}

func run(length time.Duration, random *rand.Rand) (err error) {
	dir, err := os.MkdirTemp("", "ocibridge-soak-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &soak{}
	if s.World, err = world.New(dir); err != nil {
		return err
	}
	defer s.Close()
	reg, err := registry.Start(context.Background(), registry.Options{})
	if err != nil {
		return err
	}
	defer reg.Stop()
	handler, err := reg.Handler()
	if err != nil {
		return err
	}
	log.SetOutput(io.Discard) // the reverse proxy would log each client that disconnects
	if s.proxy, err = faultproxy.Start(handler, nil); err != nil {
		return err
	}
	defer s.proxy.Close()
	if err := s.start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.gateway.Stop()) }()
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var all sync.WaitGroup
	for i := range workers {
		own := rand.New(rand.NewPCG(random.Uint64(), uint64(i)))
		all.Go(func() { s.work(ctx, own, i%2 == 0) })
	}
	faults, installs := rand.New(rand.NewPCG(random.Uint64(), 0)), rand.New(rand.NewPCG(random.Uint64(), 0))
	all.Go(func() { s.befall(ctx, faults) })
	all.Go(func() { s.install(ctx, installs) })
	samples, err := s.watch(ctx)
	all.Wait()
	return errors.Join(err, s.report(length, samples), s.idle())
}

// start pushes the releases, and starts the gateway. The gateway's cache is too small for all releases.
func (s *soak) start() error {
	ws, err := s.Workspace("")
	if err != nil {
		return err
	}
	bridge, err := clients.Bridge()
	if err != nil {
		return err
	}
	template := s.proxy.Addr + "/${hostname}/${namespace}/${type}"
	for i := range versions {
		version := fmt.Sprintf("1.0.%d", i)
		content := make([]byte, size)
		rand.NewChaCha8([32]byte{byte(i)}).Read(content)
		r, err := release.Build(release.Spec{Host: world.Host, Namespace: "acme", Type: "soaked", Version: version, Signer: s.Signer,
			Contents: []release.Content{{OS: "linux", Arch: runtime.GOARCH, Files: map[string][]byte{"terraform-provider-soaked_v" + version: content}}}})
		if err != nil {
			return err
		}
		s.Origin.Add(r)
		s.releases = append(s.releases, r)
		if out, err := ws.Run(bridge, "push", provider+"@"+version, "--template", template); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	cert, err := s.CA.Issue("localhost")
	if err != nil {
		return err
	}
	certFile, keyFile, err := cert.WriteFiles(s.Dir)
	if err != nil {
		return err
	}
	config := filepath.Join(s.Dir, "ocibridge.hcl")
	text := fmt.Sprintf("gateway {\n  tag_ttl = \"1s\"\n  cache {\n    directory = %q\n    max_size  = \"%dMiB\"\n  }\n}\n", filepath.Join(s.Dir, "cache"), versions*size/2>>20)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	logged, err := os.Create(filepath.Join(s.Dir, "log"))
	if err != nil {
		return err
	}
	defer logged.Close()
	s.gateway, err = world.ServeLogging(bridge, ws, logged, "--config", config, "--template", template, "--tls-cert", certFile, "--tls-key", keyFile)
	if err != nil {
		said, _ := os.ReadFile(logged.Name()) // ignore the error, because a part of the log is better than none
		return fmt.Errorf("%w\n%s", err, said)
	}
	return nil
}

// work sends requests, one after another, until ctx ends.
func (s *soak) work(ctx context.Context, random *rand.Rand, http2 bool) {
	client := s.CA.HTTPClient()
	transport := client.Transport.(*http.Transport)
	transport.ForceAttemptHTTP2 = http2
	defer transport.CloseIdleConnections()
	for ctx.Err() == nil {
		r := s.releases[random.IntN(len(s.releases))]
		p := r.Packages[0]
		switch n := random.IntN(100); {
		case n < 40:
			s.get(ctx, client, "index.json", func(body []byte) bool { return strings.Count(string(body), `"1.0.`) == versions })
		case n < 80:
			s.get(ctx, client, r.Version+".json", func(body []byte) bool { return bytes.Contains(body, []byte("zh:"+p.SHA256)) })
		case n < 98:
			s.get(ctx, client, archive(r), func(body []byte) bool { return bytes.Equal(body, p.Data) })
		default: // the client disconnects while it reads the response
			short, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(20))*time.Millisecond)
			s.get(short, client, archive(r), func(body []byte) bool { return bytes.Equal(body, p.Data) })
			cancel()
		}
	}
}

func archive(r *release.Release) string {
	return r.Version + "/linux_" + runtime.GOARCH + "/" + r.Packages[0].Filename
}

// get sends a request, and counts the response. A response can be right, an error after which clients retry, or
// incomplete. Any other response makes the run fail.
func (s *soak) get(ctx context.Context, client *http.Client, path string, right func([]byte) bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.gateway.URL+provider+"/"+path, nil)
	if err != nil {
		s.fail(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		s.broken.Add(1)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	s.bytes.Add(int64(len(body)))
	switch {
	case err != nil:
		s.broken.Add(1)
	case resp.StatusCode >= 502 && resp.StatusCode <= 504 && resp.Header.Get("Retry-After") != "":
		s.trouble.Add(1)
	case resp.StatusCode == http.StatusOK && right(body):
		s.right.Add(1)
	default:
		s.fail(fmt.Errorf("%s: %s with %d bytes that are wrong: %.100q", path, resp.Status, len(body), body))
	}
}

func (s *soak) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wrong) < 10 {
		s.wrong = append(s.wrong, err)
	}
}

// befall begins and ends random faults, one after another, until ctx ends.
func (s *soak) befall(ctx context.Context, random *rand.Rand) {
	faults := []faultproxy.Fault{
		faultproxy.Cut(), faultproxy.CutAt(1000), faultproxy.Stall(), faultproxy.StallAt(1000), faultproxy.Status(500, ""), faultproxy.Status(503, "1"),
		faultproxy.Status(429, "1"), faultproxy.HTML(), faultproxy.Alter(100), faultproxy.Half(), faultproxy.Length(10), faultproxy.Length(-10), faultproxy.Late(time.Second),
	}
	for pause(ctx, time.Duration(random.IntN(1500))*time.Millisecond) {
		var end func()
		if n := random.IntN(len(faults) + 1); n == len(faults) {
			s.proxy.Refuse()
			end = func() {
				if err := s.proxy.Accept(); err != nil {
					s.fail(err)
				}
			}
		} else {
			end = s.proxy.Begin(faultproxy.Rule{Fault: faults[n]})
		}
		s.faults.Add(1)
		pause(ctx, time.Duration(random.IntN(1500))*time.Millisecond)
		end()
	}
}

// pause waits for the duration d or until ctx ends. It returns true if it waited for the whole duration.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// watch measures the gateway's process repeatedly until ctx ends.
func (s *soak) watch(ctx context.Context) (out []usage.Usage, err error) {
	for pause(ctx, 200*time.Millisecond) {
		now, err := usage.Of(s.gateway.PID())
		if err != nil {
			return out, fmt.Errorf("the gateway has ended: %w", err)
		}
		out = append(out, now)
	}
	return out, nil
}

// report prints the statistics. It returns an error if a response was wrong, if the gateway's resource usage
// grew, or if the run tested nothing.
func (s *soak) report(length time.Duration, samples []usage.Usage) error {
	third := len(samples) / 3
	if third == 0 {
		return errors.New("that was too short")
	}
	middle, last := mean(samples[third:2*third]), mean(samples[2*third:])
	seconds := length.Seconds()
	fmt.Printf("%d right answers (%.0f a second, %.0f MB a second), %d that say that there is trouble, %d that broke off; %d faults\n",
		s.right.Load(), float64(s.right.Load())/seconds, float64(s.bytes.Load())/1e6/seconds, s.trouble.Load(), s.broken.Load(), s.faults.Load())
	fmt.Printf("%d installed by tofu init, %d not\n", s.installed.Load(), s.notInstalled.Load())
	fmt.Printf("%-16s %10s %10s\n", "means of thirds", "second", "last")
	var errs []error
	for _, row := range []struct {
		name         string
		middle, last int64
		slack        int64
	}{
		{"memory in KiB", middle.Memory >> 10, last.Memory >> 10, 8 << 10},
		{"threads", middle.Threads, last.Threads, 4},
		{"open files", middle.Files, last.Files, 20},
	} {
		fmt.Printf("%-16s %10d %10d\n", row.name, row.middle, row.last)
		if row.last > row.middle+row.middle/10+row.slack {
			errs = append(errs, fmt.Errorf("%s grow", row.name))
		}
	}
	if s.right.Load() == 0 || s.installed.Load() == 0 || s.faults.Load() == 0 {
		errs = append(errs, errors.New("nothing was shown"))
	}
	return errors.Join(append(errs, s.wrong...)...)
}

func mean(samples []usage.Usage) (m usage.Usage) {
	for _, u := range samples {
		m.Memory, m.Threads, m.Files = m.Memory+u.Memory, m.Threads+u.Threads, m.Files+u.Files
	}
	n := int64(len(samples))
	return usage.Usage{Memory: m.Memory / n, Threads: m.Threads / n, Files: m.Files / n}
}
