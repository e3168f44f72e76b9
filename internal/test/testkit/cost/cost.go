// Package cost measures what it costs to handle a document of another party. It also creates expensive
// documents.
package cost

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// MostOfDocument is the maximum number of bytes that a program may allocate in total to handle one document.
const MostOfDocument = 64 << 20

// Check runs f, which handles a document of size bytes. It fails the test if f allocates more than
// [MostOfDocument] in total. It also fails the test if f returns no error although refused is true, or an error
// although refused is false. Check counts all allocations of the process, so the test must not be parallel. It
// logs the numbers. The test is left to "make test-all", because the race detector moves more values to the heap.
func Check(t *testing.T, size int, refused bool, f func() error) {
	t.Helper()
	testkit.LeaveToAll(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	err := f()
	took := time.Since(begun)
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d bytes: allocated %d KiB in %s: %v", size, allocated>>10, took.Round(time.Millisecond), err)
	if (err != nil) != refused {
		t.Errorf("error %v, want an error: %t", err, refused)
	}
	if allocated > MostOfDocument {
		t.Errorf("%d bytes allocated %d bytes, more than %d", size, allocated, MostOfDocument)
	}
}

// Kept fails the test if the result of f retains more than most bytes on the heap. It measures the heap of the
// whole process, so the test must not be parallel. The test is left to "make test-all".
func Kept(t *testing.T, most uint64, f func() any) {
	t.Helper()
	testkit.LeaveToAll(t)
	live := func() uint64 {
		runtime.GC()
		runtime.GC() // the second run frees what finalizers and pools released in the first run
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	kept := f()
	if after := live(); after > before+most {
		t.Errorf("keeps %d bytes, more than %d", after-before, most)
	}
	runtime.KeepAlive(kept)
}

// Counted returns a document that begins with before and ends with after. Between them are n elements, separated
// by commas. If element contains a formatting verb, Counted formats the element's number with it.
func Counted(n int, before, element, after string) []byte {
	out := bytes.NewBufferString(before)
	for i := range n {
		if i > 0 {
			out.WriteByte(',')
		}
		if strings.Contains(element, "%") {
			fmt.Fprintf(out, element, i)
		} else {
			out.WriteString(element)
		}
	}
	return append(out.Bytes(), after...)
}

// Filled is like [Counted], but with so many elements that the document has about size bytes.
func Filled(size int, before, element, after string) []byte {
	digits := 5 * strings.Count(element, "%") // allow 7 digits for each verb, which itself has 2 bytes
	return Counted((size-len(before)-len(after))/(len(element)+1+digits), before, element, after)
}
