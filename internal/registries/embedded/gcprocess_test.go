package embedded_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

const gcHost = "registry.acme.example"

var gcWidget = provider.MustParseAddress(gcHost + "/acme/widget")

// gcProcessArg is the first argument of a test program that is a gcProcess.
const gcProcessArg = "gc-process"

// gcProcess is a process that collects garbage or writes a version. It pauses before its n-th
// step: an operation on a file, or a request to the registry.
type gcProcess struct {
	t      *testing.T
	role   string // gc, push or pull
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  *bufio.Scanner
	killed bool
	last   string // the last event that await returned
}

// startGCProcess starts a process. It never pauses if pause is 0.
func startGCProcess(t *testing.T, role, dir, originURL string, pause int) *gcProcess {
	t.Helper()
	p := &gcProcess{t: t, role: role, cmd: exec.Command(os.Args[0], gcProcessArg, role, dir, originURL, strconv.Itoa(pause))}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// await waits for an event that begins with one of the given words, and returns this word. It
// returns "done" when the process has ended.
func (p *gcProcess) await(words ...string) string {
	p.t.Helper()
	for p.last != "done" && p.lines.Scan() {
		word, text, _ := strings.Cut(p.lines.Text(), " ")
		for _, w := range append(words, "done") {
			if word != w {
				continue
			}
			if p.last = word; word == "done" && text != "" {
				p.t.Errorf("%s: %s", p.role, text)
			}
			return word
		}
	}
	if p.last != "done" && !p.killed {
		p.t.Errorf("%s ends without a result", p.role)
	}
	p.last = "done"
	return p.last
}

// resume lets a process continue after its pause, also if the process pauses later.
func (p *gcProcess) resume() {
	_, _ = io.WriteString(p.stdin, "\n") // the process might have ended
}

func (p *gcProcess) kill() {
	p.killed = true
	_ = p.cmd.Process.Kill() // it might have ended
}

// finish waits until the process has ended.
func (p *gcProcess) finish() {
	p.await()
	p.stdin.Close()
	if err := p.cmd.Wait(); err != nil && !p.killed {
		p.t.Errorf("%s: %v", p.role, err)
	}
}

// runGCProcess is the main function of a [gcProcess].
func runGCProcess(args []string) {
	role, dir, originURL := args[0], args[1], args[2]
	pause, _ := strconv.Atoi(args[3])
	var steps atomic.Int64
	step := func(what string) {
		if n := steps.Add(1); int(n) == pause {
			fmt.Println("paused", what)
			_, _ = os.Stdin.Read(make([]byte, 1))
		}
	}
	say := func(event string) { fmt.Println(event) }
	r, err := embedded.Open(dir, nil)
	if err == nil {
		switch role {
		case "gc":
			r.SetBeforeFile(func(operation, name string) {
				if operation == "wait" || operation == "lock" {
					say(operation)
				}
				if operation != "wait" {
					step(operation + " " + name)
				}
			})
			_, err = r.GC(context.Background(), embedded.GCOptions{})
		case "push":
			err = pushWidget(context.Background(), &gcWriter{Registry: r, step: step, say: say}, originURL, "2.0.0")
		case "pull":
			err = pullWidget(context.Background(), &gcWriter{Registry: r, step: step, say: say}, originURL, filepath.Join(dir, "spool"))
		}
	}
	text := ""
	if err != nil {
		text = fmt.Sprint(" ", strings.ReplaceAll(err.Error(), "\n", " "), " after ", steps.Load(), " steps")
	}
	fmt.Println("done" + text)
}

// gcWriter is a registry whose requests are steps.
type gcWriter struct {
	*embedded.Registry
	step func(string)
	say  func(string) // reports an event
	held atomic.Int64 // the number of locks that are held
}

func newGCWriter(r *embedded.Registry) *gcWriter {
	return &gcWriter{Registry: r, step: func(string) {}, say: func(string) {}}
}

func (w *gcWriter) destination(_ context.Context, a subject.Address) (repo.Destination, error) {
	store, err := w.Repository(a.Path())
	if err != nil {
		return repo.Destination{}, err
	}
	store.Client = steppingClient{store.Client, w.step}
	return repo.Destination{
		Repository: ociaddr.Repository{Registry: embedded.Host, Name: a.Path()}, Store: registry.Repository{Repository: store},
		Lock: func(ctx context.Context, doing string) (func(), error) {
			w.say("lock " + doing)
			unlock, err := w.Lock(ctx, doing)
			if err != nil {
				return nil, err
			}
			w.held.Add(1)
			return func() { w.held.Add(-1); unlock() }, nil
		},
	}, nil
}

type steppingClient struct {
	remote.Client
	step func(string)
}

func (c steppingClient) Do(req *http.Request) (*http.Response, error) {
	c.step(req.Method + " " + req.URL.Path)
	return c.Client.Do(req)
}

func pushWidget(ctx context.Context, w *gcWriter, originURL, version string) error {
	source := testorigin.Client(gcHost, originURL)
	listing, err := source.Versions(ctx, gcWidget)
	if err != nil {
		return err
	}
	release, err := source.Release(ctx, gcWidget, listing, provider.MustParseVersion(version), nil)
	if err != nil {
		return err
	}
	_, err = pusher.New(pusher.Options{Destination: w.destination, Jobs: 1}).Push(ctx, release)
	return err
}

// pullWidget requests a package as a client of a gateway with pull-through does, and returns when
// the version is stored.
func pullWidget(ctx context.Context, w *gcWriter, originURL, spool string) error {
	push := pusher.New(pusher.Options{Destination: w.destination, Jobs: 1})
	var stored error
	p, err := pull.New(pull.Options{
		Origin: testorigin.Client(gcHost, originURL), Push: push.Push, CheckDowngrade: push.CheckDowngrade, Spool: spool,
		Events: func(e pull.Event) { stored = errors.Join(stored, e.Err) },
	})
	if err != nil {
		return err
	}
	defer p.Close()
	repo, err := w.Repository(gcWidget.Path())
	if err != nil {
		return err
	}
	version := provider.MustParseVersion("2.0.0")
	found, err := p.Complete(ctx, gcWidget, version, nil)
	if err != nil {
		return err
	}
	pkg := found.Packages[0]
	blob := p.Package(gcWidget, version, pkg, catalog.Stored{Store: repo, Layer: pkg.Layer()})
	size, err := blob.Size(ctx, true)
	if err != nil {
		return err
	}
	body, _, err := blob.Open(ctx, size, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, body)
	body.Close()
	blob.Requested()
	p.Drain(ctx)
	return errors.Join(err, stored)
}
