package privatefolder_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
)

// holder is the environment variable with the name of the file that this program locks in place
// of the tests.
const holder = "OCIBRIDGE_TEST_LOCK"

func TestMain(m *testing.M) {
	if name := os.Getenv(holder); name != "" {
		f, err := privatefolder.Lock(name, 0)
		if err != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString("locked\n")
		io.Copy(io.Discard, os.Stdin) // until it is killed, or the test ends
		f.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestLock shows that one caller at a time holds a lock.
func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	var all sync.WaitGroup
	var inside atomic.Int32
	for range 20 {
		all.Go(func() {
			f, err := privatefolder.Lock(name, time.Minute)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			if inside.Add(1) != 1 {
				t.Error("two hold the lock")
			}
			inside.Add(-1)
		})
	}
	all.Wait()
	first, err := privatefolder.Lock(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := privatefolder.Lock(name, 0); !errors.Is(err, privatefolder.ErrLocked) {
		t.Errorf("a second holder: %v", err)
	}
	if _, err := privatefolder.Lock(filepath.Join(name, "below"), 0); err == nil || errors.Is(err, privatefolder.ErrLocked) {
		t.Errorf("a file that cannot be created: %v", err)
	}
}

// TestLockOfAnotherProcess shows that a lock holds between processes, and that it ends with the
// process.
func TestLockOfAnotherProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), holder+"="+name)
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.StdinPipe(); err != nil { // stays open until the process has ended
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := privatefolder.Lock(name, 0); !errors.Is(err, privatefolder.ErrLocked) {
		t.Errorf("while another process holds it: %v", err)
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait() // it was killed
	f, err := privatefolder.Lock(name, time.Minute)
	if err != nil {
		t.Fatalf("after the other process was killed: %v", err)
	}
	f.Close()
}
