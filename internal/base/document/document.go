// Package document limits the memory and the processor time that the JSON documents of other parties take. It also joins
// JSON objects of our own.
//
// encoding/json can decode the three bytes "{}," to a struct of more than a hundred bytes. Therefore a limit on the size of
// a document does not limit the memory. This package counts the values of a document before it decodes the document, in
// one pass that allocates nothing. A document that exceeds a limit causes an error, and is never truncated.
//
// Documents from a network also share two budgets of the process: for their bytes, and for the decoded values.
package document

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"
)

// Limits are the limits of one document. All fields must be set.
type Limits struct {
	// Bytes is the maximum size of the document in bytes, after decompression.
	Bytes int64
	// Values is the maximum number of objects, arrays, strings, numbers and literals.
	Values int
	// Elements is the maximum number of values in any one array or object.
	Elements int
}

// maxDepth is the depth of nested arrays and objects at which a document is refused. The protocols' documents have six levels.
const maxDepth = 64

// ErrTooLarge means that a document exceeds one of its limits.
var ErrTooLarge = errors.New("the document is too large")

// tooLarge returns an error that wraps ErrTooLarge and names the limit.
func tooLarge(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrTooLarge, fmt.Sprintf(format, args...))
}

// errNotUTF8 means that a document is not valid UTF-8, which JSON requires (RFC 8259, section 8.1). encoding/json would
// replace each invalid byte with three bytes.
var errNotUTF8 = errors.New("the document is not UTF-8")

// Check counts the bytes and values of a document. If a limit is exceeded, the error wraps [ErrTooLarge]. A document that
// is not UTF-8 is an error, too. The syntax is not checked.
func (l Limits) Check(data []byte) error {
	_, err := l.count(data)
	return err
}

// count returns an upper bound for the number of values within the outermost value. It counts the first value of an array
// or object at the opening bracket, and each further value at the comma before it.
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

// maxErrorText is the maximum length of an error of encoding/json, in characters. Such an error quotes a number that is too
// large for its Go type, even if it has millions of digits.
const maxErrorText = 200

// unmarshal decodes a document that is within its limits, and truncates long errors.
func unmarshal(data []byte, out any) error {
	err := json.Unmarshal(data, out)
	if err != nil && utf8.RuneCountInString(err.Error()) > maxErrorText {
		return fmt.Errorf("%.*s (cut off)", maxErrorText, err)
	}
	return err
}

// Unmarshal decodes a document that is already in memory. If it returns the error of [Limits.Check], out is unchanged. It
// can also return an error of encoding/json, truncated if necessary.
func (l Limits) Unmarshal(data []byte, out any) error {
	if err := l.Check(data); err != nil {
		return err
	}
	return unmarshal(data, out)
}

// ReadAll reads r to its end. If r has more than limit bytes, the error wraps [ErrTooLarge].
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
	// readBudget is the maximum number of bytes of all open documents together. The first freeBytes of each document do
	// not count. A slow origin holds its share for a long time. Therefore a read does not wait for its share, but fails
	// if the budget is used up.
	readBudget = 256 << 20
	// freeBytes is the maximum size in bytes of a document's buffer that needs no share of readBudget. Most documents are
	// smaller, so they can be read even if the budget is used up.
	freeBytes = 256 << 10
	firstRead = 32 << 10 // the initial size of a document's buffer
	// decodeBudget is the maximum memory in bytes for the values of all decoded documents together. A document is decoded
	// in well under a second, so other documents wait for their share.
	decodeBudget = 64 << 20
	// bytesPerValue is the maximum memory in bytes of a value of a [Document], including the growth of slices.
	bytesPerValue = 96
)

var (
	reading  = semaphore.NewWeighted(readBudget)
	decoding = semaphore.NewWeighted(decodeBudget)
)

// ErrBusy means that the budget for reading documents is used up. A retry after [RetryAfter] may succeed.
var ErrBusy = errors.New("too many documents of other parties are being read at once")

// RetryAfter is the pause before the retry of a read that failed with [ErrBusy].
const RetryAfter = 10 * time.Second

// Document is a document in memory. It holds its shares of the two budgets until it is closed.
type Document struct {
	limits        Limits
	data          []byte
	read, decoded int64 // this document's shares of readBudget and decodeBudget
}

// Read reads a whole document. The error wraps [ErrTooLarge] if the document has too many bytes, or is [ErrBusy] or the
// error of r. The caller must close the document.
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

// grow doubles the buffer, to at most one byte more than the limit. A document that fills this byte exceeds the limit.
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

// Decode waits for a share of the decode budget, and then decodes the document into out. It returns the error of
// [Limits.Check], of ctx, or of encoding/json. The caller must copy the parts of out that it needs, drop all references
// to out, and then close the document.
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

// Close releases the document's shares of the two budgets. It may be called more than once.
func (d *Document) Close() {
	reading.Release(d.read)
	decoding.Release(d.decoded)
	d.data, d.read, d.decoded = nil, 0, 0
}

// Object is encoded as a JSON object with the members of all its parts. The parts are JSON objects, too.
type Object []any

// MarshalJSON implements [json.Marshaler].
func (o Object) MarshalJSON() ([]byte, error) { return Join(o...) }

// Join encodes the parts, which are JSON objects, as one object with the members of all. It escapes nothing for HTML.
func Join(parts ...any) ([]byte, error) {
	out := []byte("{")
	for _, part := range parts {
		var object bytes.Buffer
		enc := json.NewEncoder(&object)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(part); err != nil {
			return nil, err
		}
		members := bytes.Trim(object.Bytes(), "\n")
		members = members[1 : len(members)-1]
		if len(members) > 0 && len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, members...)
	}
	return append(out, '}'), nil
}
