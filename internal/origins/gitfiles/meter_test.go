package gitfiles

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// meter counts bytes, and fails if there are more than it allows.
type meter struct{ received, unpacked, mayReceive, mayUnpack int64 }

var errEnough = errors.New("enough")

func (m *meter) Received(n int64) error {
	if m.received += n; m.received > m.mayReceive {
		return errEnough
	}
	return nil
}

func (m *meter) Unpacked(n int64) error {
	if m.unpacked += n; m.unpacked > m.mayUnpack {
		return errEnough
	}
	return nil
}

// TestMeter shows that a fetch counts the bytes of packs and files, also those of submodules and of objects that others are made
// of, ends with the error of the meter, and leaves no temporary file.
func TestMeter(t *testing.T) {
	s := newServer(t)
	base := strings.Repeat("0123456789abcdef", 1<<16)
	id := strings.TrimSpace(s.must(s.repository("sub", tree{"s.txt": "s\n"}), "", "rev-parse", "main"))
	s.repository("r", tree{"a.txt": base}, tree{"a.txt": base + "x", "b.txt": base + "y", "sub": "commit " + id, ".gitmodules": "[submodule \"sub\"]\n\tpath = sub\n\turl = ../sub\n"})
	s.must(s.root+"/r", "", "repack", "-adq")
	for name, m := range map[string]*meter{"enough": {mayReceive: 1 << 20, mayUnpack: 16 << 20}, "a pack": {mayReceive: 100, mayUnpack: 16 << 20}, "files": {mayReceive: 1 << 20, mayUnpack: 1 << 10}} {
		o := s.options
		o.Meter, o.Temp = m, t.TempDir()
		_, _, err := s.fetchWith(o, standard, Request{URL: s.url + "/r", Ref: "main"})
		if enough := name == "enough"; enough && (err != nil || m.received < 1000 || m.unpacked < 2<<20) || !enough && !errors.Is(err, errEnough) {
			t.Errorf("%s: %v, counted %+v", name, err, m)
		}
		if left, err := os.ReadDir(o.Temp); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
}
