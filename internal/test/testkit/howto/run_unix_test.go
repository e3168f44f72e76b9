//go:build !windows

package howto

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRunEndsWhatItStarted shows that no process of a page outlives its run, even if a
// command fails.
func TestRunEndsWhatItStarted(t *testing.T) {
	for name, end := range map[string]string{"success": "true", "failure": "false"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fifo := filepath.Join(dir, "fifo")
			r := Run{Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")}}
			// The process in the background holds the FIFO open: reading ends when the process has ended.
			out, err := r.run(md("'''sh\nmkfifo "+fifo+"\n(exec 3<>"+fifo+"; echo started >&3; exec sleep 1000) &\nread line < "+fifo+"\necho $line $!\n"+end+"\n'''\n"), nil)
			if (err == nil) != (end == "true") || len(out.Blocks) != 1 || !strings.HasPrefix(out.Blocks[0], "started ") {
				t.Fatalf("%v, %q", err, out)
			}
			if f, err := openWriter(fifo); err == nil {
				f.Close()
				t.Error("a process still reads")
			}
		})
	}
}

// openWriter opens a FIFO for writing. It fails if no process reads the FIFO.
func openWriter(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_WRONLY|syscall.O_NONBLOCK, 0)
}
