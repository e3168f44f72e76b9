package gitfiles

import (
	"bufio"
	"fmt"
	"io"

	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

const (
	maxInMemory = 4 << 20  // bytes of an object that is held in memory
	maxTogether = 12 << 20 // bytes of all objects that are held in memory
	// copyWork is the work of one instruction of a delta, and diskWork is the work if its base is in a file.
	copyWork, diskWork = 16, 1024
)

// heap holds the objects that deltas are applied to: in memory, or in a temporary file if they are large. Objects in the
// file are freed in the reverse order of their allocation.
type heap struct {
	file     *fill.Temp
	end      int64
	inMemory int64
	temp     string // see [Options]
	meter    Meter  // may be nil
}

// content is the content of an object.
type content struct {
	size   int64
	memory []byte
	file   *fill.Temp // nil: it is in memory
	at     int64
}

// ReadAt implements [io.ReaderAt].
func (c content) ReadAt(p []byte, at int64) (int, error) {
	if at >= c.size {
		return 0, io.EOF
	}
	if c.file == nil {
		n := copy(p, c.memory[at:])
		if n < len(p) {
			return n, io.EOF
		}
		return n, nil
	}
	n, err := c.file.ReadAt(p[:min(int64(len(p)), c.size-at)], c.at+at)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// writer writes a content.
type writer struct {
	heap    *heap
	content content
	buffer  *bufio.Writer
	n       int64
	err     error
}

// allocate returns a writer of an object.
func (h *heap) allocate(size int64) *writer {
	w := &writer{heap: h, content: content{size: size}}
	if size <= maxInMemory && h.inMemory+size <= maxTogether {
		h.inMemory += size
		w.content.memory = make([]byte, 0, size)
		return w
	}
	if h.meter != nil {
		if w.err = h.meter.Unpacked(size); w.err != nil {
			return w
		}
	}
	if h.file == nil {
		if h.file, w.err = fill.NewTemp(h.temp, "ocibridge-*.objects"); w.err != nil {
			w.err = temporary(w.err)
			return w
		}
	}
	w.content.file, w.content.at = h.file, h.end
	h.end += size
	w.buffer = bufio.NewWriterSize(io.NewOffsetWriter(h.file, w.content.at), 64<<10)
	return w
}

// Write implements [io.Writer].
func (w *writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.n += int64(len(p)); w.n > w.content.size {
		return 0, io.ErrShortWrite
	}
	if w.buffer != nil {
		return w.buffer.Write(p)
	}
	w.content.memory = append(w.content.memory, p...)
	return len(p), nil
}

func (w *writer) done() (content, error) {
	if w.err == nil && w.buffer != nil {
		w.err = w.buffer.Flush()
	}
	if w.err == nil && w.n != w.content.size {
		w.err = io.ErrUnexpectedEOF
	}
	return w.content, w.err
}

func (h *heap) free(c content) {
	switch {
	case c.file == nil:
		h.inMemory -= c.size
	case c.at+c.size == h.end:
		h.end = c.at
	}
}

// reset frees all objects.
func (h *heap) reset() { h.end, h.inMemory = 0, 0 }

// temporary returns an error of a temporary file with a hint.
func temporary(err error) error {
	return hint.Wrap(fmt.Errorf("temporary file: %w", err), "TMPDIR names another folder for temporary files")
}

func (h *heap) close() {
	if h.file != nil {
		h.file.Close()
		h.file = nil
	}
}

// delta is a delta and its base.
type delta struct {
	in     *bufio.Reader
	base   content
	size   int64 // bytes of the result
	budget *budget
	buffer [4096]byte
}

// newDelta reads the header of a delta.
func newDelta(in io.Reader, base content, b *budget) (*delta, error) {
	d := &delta{in: bufio.NewReader(in), base: base, budget: b}
	from, err := d.number()
	if err != nil {
		return nil, err
	}
	if from != base.size {
		return nil, fmt.Errorf("%w: it is for an object of %d bytes, and not of %d", errDelta, from, base.size)
	}
	if d.size, err = d.number(); err != nil {
		return nil, err
	}
	return d, b.spend(d.size)
}

// number reads a size.
func (d *delta) number() (int64, error) {
	var n int64
	for shift := 0; shift < 56; shift += 7 {
		c, err := d.in.ReadByte()
		if err != nil {
			return 0, errDelta
		}
		if n |= int64(c&0x7f) << shift; c&0x80 == 0 {
			return n, nil
		}
	}
	return 0, errDelta
}

// write writes the result of the delta.
func (d *delta) write(to io.Writer) error {
	work := int64(copyWork)
	if d.base.file != nil {
		work = diskWork
	}
	for left := d.size; ; {
		c, err := d.in.ReadByte()
		switch {
		case err == io.EOF && left == 0:
			return nil
		case err == io.EOF || c == 0 && err == nil:
			return errDelta
		case err != nil:
			return err
		}
		if err := d.budget.spend(work); err != nil {
			return err
		}
		n := int64(c)
		if c&0x80 == 0 {
			if _, err = io.ReadFull(d.in, d.buffer[:n]); err == nil {
				_, err = to.Write(d.buffer[:n])
			}
		} else {
			n, err = d.copy(to, c)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errDelta, err)
		}
		if left -= n; left < 0 {
			return errDelta
		}
	}
}

// copy writes the part of the base that an instruction names, and returns its size.
func (d *delta) copy(to io.Writer, instruction byte) (int64, error) {
	at, n, err := d.span(instruction)
	switch {
	case err != nil:
		return 0, err
	case at+n > d.base.size:
		return 0, errDelta
	case d.base.file == nil:
		_, err = to.Write(d.base.memory[at : at+n])
	}
	for left := n; left > 0 && err == nil && d.base.file != nil; {
		part := d.buffer[:min(left, int64(len(d.buffer)))]
		if _, err = d.base.ReadAt(part, at+n-left); err == nil {
			_, err = to.Write(part)
		}
		left -= int64(len(part))
	}
	return n, err
}

// span reads the rest of an instruction that copies a part of the base.
func (d *delta) span(c byte) (at, n int64, err error) {
	for i := range 7 {
		if c&(1<<i) == 0 {
			continue
		}
		b, err := d.in.ReadByte()
		if err != nil {
			return 0, 0, errDelta
		}
		if i < 4 {
			at |= int64(b) << (8 * i)
		} else {
			n |= int64(b) << (8 * (i - 4))
		}
	}
	if n == 0 {
		n = 0x10000
	}
	return at, n, nil
}
