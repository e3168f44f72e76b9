// Package cost measures the cost of handling another party's document, and creates expensive documents.
package cost

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// MostOfDocument is the maximum number of bytes that the handling of one document may allocate in total.
const MostOfDocument = 64 << 20

// Check runs f, which handles a document of size bytes. The test fails if f allocates more than
// [MostOfDocument] in total, or if refused is wrong about whether f returns an error. Check counts all
// allocations of the process, so the test must not be parallel. It logs its figures. With the race detector,
// which moves more values to the heap, it does not limit the allocations.
func Check(t *testing.T, size int, refused bool, f func() error) {
	t.Helper()
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
	if allocated > MostOfDocument && !underRace {
		t.Errorf("%d bytes allocated %d bytes, more than %d", size, allocated, MostOfDocument)
	}
}

// Kept fails the test if the result of f keeps more than most bytes on the heap. It counts the whole heap of
// the process, so the test must not be parallel.
func Kept(t *testing.T, most uint64, f func() any) {
	t.Helper()
	live := func() uint64 {
		runtime.GC()
		runtime.GC() // finalizers and pools release their memory in the second run
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

// Counted returns a document with n elements, separated by commas, between two texts. If element contains a
// formatting verb, it formats the number of the element.
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

// Filled is [Counted] with as many elements as fit into about size bytes.
func Filled(size int, before, element, after string) []byte {
	digits := 5 * strings.Count(element, "%") // allow 7 digits for each verb, which itself has 2 bytes
	return Counted((size-len(before)-len(after))/(len(element)+1+digits), before, element, after)
}
