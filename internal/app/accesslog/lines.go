package accesslog

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// maxLine is the number of bytes of a line that are read. A line about a request is shorter, because serve cuts the texts
// of clients in it.
const maxLine = 64 << 10

// maxWindow is the number of bytes that the decoder of zstd may remember. The highest usual level, 19, needs 8 MiB.
const maxWindow = 8 << 20

// lines reads the lines of a log.
type lines struct{ r *bufio.Reader }

func newLines(r io.Reader) lines { return lines{bufio.NewReaderSize(r, maxLine)} }

// next returns the next line, which is valid until the next call. whole is false if the line is longer than maxLine bytes,
// of which next then returns the first, and if the log ends without a line break. At the end, the error is [io.EOF].
func (l lines) next() (line []byte, whole bool, err error) {
	line, err = l.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		head := bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.r.ReadSlice('\n')
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return head, false, err
	case errors.Is(err, io.EOF) && len(line) > 0:
		return line, false, nil
	}
	return line, true, err
}

// formats are the compressions that begin with the given bytes.
var formats = []struct {
	magic string
	open  func(io.Reader) (io.Reader, func(), error)
}{
	{"\x1f\x8b", func(r io.Reader) (io.Reader, func(), error) {
		z, err := gzip.NewReader(r)
		return z, func() {}, err
	}},
	{"\x28\xb5\x2f\xfd", func(r io.Reader) (io.Reader, func(), error) {
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}},
	{"BZh", func(r io.Reader) (io.Reader, func(), error) { return bzip2.NewReader(r), func() {}, nil }},
	{"\xfd7zXZ\x00", func(io.Reader) (io.Reader, func(), error) {
		return nil, nil, hint.New("it is compressed with xz", "decompress it: xz --decompress --stdout FILE | ocibridge usage")
	}},
}

// decompress returns the content of a log. The caller must call end when it has read it.
func decompress(r io.Reader) (plain io.Reader, end func(), err error) {
	in := bufio.NewReaderSize(r, maxLine)
	for _, f := range formats {
		if start, _ := in.Peek(len(f.magic)); string(start) == f.magic {
			return f.open(in)
		}
	}
	return in, func() {}, nil
}
