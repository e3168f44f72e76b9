package fill

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// memory is a storage in memory that counts how often it is closed. Writes beyond limit
// bytes fail.
type memory struct {
	mu     sync.Mutex
	data   []byte
	limit  int // 0: no limit
	closed int
}

func (m *memory) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limit > 0 && len(m.data)+len(p) > m.limit {
		return 0, syscall.ENOSPC
	}
	m.data = append(m.data, p...)
	return len(p), nil
}

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed > 0 {
		return 0, os.ErrClosed
	}
	return bytes.NewReader(m.data).ReadAt(p, off)
}

func (m *memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed++
	return nil
}

// closings returns how often the storage was closed.
func (m *memory) closings() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// random returns size pseudo-random bytes. Calls with the same size return the same bytes.
func random(size int) []byte {
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(size)}).Read(data)
	return data
}

func open(t *testing.T, f *File) *Reader {
	t.Helper()
	r, ok := f.Open(t.Context())
	if !ok {
		t.Fatal("the file cannot be opened")
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func write(t *testing.T, f *File, p []byte) {
	t.Helper()
	if n, err := f.Write(p); n != len(p) || err != nil {
		t.Fatalf("wrote %d of %d bytes: %v", n, len(p), err)
	}
}

// TestManyReaders shows that readers get the bytes in order while the writer writes, even if
// other readers leave. They get the last byte only after the content is verified.
func TestManyReaders(t *testing.T) {
	data := random(1<<20 + 3)
	temp, err := NewTemp(t.TempDir(), "*.zip")
	if err != nil {
		t.Fatal(err)
	}
	var verified atomic.Bool
	closed := make(chan struct{})
	f := New(Options{Closed: func() { close(closed) }})
	var all sync.WaitGroup
	for i := range 40 {
		r := open(t, f)
		all.Go(func() {
			defer r.Close()
			if i%4 == 3 { // this reader leaves in the middle
				io.CopyN(io.Discard, r, int64(i)*10_000)
				return
			}
			got := make([]byte, len(data)-1)
			if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, data[:len(data)-1]) {
				t.Errorf("reader %d: %v", i, err)
			}
			n, err := r.Read(make([]byte, 10))
			if n != 1 || err != nil || !verified.Load() {
				t.Errorf("reader %d: the last %d bytes, %v; verified is %v", i, n, err, verified.Load())
			}
			if n, err := r.Read(make([]byte, 10)); n != 0 || err != io.EOF {
				t.Errorf("reader %d: %d bytes after the end, %v", i, n, err)
			}
		})
	}
	f.Begin(temp, int64(len(data)))
	if err := f.Fill(iotest.HalfReader(bytes.NewReader(data))); err != nil {
		t.Fatal(err)
	}
	verified.Store(true)
	f.Finish(nil)
	f.Close()
	all.Wait()
	<-closed
	if _, err := temp.Write(nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the storage is open: %v", err)
	}
}

// TestLastByteWaits shows that a reader gets each byte once the next byte is written. It
// gets the last byte once the content is verified, whether or not the size was announced.
func TestLastByteWaits(t *testing.T) {
	for name, size := range map[string]int64{"announced": 10, "not announced": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := New(Options{})
				defer f.Close()
				r, ok := f.Open(t.Context())
				if !ok {
					t.Fatal("no reader")
				}
				defer r.Close()
				var got, at atomic.Int64
				go func() {
					for {
						n, err := r.Read(make([]byte, 100))
						if got.Add(int64(n)); err != nil {
							return
						}
					}
				}()
				go func() {
					n, _ := r.ReadAt(make([]byte, 10), 0)
					at.Store(int64(n))
				}()
				want := func(n, all int64) {
					t.Helper()
					synctest.Wait()
					if got.Load() != n || at.Load() != all {
						t.Errorf("%d and %d bytes are read, want %d and %d", got.Load(), at.Load(), n, all)
					}
				}
				want(0, 0)
				f.Begin(&memory{}, size)
				want(0, 0)
				write(t, f, random(1))
				want(0, 0)
				write(t, f, random(4))
				want(4, 0)
				write(t, f, random(5))
				want(9, 0)
				f.Finish(nil)
				want(10, 10)
			})
		})
	}
}

// TestWaits shows that each wait of a reader ends when the awaited event happens, when the
// writer fails, or when the reader's context is cancelled.
func TestWaits(t *testing.T) {
	failure := errors.New("the source is gone")
	for name, tc := range map[string]struct {
		wait  func(*Reader) error
		ready func(*File) // makes the wait succeed
	}{
		"begun":    {func(r *Reader) error { return r.file.Begun(r.ctx) }, func(f *File) { f.Begin(&memory{}, -1) }},
		"size":     {func(r *Reader) error { _, err := r.Seek(0, io.SeekEnd); return err }, func(f *File) { f.Begin(&memory{}, 5) }},
		"read":     {func(r *Reader) error { _, err := r.Read(make([]byte, 5)); return err }, func(f *File) { f.Begin(&memory{}, 5); f.Write(make([]byte, 2)) }},
		"read at":  {func(r *Reader) error { _, err := r.ReadAt(make([]byte, 2), 1); return err }, func(f *File) { f.Begin(&memory{}, 5); f.Write(make([]byte, 4)) }},
		"verified": {func(r *Reader) error { return r.file.Verified(r.ctx) }, func(f *File) { f.Load(&memory{}, 5) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				check := func(what string, then func(f *File, leave func()), want error) {
					t.Helper()
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					f := New(Options{})
					defer f.Close()
					r, _ := f.Open(ctx)
					defer r.Close()
					result := make(chan error, 1)
					go func() { result <- tc.wait(r) }()
					synctest.Wait()
					select {
					case err := <-result:
						t.Fatalf("%s: the reader did not wait: %v", what, err)
					default:
					}
					then(f, leave)
					if err := <-result; !errors.Is(err, want) {
						t.Errorf("%s: %v, want %v", what, err, want)
					}
				}
				check("success", func(f *File, _ func()) { tc.ready(f) }, nil)
				check("failure", func(f *File, _ func()) { f.Finish(failure) }, failure)
				check("no result", func(f *File, _ func()) { f.Finish(nil) }, errUnfinished)
				check("cancelled", func(_ *File, leave func()) { leave() }, context.Canceled)
			})
		})
	}
}

// TestFailedFile shows that, after the writer has failed, a reader gets the writer's error,
// and none of the bytes that were written before. The file closes without lingering.
func TestFailedFile(t *testing.T) {
	storage, failure := &memory{}, errors.New("another digest")
	f := New(Options{Linger: time.Hour})
	r := open(t, f)
	f.Begin(storage, 10)
	write(t, f, random(10))
	f.Finish(failure)
	f.Finish(nil)
	if n, err := r.Read(make([]byte, 10)); n != 0 || err != failure {
		t.Errorf("%d bytes, %v", n, err)
	}
	if _, ok := f.Open(t.Context()); ok {
		t.Error("a failed file can be opened")
	}
	if n := f.Content().Size(); n != 10 {
		t.Errorf("the content has %d bytes", n)
	}
	f.Close()
	if storage.closed != 0 {
		t.Error("the storage was closed while the file had a reader")
	}
	r.Close()
	r.Close()
	if storage.closed != 1 {
		t.Errorf("the storage was closed %d times, though a failed file does not linger", storage.closed)
	}
}

// TestLastUserCloses shows that the storage is closed after the last user has left, even if
// a reader is closed twice. A verified file lingers until it is retired.
func TestLastUserCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := &memory{}
		f := New(Options{Linger: time.Hour})
		f.Load(storage, 0)
		first, second := open(t, f), open(t, f)
		f.Close()
		first.Close()
		first.Close()
		if s := f.State(); s.Users != 1 || storage.closings() != 0 {
			t.Errorf("%+v, closed %d times, while the file has a reader", s, storage.closings())
		}
		second.Close()
		if storage.closings() != 0 {
			t.Error("the verified file does not linger")
		}
		f.Retire()
		if storage.closings() != 1 {
			t.Errorf("the retired file was closed %d times", storage.closings())
		}
	})
}

// TestReaderComesAsTimeEnds shows that, if a reader opens a file just as the Linger timer
// fires, the file stays open.
func TestReaderComesAsTimeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := &memory{}
		f := New(Options{Linger: linger})
		f.Load(storage, 0)
		f.Close()
		f.mu.Lock()
		time.Sleep(linger)
		r := f.openLocked(t.Context())
		f.mu.Unlock()
		synctest.Wait()
		if storage.closings() != 0 {
			t.Error("the storage was closed while the file had a reader again")
		}
		r.Close()
		time.Sleep(linger)
		synctest.Wait()
		if storage.closings() != 1 {
			t.Errorf("the storage was closed %d times", storage.closings())
		}
	})
}

// TestSizes shows that a file fails if its source has more or fewer bytes than announced. If
// no size was announced, a file fails if its source has more bytes than the limit.
func TestSizes(t *testing.T) {
	tooLong := errors.New("too long")
	for name, tc := range map[string]struct {
		size   int64
		limit  int64
		source int
		want   error
	}{
		"as announced":            {10, 0, 10, nil},
		"nothing, as announced":   {0, 0, 0, nil},
		"one byte more":           {10, 0, 11, tooLong},
		"one byte less":           {10, 0, 9, io.ErrUnexpectedEOF},
		"nothing instead":         {10, 0, 0, io.ErrUnexpectedEOF},
		"something, not nothing":  {0, 0, 1, tooLong},
		"announced, above limit":  {10, 5, 10, nil},
		"not announced":           {-1, 0, 10, nil},
		"not announced, at limit": {-1, 10, 10, nil},
		"not announced, above":    {-1, 10, 11, tooLong},
		"not announced, endless":  {-1, 10, 1 << 20, tooLong},
		"not announced, nothing":  {-1, 10, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			storage := &memory{}
			f := New(Options{Limit: tc.limit})
			r := open(t, f)
			f.Begin(storage, tc.size)
			err := f.Fill(bytes.NewReader(random(tc.source)))
			var long *TooLongError
			if errors.As(err, &long) && long.Limit == max(tc.size, tc.limit) {
				err = tooLong
			}
			if err != tc.want {
				t.Fatalf("error %v", err)
			}
			if most := max(tc.size, tc.limit); most > 0 && int64(len(storage.data)) > most {
				t.Errorf("%d bytes were written", len(storage.data))
			}
			f.Finish(err)
			f.Close()
			if data, err := io.ReadAll(r); err != tc.want || err == nil && !bytes.Equal(data, random(tc.source)) {
				t.Errorf("read %d bytes, %v", len(data), err)
			}
			if size, err := f.Size(t.Context()); err == nil && size != int64(tc.source) {
				t.Errorf("%d bytes long", size)
			}
		})
	}
}

// TestStorageErrors shows that errors of the storage are [StorageError]s, and that errors of
// the source are not.
func TestStorageErrors(t *testing.T) {
	var storage *StorageError
	full := New(Options{})
	defer full.Close()
	full.Begin(&memory{limit: 5}, 10)
	if err := full.Fill(bytes.NewReader(random(10))); !errors.As(err, &storage) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: %v", err)
	}
	broken := New(Options{})
	defer broken.Close()
	broken.Begin(&memory{}, 10)
	if err := broken.Fill(iotest.ErrReader(syscall.EIO)); errors.As(err, &storage) || err != syscall.EIO {
		t.Errorf("a source that breaks: %v", err)
	}
	gone := New(Options{})
	defer gone.Close()
	gone.Load(&memory{closed: 1}, 10)
	if n, err := open(t, gone).Read(make([]byte, 5)); n != 0 || !errors.As(err, &storage) {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

// TestSeek checks the seeks that net/http uses to serve ranges, and reads at the end of a
// file.
func TestSeek(t *testing.T) {
	f := New(Options{})
	defer f.Close()
	f.Load(&memory{data: random(10)}, 10)
	r := open(t, f)
	for _, tc := range []struct {
		offset int64
		whence int
		want   int64 // -1: an error
	}{{0, io.SeekEnd, 10}, {3, io.SeekStart, 3}, {2, io.SeekCurrent, 5}, {-6, io.SeekCurrent, -1}, {0, io.SeekCurrent, 5}, {-1, io.SeekEnd, 9}, {-1, io.SeekStart, -1}} {
		if at, err := r.Seek(tc.offset, tc.whence); (err != nil) != (tc.want < 0) || err == nil && at != tc.want {
			t.Errorf("%+v: %d, %v", tc, at, err)
		}
	}
	if data, err := io.ReadAll(r); err != nil || !bytes.Equal(data, random(10)[9:]) {
		t.Errorf("read %d bytes, %v", len(data), err)
	}
	if n, err := r.ReadAt(make([]byte, 5), 8); n != 2 || err != io.EOF {
		t.Errorf("read %d bytes at the end, %v", n, err)
	}
}

// TestTemp shows that closing a temporary file leaves nothing in its folder, even if the
// file has a name because the system requires one.
func TestTemp(t *testing.T) {
	dir := t.TempDir()
	temp, err := NewTemp(dir, "some-*.zip")
	if err != nil {
		t.Fatal(err)
	}
	named, err := os.CreateTemp(dir, "some-*.zip")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*Temp{temp, {named, named.Name()}} {
		if _, err := f.Write(random(5)); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
	if _, err := NewTemp(dir+"/nowhere", "*"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a folder that does not exist: %v", err)
	}
}
