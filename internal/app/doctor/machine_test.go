package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestMachine(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		folder string
		free   int64
		err    error
		status Status
		detail string
	}{
		"much":    {dir, 20 << 30, nil, OK, "20 GiB are free in " + dir},
		"absent":  {filepath.Join(dir, "not", "yet"), 20 << 30, nil, OK, "20 GiB are free"},
		"little":  {dir, 500 << 20, nil, Warn, "500 MiB are free"},
		"nothing": {dir, 100, nil, Fail, "100 bytes are free"},
		"unknown": {dir, 0, errors.New("stale handle"), Warn, "is unknown: stale handle"},
		"a file":  {filepath.Join(file, "below"), 20 << 30, nil, Fail, "not a"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			x := Machine{Folders: []Folder{{"cache", tc.folder, "set it"}}, Temporary: dir, Free: func(folder string) (int64, error) {
				asked = append(asked, folder)
				return tc.free, tc.err
			}}
			got := checks(t, x.Examine())
			want(t, got, "cache", tc.status, tc.detail)
			for _, folder := range asked {
				if folder != dir {
					t.Errorf("the free space of %s was requested", folder)
				}
			}
		})
	}
	x := Machine{Temporary: filepath.Join(dir, "missing")}
	want(t, checks(t, x.Examine()), "temporary files", Fail, "missing")
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v: left behind: %v", err, left)
	}
}
