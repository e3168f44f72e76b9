package gitfiles

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
)

// TestMeter shows that a fetch counts the bytes of packs and files. It also counts submodules, and the objects on which others are
// based. The fetch ends with the error of the meter, and leaves no temporary file.
func TestMeter(t *testing.T) {
	s := newServer(t)
	base := strings.Repeat("0123456789abcdef", 1<<16)
	id := strings.TrimSpace(s.must(s.repository("sub", tree{"s.txt": "s\n"}), "", "rev-parse", "main"))
	s.repository("r", tree{"a.txt": base}, tree{"a.txt": base + "x", "b.txt": base + "y", "sub": "commit " + id, ".gitmodules": "[submodule \"sub\"]\n\tpath = sub\n\turl = ../sub\n"})
	s.must(s.root+"/r", "", "repack", "-adq")
	for name, m := range map[string]*cost.Meter{"enough": {MayReceive: 1 << 20, MayUnpack: 16 << 20}, "a pack": {MayReceive: 100, MayUnpack: 16 << 20}, "files": {MayReceive: 1 << 20, MayUnpack: 1 << 10}} {
		o := s.options
		o.Meter, o.Temp = m, t.TempDir()
		_, _, err := s.fetchWith(o, standard, Request{URL: s.url + "/r", Ref: "main"})
		if enough := name == "enough"; enough && (err != nil || m.Wire < 1000 || m.Disk < 2<<20) || !enough && !errors.Is(err, cost.ErrEnough) {
			t.Errorf("%s: %v, counted %+v", name, err, m)
		}
		if left, err := os.ReadDir(o.Temp); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
}
