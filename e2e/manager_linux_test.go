package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// manager imitates systemd. It receives the notifications of a service.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
	name string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "manager-") // the path of a socket must be short
	clients.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &manager{t: t, name: filepath.Join(dir, "s")}
	m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.name, Net: "unixgram"})
	clients.Must(t, err)
	t.Cleanup(func() { m.conn.Close() })
	return m
}

// hears returns the next message that begins with a text. It skips watchdog messages, which can arrive at any
// time.
func (m *manager) hears(begin string) string {
	m.t.Helper()
	buf := make([]byte, 4096)
	for {
		m.conn.SetReadDeadline(time.Now().Add(waitForLog))
		n, err := m.conn.Read(buf)
		if err != nil {
			m.t.Fatalf("the service manager got no %s: %v", begin, err)
		}
		text := string(buf[:n])
		if strings.HasPrefix(text, begin) {
			return text
		}
		if text != "WATCHDOG=1" {
			m.t.Fatalf("the service manager got %q, want %s", text, begin)
		}
	}
}

// TestServiceManager runs the gateway as the unit in deploy/systemd does. It shows that the gateway notifies
// systemd that it is ready, alive, reloading, and stopping, and whether a reload has succeeded.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	m := newManager(t)
	c.ws.Env["NOTIFY_SOCKET"] = m.name
	c.ws.Env["WATCHDOG_USEC"] = "100000"
	g := c.gateway()
	ready := func(status string) {
		t.Helper()
		if got, want := m.hears("READY=1"), "READY=1\nSTATUS="+status; got != want {
			t.Errorf("the service manager got %q, want %q", got, want)
		}
	}
	ready("serving")
	m.hears("WATCHDOG=1")
	reload := execReload(t, g)
	for more, status := range map[string]string{
		"  tag_ttl = \"5s\"\n":  "serving",
		"  tokn \"wrong\" {}\n": "serving by earlier settings: the new ones cannot be used",
	} {
		c.settings(more)
		reload()
		m.hears("RELOADING=1\nMONOTONIC_USEC=")
		ready(status)
	}
	clients.Must(t, g.Interrupt())
	m.hears("STOPPING=1")
	if err := g.Wait(); err != nil {
		t.Errorf("the gateway exited with %v", err)
	}
}

// execReload checks that the unit's ExecReload sends SIGHUP, and returns a function that sends SIGHUP to the
// gateway.
func execReload(t *testing.T, g *world.Gateway) func() {
	t.Helper()
	unit, err := os.ReadFile("../deploy/systemd/ocibridge.service")
	clients.Must(t, err)
	line := regexp.MustCompile(`(?m)^ExecReload=/bin/kill -HUP \$MAINPID$`)
	if !line.Match(unit) || !regexp.MustCompile(`(?m)^Type=notify$`).Match(unit) {
		t.Fatal("the unit has another ExecReload")
	}
	return func() { t.Helper(); clients.Must(t, g.Hangup()) }
}

// TestManyReloads changes settings a hundred times under load. Some of the settings open files, and every third
// change is invalid. It shows that neither replaced nor invalid settings leak resources. Several quick SIGHUPs
// cause one reload.
func TestManyReloads(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	metrics := freeAddress(t)
	g := c.gateway("--metrics-listen", metrics, "--log-level", "error")
	usable, failed := 0, 0
	change := func(i int) {
		t.Helper()
		more := fmt.Sprintf("  cache {\n    directory = \"cache-%d\"\n    max_size  = \"%dMiB\"\n  }\n", i%2, 100+i%4)
		if i%3 == 2 {
			// The gateway opens everything else before it finds that the last file is missing.
			c.settings(more + "  tls {\n    client_ca_file = \"absent\"\n  }\n")
			failed++
		} else {
			c.settings(more + fmt.Sprintf("  tag_ttl = \"%ds\"\n", 5+i))
			usable++
		}
		clients.Must(t, g.Hangup())
		c.counts(metrics, `ocibridge_config_reloads_total{result="success"}`, 1+usable)
		c.counts(metrics, `ocibridge_config_reloads_total{result="failure"}`, failed)
	}
	l := c.start(g.URL)
	for i := range 20 { // until the process has allocated what it needs only once
		change(i)
	}
	before, running := settled(t, g.PID()), c.count(metrics, "go_goroutines")
	for i := range 100 {
		change(i)
	}
	for range 500 {
		clients.Must(t, g.Hangup())
	}
	l.end(t)
	after := settled(t, g.PID())
	deadline := time.Now().Add(waitForLog)
	for c.count(metrics, "go_goroutines") > running {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, and %d before", c.count(metrics, "go_goroutines"), running)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("before %+v, after %+v; %d goroutines", before, after, running)
	if after.Files > before.Files+5 || after.Memory > before.Memory+32<<20 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// count returns the value of a metric.
func (c *changing) count(address, metric string) int {
	c.t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	clients.Must(c.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	clients.Must(c.t, err)
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(metric) + ` (\d+)$`).FindSubmatch(body)
	if m == nil {
		c.t.Fatalf("there is no %s", metric)
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

// counts waits until a metric has the value want.
func (c *changing) counts(address, metric string, want int) {
	c.t.Helper()
	deadline := time.Now().Add(waitForLog)
	for {
		got := c.count(address, metric)
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s is %d, want %d", metric, got, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
