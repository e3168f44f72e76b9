package main

import "testing"

func TestTable(t *testing.T) {
	table := table{
		header: []string{"VERSION", "PLATFORMS", "SIZE"}, wrap: 1,
		rows: [][]string{
			{"10.0.0", "darwin_arm64 linux_amd64 windows_amd64", "12 MiB"},
			{"1.0.0", "cannot be read: the registry says that it is in some trouble"},
		},
	}
	for width, want := range map[int]string{
		0: `  VERSION  PLATFORMS                               SIZE
  10.0.0   darwin_arm64 linux_amd64 windows_amd64  12 MiB
  1.0.0    cannot be read: the registry says that it is in some trouble
`,
		46: `  VERSION  PLATFORMS                    SIZE
  10.0.0   darwin_arm64 linux_amd64     12 MiB
           windows_amd64
  1.0.0    cannot be read: the registry says
           that it is in some trouble
`,
		10: `  VERSION  PLATFORMS         SIZE
  10.0.0   darwin_arm64      12 MiB
           linux_amd64
           windows_amd64
  1.0.0    cannot be read:
           the registry
           says that it is
           in some trouble
`,
	} {
		if got := table.text(width); got != want {
			t.Errorf("%d:\n%s\nwant\n%s", width, got, want)
		}
	}
}
