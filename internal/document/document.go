// Package document limits the memory and the processor time that the JSON documents of other
// parties take.
//
// encoding/json turns the three bytes "{}," into a struct of a hundred bytes and more.
// Therefore a limit on bytes does not limit memory. This package counts the values of a
// document before anything decodes them, in one pass that allocates nothing. A document that
// exceeds a limit is an error; it is never truncated.
//
// Documents from a network also share two budgets of the process: one for the bytes that are
// read, and one for the values that these bytes decode to.
package document

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"
)

// Limits are the limits of one document. All of them must be set.
type Limits struct {
	// Bytes is the maximum size of the document after decompression.
	Bytes int64
	// Values is the maximum number of objects, arrays, strings, numbers and literals.
	Values int
	// Elements is the maximum number of values in any one array or object.
	Elements int
}

// maxDepth limits the nesting of arrays and objects. The protocols' documents nest six
// levels deep.
const maxDepth = 64

// ErrTooLarge means that a document exceeds one of its limits.
var ErrTooLarge = errors.New("the document is too large")

// tooLarge returns an ErrTooLarge that names the limit.
func tooLarge(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrTooLarge, fmt.Sprintf(format, args...))
}

// errNotUTF8 means that a document is not valid UTF-8, which JSON requires (RFC 8259,
// section 8.1). encoding/json would replace each invalid byte with three bytes.
var errNotUTF8 = errors.New("the document is not UTF-8")

// Check counts the bytes and values of a document. Its errors wrap [ErrTooLarge], except for a document that is
// not UTF-8. It does not check the syntax, so it may accept invalid JSON.
func (l Limits) Check(data []byte) error {
	_, err := l.count(data)
	return err
}

// count returns an upper bound for the number of values. The first value of an array or
// object is counted at the opening bracket, and each further value at the comma before it.
func (l Limits) count(data []byte) (values int, err error) {
	if int64(len(data)) > l.Bytes {
		return 0, tooLarge("it has more than %d bytes", l.Bytes)
	}
	if !utf8.Valid(data) {
		return 0, errNotUTF8
	}
	var elements [maxDepth]int
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case quoted && c == '\\':
			i++ // an escaped quote does not end the string
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth == maxDepth {
				return 0, tooLarge("its values nest more than %d deep", maxDepth-1)
			}
			values++
			elements[depth] = 1
		case c == '}' || c == ']':
			depth = max(0, depth-1) // the syntax is checked later
		case c == ',':
			values++
			if elements[depth]++; elements[depth] > l.Elements {
				return 0, tooLarge("an array or object in it has more than %d elements", l.Elements)
			}
		}
		if values > l.Values {
			return 0, tooLarge("it has more than %d values", l.Values)
		}
	}
	return values, nil
}

// maxErrorText is the maximum length of an error of encoding/json, in characters. Such an
// error repeats a number that does not fit, however long the number is.
const maxErrorText = 200

// unmarshal decodes a document that is within its limits.
func unmarshal(data []byte, out any) error {
	err := json.Unmarshal(data, out)
	if err != nil && utf8.RuneCountInString(err.Error()) > maxErrorText {
		return fmt.Errorf("%.*s (cut off)", maxErrorText, err)
	}
	return err
}

// Unmarshal decodes a document that is already in memory. It returns [ErrTooLarge] before it decodes anything,
// or the error of encoding/json, shortened if necessary.
func (l Limits) Unmarshal(data []byte, out any) error {
	if err := l.Check(data); err != nil {
		return err
	}
	return unmarshal(data, out)
}

// ReadAll reads r to its end. It returns [ErrTooLarge] if there are more than limit bytes.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, tooLarge("it has more than %d bytes", limit)
	}
	return data, nil
}

const (
	// readBudget is the maximum number of bytes of all documents that are being read,
	// without the first freeBytes of each. A slow origin holds its share for a long time, so
	// a document that finds no room fails instead of waiting.
	readBudget = 256 << 20
	// freeBytes is the size of a document that needs no share of the budget. Most documents
	// are smaller, so an exhausted budget does not affect them.
	freeBytes = 256 << 10
	// firstRead is the initial size of a document's buffer.
	firstRead = 32 << 10
	// decodeBudget is the maximum memory in bytes for documents that are being decoded.
	// Decoding takes well under a second, so a document waits for room.
	decodeBudget = 64 << 20
	// bytesPerValue is the maximum memory in bytes of a decoded value in the documents that
	// are read by [Read]. The growth of slices is included.
	bytesPerValue = 96
)

var (
	reading  = semaphore.NewWeighted(readBudget)
	decoding = semaphore.NewWeighted(decodeBudget)
)

// ErrBusy means that too many documents are being read at this moment. A retry after
// [RetryAfter] may succeed.
var ErrBusy = errors.New("too many documents of other parties are being read at once")

// RetryAfter is the pause before the retry of a read that failed with [ErrBusy].
const RetryAfter = 10 * time.Second

// Document is a document in memory, which holds its share of the budgets until it is closed.
type Document struct {
	limits  Limits
	data    []byte
	read    int64 // this document's share of readBudget
	decoded int64 // this document's share of decodeBudget
}

// Read reads a whole document. It fails with [ErrTooLarge], with [ErrBusy], or with
// the error of r.
func Read(r io.Reader, l Limits) (*Document, error) {
	d := &Document{limits: l}
	for {
		if len(d.data) == cap(d.data) {
			if err := d.grow(); err != nil {
				d.Close()
				return nil, err
			}
		}
		n, err := r.Read(d.data[len(d.data):cap(d.data)])
		d.data = d.data[:len(d.data)+n]
		switch {
		case int64(len(d.data)) > l.Bytes:
			d.Close()
			return nil, tooLarge("it has more than %d bytes", l.Bytes)
		case err == io.EOF:
			return d, nil
		case err != nil:
			d.Close()
			return nil, err
		}
	}
}

// grow doubles the buffer, up to one byte beyond the limit. That byte shows whether the
// document exceeds the limit.
func (d *Document) grow() error {
	size := min(max(firstRead, 2*int64(cap(d.data))), d.limits.Bytes+1)
	charged := max(0, size-freeBytes)
	if !reading.TryAcquire(charged - d.read) {
		return ErrBusy
	}
	d.read = charged
	d.data = append(make([]byte, 0, size), d.data...)
	return nil
}

// Decode decodes the document into out, once its share of the budget is free. It returns
// [ErrTooLarge], the error of ctx, or the error of Unmarshal. The caller copies the parts of
// out that it needs, drops the rest, and then closes the document.
func (d *Document) Decode(ctx context.Context, out any) error {
	values, err := d.limits.count(d.data)
	if err != nil {
		return err
	}
	cost := min(int64(values)*bytesPerValue+int64(len(d.data)), decodeBudget)
	if err := decoding.Acquire(ctx, cost); err != nil {
		return err
	}
	d.decoded += cost
	return unmarshal(d.data, out)
}

// Close returns the document's share of the budgets. It may be called twice.
func (d *Document) Close() {
	reading.Release(d.read)
	decoding.Release(d.decoded)
	d.data, d.read, d.decoded = nil, 0, 0
}
