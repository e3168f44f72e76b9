package serve

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// listenAsManager stands for systemd: it returns what is told to it next.
func listenAsManager(t *testing.T) func() string {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify-") // whose name is short enough
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	name := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return func() string {
		t.Helper()
		buf := make([]byte, 4096)
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

// TestManagerIsTold has reloads told as Type=notify-reload wants it.
func TestManagerIsTold(t *testing.T) {
	next := listenAsManager(t)
	r := newReloading(t, withToken(""))
	for config, status := range map[string]string{
		withToken("# more\n"): "STATUS=serving",
		"wrong":               "STATUS=serving by earlier settings: the new ones cannot be used",
	} {
		before, _ := strconv.ParseInt(monotonic(), 10, 64)
		r.as(config)
		lines := strings.Split(next(), "\n")
		usec, err := strconv.ParseInt(strings.TrimPrefix(lines[len(lines)-1], "MONOTONIC_USEC="), 10, 64)
		if len(lines) != 2 || lines[0] != "RELOADING=1" || err != nil || usec < before {
			t.Errorf("at the beginning: %q", lines)
		}
		if got, want := next(), "READY=1\n"+status; got != want {
			t.Errorf("at the end: %q, want %q", got, want)
		}
	}
}

func TestWatchdog(t *testing.T) {
	m := manager{getenv: os.Getenv}
	for _, tt := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"", "", 0}, {"x", "", 0}, {"-5", "", 0}, {"30000000", "", 15 * time.Second},
		{"30000000", "1", 0}, {"30000000", strconv.Itoa(os.Getpid()), 15 * time.Second},
	} {
		t.Setenv("WATCHDOG_USEC", tt.usec)
		t.Setenv("WATCHDOG_PID", tt.pid)
		if got := m.watchdogInterval(); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := m.send("READY=1"); err != nil {
		t.Errorf("with nobody to tell: %v", err)
	}
}
