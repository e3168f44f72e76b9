package moduleorigin_test

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
)

// TestMeter shows that a fetch of an archive counts what it receives and unpacks before that is on disk. It ends with the error of
// the meter, and leaves no temporary file.
func TestMeter(t *testing.T) {
	large := entry{name: "main.tf", content: strings.Repeat("a", 1<<20)}
	for name, archive := range map[string][]byte{"/m.tar.gz": tarGz(t, large), "/m.zip": zipped(t, large)} {
		for _, m := range []*cost.Meter{{MayReceive: 1 << 20, MayUnpack: 2 << 20}, {MayReceive: 100, MayUnpack: 2 << 20}, {MayReceive: 1 << 20, MayUnpack: 500 << 10}} {
			host, o := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(archive) }))
			l, err := moduleorigin.ParseLocation("https://" + host + name)
			if err != nil {
				t.Fatal(err)
			}
			o.Meter, o.Temp = m, t.TempDir()
			_, err = o.Fetch(t.Context(), l, t.TempDir())
			enough := m.MayReceive > 100 && m.MayUnpack > 1<<20
			if enough && (err != nil || m.Wire != int64(len(archive)) || m.Disk != 1<<20) || !enough && (!errors.Is(err, cost.ErrEnough) || errors.Is(err, moduleorigin.ErrArchive)) {
				t.Errorf("%s: %v, counted %+v", name, err, m)
			}
			if left, err := os.ReadDir(o.Temp); err != nil || len(left) > 0 {
				t.Errorf("%s: left %v, %v", name, left, err)
			}
		}
	}
}
