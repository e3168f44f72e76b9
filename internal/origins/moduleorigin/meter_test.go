package moduleorigin_test

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
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

// TestMeter shows that a fetch of an archive counts what it receives and unpacks before that is on disk, ends with the error of the
// meter, and leaves no temporary file.
func TestMeter(t *testing.T) {
	large := entry{name: "main.tf", content: strings.Repeat("a", 1<<20)}
	for name, archive := range map[string][]byte{"/m.tar.gz": tarGz(t, large), "/m.zip": zipped(t, large)} {
		for _, m := range []*meter{{mayReceive: 1 << 20, mayUnpack: 2 << 20}, {mayReceive: 100, mayUnpack: 2 << 20}, {mayReceive: 1 << 20, mayUnpack: 500 << 10}} {
			host, o := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(archive) }))
			l, err := moduleorigin.ParseLocation("https://" + host + name)
			if err != nil {
				t.Fatal(err)
			}
			o.Meter, o.Temp = m, t.TempDir()
			_, err = o.Fetch(t.Context(), l, t.TempDir())
			enough := m.mayReceive > 100 && m.mayUnpack > 1<<20
			if enough && (err != nil || m.received != int64(len(archive)) || m.unpacked != 1<<20) || !enough && (!errors.Is(err, errEnough) || errors.Is(err, moduleorigin.ErrArchive)) {
				t.Errorf("%s: %v, counted %+v", name, err, m)
			}
			if left, err := os.ReadDir(o.Temp); err != nil || len(left) > 0 {
				t.Errorf("%s: left %v, %v", name, left, err)
			}
		}
	}
}
