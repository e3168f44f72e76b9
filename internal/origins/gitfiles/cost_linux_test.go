package gitfiles

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
)

// TestCost: the worst repositories cost at most 64 MiB of resident memory beside the files, and 2 s of CPU time for a megabyte. That
// includes the zip of the files, and reading what they call.
func TestCost(t *testing.T) {
	testkit.LeaveToAll(t)
	s := newServer(t)
	zeros := func(n int) io.Reader { return io.LimitReader(zero{}, int64(n)) }
	tinyFile := func(p *packed) plumbing.Hash { return p.object(plumbing.BlobObject, "x") }
	first := &packed{}
	head := first.commit(first.object(plumbing.TreeObject, treeOf("100644 main.tf", tinyFile(first))))
	s.serve(head, first.bytes())
	small := cost.OfChild(t, s.url+"/r", s.ca, filepath.Join(s.root, "small"))
	if small.Said != "" {
		t.Fatal(small.Said)
	}
	for name, f := range map[string]func(*packed) plumbing.Hash{
		"compressed zeros": func(p *packed) plumbing.Hash {
			for range 3 {
				p.add(plumbing.BlobObject, nil, 100<<20, zeros(100<<20))
			}
			return tinyFile(p)
		},
		"deltas that copy": func(p *packed) plumbing.Hash {
			base := p.add(plumbing.BlobObject, nil, 3<<20, zeros(3<<20))
			for i := range 20_000 {
				d := sizes(3<<20, 3<<20+3) + "\xf0\xff\xff\x2f\xf0\x01\x00\x00\x03" + fmt.Sprintf("%03d", i%1000)
				p.add(plumbing.OFSDeltaObject, base, len(d), strings.NewReader(d))
			}
			return tinyFile(p)
		},
		"a long chain": func(p *packed) plumbing.Hash {
			at := p.add(plumbing.BlobObject, nil, 100_000, zeros(100_000))
			d := sizes(100_000, 100_000) + "\xf0\xa0\x86\x01"
			for range 4000 {
				at = p.add(plumbing.OFSDeltaObject, at, len(d), strings.NewReader(d))
			}
			return tinyFile(p)
		},
		"branches of a chain, which are kept": func(p *packed) plumbing.Hash {
			at := p.add(plumbing.BlobObject, nil, 3<<20, zeros(3<<20))
			d := sizes(3<<20, 3<<20) + "\xf0\xff\xff\x2f\xf0\x01\x00\x00"
			for range 60 {
				next := p.add(plumbing.OFSDeltaObject, at, len(d), strings.NewReader(d))
				p.add(plumbing.OFSDeltaObject, at, len(d), strings.NewReader(d))
				at = next
			}
			return tinyFile(p)
		},
		"small copies from a file": func(p *packed) plumbing.Hash {
			base := p.add(plumbing.BlobObject, nil, 5<<20, zeros(5<<20))
			d := sizes(5<<20, 1<<20) + strings.Repeat("\x90\x01", 1<<20)
			p.add(plumbing.OFSDeltaObject, base, len(d), strings.NewReader(d))
			return tinyFile(p)
		},
		"tiny objects": func(p *packed) plumbing.Hash {
			for i := range 399_000 {
				p.object(plumbing.BlobObject, fmt.Sprint(i))
			}
			return p.commit(p.object(plumbing.TreeObject, treeOf("100644 f", tinyFile(p))))
		},
		"a tree of trees": func(p *packed) plumbing.Hash {
			tree := p.object(plumbing.TreeObject, treeOf("100644 f", tinyFile(p)))
			for range 17 { // more files than are allowed
				tree = p.object(plumbing.TreeObject, treeOf("40000 a", tree, "40000 b", tree))
			}
			return p.commit(tree)
		},
		"a wide tree": func(p *packed) plumbing.Hash {
			blob, entries := tinyFile(p), []any{}
			for i := range 80_000 {
				entries = append(entries, fmt.Sprintf("100644 %058d", i), blob)
			}
			return p.commit(p.object(plumbing.TreeObject, treeOf(entries...)))
		},
		"deep files": func(p *packed) plumbing.Hash {
			blob, entries := tinyFile(p), []any{}
			for i := range 90_000 {
				entries = append(entries, fmt.Sprintf("100644 %d", i), blob)
			}
			tree := p.object(plumbing.TreeObject, treeOf(entries...))
			for range maxDepth {
				tree = p.object(plumbing.TreeObject, treeOf("40000 d", tree))
			}
			return p.commit(tree)
		},
		"patterns": func(p *packed) plumbing.Hash {
			blob, entries := tinyFile(p), []any{}
			attributes := p.object(plumbing.BlobObject, strings.Repeat("*a*a*a*a*a*a*[b] eol=crlf\n", 40_000))
			entries = append(entries, "100644 .gitattributes", attributes)
			for i := range 50_000 {
				entries = append(entries, fmt.Sprintf("100644 %s%d", strings.Repeat("a", 50), i), blob)
			}
			return p.commit(p.object(plumbing.TreeObject, treeOf(entries...)))
		},
		"nested attributes": func(p *packed) plumbing.Hash {
			attributes := p.object(plumbing.BlobObject, strings.Repeat("a text\n", maxAttributes/7))
			tree := p.object(plumbing.TreeObject, treeOf("100644 .gitattributes", attributes, "100644 f", tinyFile(p)))
			for range maxDepth - 1 {
				tree = p.object(plumbing.TreeObject, treeOf("100644 .gitattributes", attributes, "40000 d", tree))
			}
			return p.commit(tree)
		},
		"links": func(p *packed) plumbing.Hash {
			entries := []any{}
			long := p.object(plumbing.BlobObject, strings.Repeat("a/", 510)+"b")
			for i := range 90_000 {
				entries = append(entries, fmt.Sprintf("120000 %d", i), long)
			}
			return p.commit(p.object(plumbing.TreeObject, treeOf(entries...)))
		},
		"links to a link": func(p *packed) plumbing.Hash {
			entries := []any{}
			target := p.object(plumbing.BlobObject, "long")
			for i := range 9_000 {
				entries = append(entries, fmt.Sprintf("120000 %d", i), target)
			}
			entries = append(entries, "120000 long", p.object(plumbing.BlobObject, strings.Repeat("a/", 510)+"b"))
			return p.commit(p.object(plumbing.TreeObject, treeOf(entries...)))
		},
		"conversions": func(p *packed) plumbing.Hash {
			p.add(plumbing.BlobObject, nil, maxConverted, zeros(maxConverted))
			blob := plumbing.ComputeHash(plumbing.BlobObject, make([]byte, maxConverted))
			entries := []any{"100644 .gitattributes", p.object(plumbing.BlobObject, "* eol=crlf ident working-tree-encoding=UTF-32\n")}
			for i := range 500 {
				entries = append(entries, fmt.Sprintf("100644 %d", i), blob)
			}
			return p.commit(p.object(plumbing.TreeObject, treeOf(entries...)))
		},
		"files": func(p *packed) plumbing.Hash {
			return filesOf(p, 11_000, "x")
		},
		"files of a large pack": func(p *packed) plumbing.Hash {
			for i := range 90_000 {
				p.object(plumbing.BlobObject, fmt.Sprint(i))
			}
			return filesOf(p, 24_000, "x")
		},
		"deep files that are kept": func(p *packed) plumbing.Hash {
			blob, entries := tinyFile(p), []any{}
			for i := range 450 {
				entries = append(entries, fmt.Sprintf("100644 %d", i), blob)
			}
			tree := p.object(plumbing.TreeObject, treeOf(entries...))
			for range maxDepth {
				tree = p.object(plumbing.TreeObject, treeOf("40000 d", tree))
			}
			return p.commit(tree)
		},
		"configuration files": func(p *packed) plumbing.Hash {
			return filesOf(p, 11_000, "module \"a\" {\n  source = \"./b\"\n}\n")
		},
		"blocks of many words": func(p *packed) plumbing.Hash {
			return filesOf(p, 60, strings.Repeat("module \"a\" {\n  source = \"./b\"\n  b = ["+strings.Repeat("1,", 5_900)+"1]\n}\n", 80))
		},
		"many calls": func(p *packed) plumbing.Hash {
			return filesOf(p, 60, strings.Repeat("module \"a\" {\n  source = \"./b\"\n}\n", 1<<20/34))
		},
		"resources": func(p *packed) plumbing.Hash {
			return filesOf(p, 60, strings.Repeat("resource \"a\" \"a\" {\n  b = ["+strings.Repeat("1,", 5_900)+"1]\n}\n", 80))
		},
		"one file often": func(p *packed) plumbing.Hash {
			p.add(plumbing.BlobObject, nil, 1<<20, zeros(1<<20))
			entries := []any{}
			for i := range 5000 {
				entries = append(entries, fmt.Sprintf("100644 %d", i), plumbing.ComputeHash(plumbing.BlobObject, make([]byte, 1<<20)))
			}
			return p.commit(p.object(plumbing.TreeObject, treeOf(entries...)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &packed{}
			head := f(p)
			pack := p.bytes()
			p = nil
			s.serve(head, pack)
			fetched := cost.OfChild(t, s.url+"/r", s.ca, filepath.Join(s.root, "new"))
			if err := os.RemoveAll(filepath.Join(s.root, "new")); err != nil {
				t.Fatal(err)
			}
			fetched.CheckPackage(t, small, len(pack))
		})
	}
	// The list of references.
	var list strings.Builder
	for i := 0; list.Len() < int(standard.refs)-200; i++ {
		fmt.Fprintf(&list, "0041%040x refs/tags/%09d\n", i+1, i)
	}
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		fmt.Fprintf(w, "001e# service=git-upload-pack\n0000%04x%040x HEAD\x00agent=x\n%s0000", 4+40+5+1+8, 1, list.String())
		return true
	}
	cpu, memory, err := measure(func() error {
		refs, err := List(t.Context(), s.options, s.url+"/r")
		runtime.KeepAlive(refs)
		return err
	})
	t.Logf("references: %d bytes: %v of CPU time, %d MiB of memory: %v", list.Len(), cpu, memory>>20, err)
	if err != nil || memory > 64<<20 {
		t.Errorf("references: %v", err)
	}
}

// filesOf adds a commit of n configuration files with one content.
func filesOf(p *packed, n int, content string) plumbing.Hash {
	blob, entries := p.object(plumbing.BlobObject, content), []any{}
	for i := range n {
		entries = append(entries, fmt.Sprintf("100644 %06d.tf", i), blob)
	}
	return p.commit(p.object(plumbing.TreeObject, treeOf(entries...)))
}

// zero reads zeros.
type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// measure returns the CPU time and the most additional memory of objects on the heap while f runs.
func measure(f func() error) (cpu time.Duration, memory uint64, err error) {
	heap := func() uint64 {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return 0
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	runtime.GC()
	before, start := heap(), used()
	done, peak := make(chan struct{}), make(chan uint64)
	go func() {
		most := before
		for {
			select {
			case <-done:
				peak <- most
				return
			case <-time.After(time.Millisecond):
				most = max(most, heap())
			}
		}
	}()
	err = f()
	cpu = used() - start
	close(done)
	return cpu, <-peak - before, err
}
