package main

import "testing"

func TestTable(t *testing.T) {
	rows := [][]string{
		{"VERSION", "PLATFORMS", "SIZE"},
		{"10.0.0", "darwin_arm64 linux_amd64 windows_amd64", "12 MiB"},
		{"1.0.0", "linux_amd64", "4 MiB"},
	}
	for width, want := range map[int]string{
		0: `  VERSION  PLATFORMS                               SIZE
  10.0.0   darwin_arm64 linux_amd64 windows_amd64  12 MiB
  1.0.0    linux_amd64                             4 MiB
`,
		46: `  VERSION  PLATFORMS                 SIZE
  10.0.0   darwin_arm64 linux_amd64  12 MiB
           windows_amd64
  1.0.0    linux_amd64               4 MiB
`,
		10: `  VERSION  PLATFORMS      SIZE
  10.0.0   darwin_arm64   12 MiB
           linux_amd64
           windows_amd64
  1.0.0    linux_amd64    4 MiB
`,
	} {
		if got := tableText(rows, 1, width); got != want {
			t.Errorf("%d:\n%s\nwant\n%s", width, got, want)
		}
	}
}
