package moduleorigin_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// packed is an entry of an archive.
type packed struct {
	name    string
	content string // of a file; the target of a link
	empty   int64  // the bytes of a file of zeros in place of content
	link    bool
}

// TestCost: the worst archives cost at most 64 MiB of resident memory beside the files, and 2 s of CPU time for a megabyte. That
// includes the zip of the files, and reading what they call.
func TestCost(t *testing.T) {
	testkit.LeaveToAll(t)
	many := func(n int, f func(int) packed) (out []packed) {
		for i := range n {
			out = append(out, f(i))
		}
		return out
	}
	call := "module \"a\" {\n  source = \"./b\"\n}\n"
	ca := tlsca.For(t)
	caFile, err := ca.WriteFile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var archive []byte
	host := serveTLS(t, ca, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(archive) }))
	fetch := func(t *testing.T, format string) cost.Child {
		dir, err := os.MkdirTemp("", "cost-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		return cost.OfChild(t, "https://"+host+"/a."+format, caFile, dir)
	}
	for format, pack := range map[string]func(*testing.T, []packed) []byte{"zip": zipOf, "tar.gz": tarOf} {
		archive = pack(t, []packed{{name: "main.tf", content: "# 1\n"}})
		small := fetch(t, format)
		if small.Said != "" {
			t.Fatal(small.Said)
		}
		for name, entries := range map[string][]packed{
			"one large file":      {{name: "main.tf", content: "# 1\n"}, {name: "a", empty: 300 << 20}},
			"a file that is kept": {{name: "a", empty: 60 << 20}},
			"files":               many(99_000, func(i int) packed { return packed{name: fmt.Sprintf("%d", i)} }),
			"some files":          many(10_000, func(i int) packed { return packed{name: fmt.Sprintf("%d", i)} }),
			"most files": many(24_900, func(i int) packed { // each has more than 100 bytes of the archive
				sum := sha512.Sum512(fmt.Append(nil, i))
				return packed{name: fmt.Sprintf("%d/%d", i%100, i), content: string(sum[:])}
			}),
			"one name":             many(99_000, func(int) packed { return packed{name: "a"} }),
			"folders":              many(99_000, func(i int) packed { return packed{name: fmt.Sprintf("%d/", i)} }),
			"deep folders":         many(4_000, func(i int) packed { return packed{name: strings.Repeat("d/", 100) + fmt.Sprint(i)} }),
			"folders of their own": many(1_000, func(i int) packed { return packed{name: fmt.Sprint(i) + strings.Repeat("/d", 400)} }),
			"long names": many(8_000, func(i int) packed {
				return packed{name: strings.Repeat(strings.Repeat("n", 240)+"/", 4) + fmt.Sprint(i)}
			}),
			"links":               many(50_000, func(i int) packed { return packed{name: fmt.Sprint(i), content: "a", link: true} }),
			"configuration files": many(19_000, func(i int) packed { return packed{name: fmt.Sprintf("%d.tf", i), content: call} }),
			"blocks of many words": many(60, func(i int) packed {
				return packed{name: fmt.Sprintf("%d.tf", i), content: strings.Repeat("module \"a\" {\n  source = \"./b\"\n  b = ["+strings.Repeat("1,", 5_900)+"1]\n}\n", 80)}
			}),
			"resources that name providers": many(30, func(i int) packed {
				return packed{name: fmt.Sprintf("%d.tf", i), content: strings.Repeat("resource \"a\" \"a\" {\n  provider = a.b\n  b = ["+strings.Repeat("1,", 5_900)+"1]\n}\n", 80)}
			}),
			"words that are only split": many(31, func(i int) packed {
				return packed{name: fmt.Sprintf("%d.tf", i), content: "locals {\n  a = [" + strings.Repeat("1,", 510<<10) + "1]\n}\n"}
			}),
			"resources of many types": many(31, func(i int) packed {
				var out strings.Builder
				for k := range 4_900 {
					fmt.Fprintf(&out, "resource \"a%db\" \"c\" {\n}\n", k)
				}
				return packed{name: fmt.Sprintf("%d.tf", i), content: out.String()}
			}),
			"many calls": many(60, func(i int) packed {
				return packed{name: fmt.Sprintf("%d.tf", i), content: strings.Repeat(call, 1<<20/len(call))}
			}),
			"JSON": many(60, func(i int) packed {
				return packed{name: fmt.Sprintf("%d.tf.json", i), content: `{"locals":{"a":[` + strings.Repeat("1,", 29_000) + "1]}}"}
			}),
		} {
			t.Run(format+", "+name, func(t *testing.T) {
				archive = pack(t, entries)
				fetch(t, format).CheckPackage(t, small, len(archive))
			})
		}
	}
}

func zipOf(t *testing.T, entries []packed) []byte {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.link {
			h.SetMode(0o777 | fs.ModeSymlink)
		}
		body, err := w.CreateHeader(h)
		if err == nil {
			_, err = io.Copy(body, e.body())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func tarOf(t *testing.T, entries []packed) []byte {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(e.content)) + e.empty}
		switch {
		case e.link:
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, e.content, 0
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag = tar.TypeDir
		}
		err := w.WriteHeader(h)
		if err == nil && !e.link {
			_, err = io.Copy(w, e.body())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func (e packed) body() io.Reader {
	if e.empty > 0 {
		return io.LimitReader(zeros{}, e.empty)
	}
	return strings.NewReader(e.content)
}

// zeros reads zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
