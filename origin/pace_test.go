package origin_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
)

// dripping is a transport to an origin with a package of the given size. It sends the
// package in pieces, with a pause before each piece.
type dripping struct {
	inProcess
	size   int64
	hidden bool // the origin does not announce the size
	piece  int
	pause  time.Duration
	until  int64 // the number of bytes after which a response stalls; 0 means never
	cut    int64 // the number of bytes after which a response breaks off; 0 means never
	ranges bool

	asked int
}

func (d *dripping) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(req.URL.Path, ".zip") {
		return d.inProcess.RoundTrip(req)
	}
	d.asked++
	var from int64
	resp := &http.Response{StatusCode: http.StatusOK, Request: req, Header: http.Header{}, ContentLength: d.size}
	if d.hidden {
		resp.ContentLength = -1
	}
	if r := req.Header.Get("Range"); r != "" && d.ranges {
		fmt.Sscanf(r, "bytes=%d-", &from)
		resp.StatusCode = http.StatusPartialContent
		resp.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, d.size-1, d.size))
	}
	resp.Body = &drips{dripping: d, req: req, left: d.size - from}
	return resp, nil
}

type drips struct {
	*dripping
	req        *http.Request
	sent, left int64
}

func (b *drips) Read(p []byte) (int, error) {
	switch {
	case b.left == 0:
		return 0, io.EOF
	case b.cut > 0 && b.sent >= b.cut:
		return 0, io.ErrUnexpectedEOF
	case b.until > 0 && b.sent >= b.until:
		<-b.req.Context().Done()
		return 0, b.req.Context().Err()
	}
	if b.pause > 0 {
		select {
		case <-time.After(b.pause):
		case <-b.req.Context().Done():
			return 0, b.req.Context().Err()
		}
	}
	n := min(b.left, int64(b.piece), int64(len(p)))
	b.left, b.sent = b.left-n, b.sent+n
	return int(n), nil
}

func (b *drips) Close() error { return nil }

// TestDrippingDownload shows when a slow download fails, and that a faster one succeeds.
func TestDrippingDownload(t *testing.T) {
	rel := build(t, nil, "1.0.0")
	const tenth = 100 * time.Millisecond // 1,638.4 bytes at the lowest rate
	for name, tc := range map[string]struct {
		dripping
		takes time.Duration
		says  string // the error; "" means success
	}{
		"a byte in five seconds":        {dripping{size: 1 << 20, piece: 1, pause: 5 * time.Second}, time.Minute, "the origin sent 12 bytes in 1m0s: at least 16 KiB/s"},
		"not announced":                 {dripping{size: 1 << 20, hidden: true, piece: 1, pause: 5 * time.Second}, time.Minute, "at least 16 KiB/s"},
		"just too slow":                 {dripping{size: 3 << 20, piece: 1630, pause: tenth}, time.Minute, "at least 16 KiB/s"},
		"just fast enough":              {dripping{size: 1650 * 2000, piece: 1650, pause: tenth}, 200 * time.Second, ""},
		"just fast enough, and no size": {dripping{size: 1650 * 2000, hidden: true, piece: 1650, pause: tenth}, 200 * time.Second, ""},
		"silence after a megabyte":      {dripping{size: 3 << 20, piece: 1 << 20, until: 1 << 20}, time.Minute, "sent nothing for 1m0s"},
		"too small for the average":     {dripping{size: 1000, piece: 10, pause: time.Second}, time.Minute, "at least 16 KiB/s"},
		// Each response breaks off after a third of a MiB. A few responses together
		// count as progress, so the number of resumptions is not limited.
		"resumed, and too slow":        {dripping{size: 3 << 20, piece: 1500, pause: tenth, cut: 1500 * 220, ranges: true}, time.Minute, "at least 16 KiB/s"},
		"resumed, and slow, and moves": {dripping{size: 3 << 20, piece: 1700, pause: tenth, cut: 1700 * 220, ranges: true}, 187 * time.Second, ""},
		// Each response begins again with the first byte of the file, and is just fast
		// enough.
		"sent again and again": {dripping{size: 4 << 20, piece: 1650, pause: tenth, cut: 3 << 20}, 60*time.Second + 256*time.Second, "the origin took longer than 5m16s for 4194304 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tc.Handler = testorigin.New(testorigin.Options{}, rel)
				start := time.Now()
				err := readWidget(t, registryOver(&tc.dripping))
				if took := time.Since(start); took < tc.takes || took > tc.takes+10*time.Second {
					t.Errorf("it took %s, want %s", took, tc.takes)
				}
				if tc.says != "" {
					checkError(t, err, tc.says, "again")
				} else if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestWaitingForASlotIsNotSlow shows that an origin does not count as slow while a
// download waits for a slot of the host.
func TestWaitingForASlotIsNotSlow(t *testing.T) {
	rel := build(t, nil, "1.0.0")
	synctest.Test(t, func(t *testing.T) {
		client := registryOver(inProcess{testorigin.New(testorigin.Options{}, rel)})
		l, err := client.Versions(t.Context(), widget)
		if err != nil {
			t.Fatal(err)
		}
		r, err := client.Release(t.Context(), widget, l, v1, platforms("linux_amd64"))
		if err != nil {
			t.Fatal(err)
		}
		var others []io.Closer
		for range 16 {
			body, _, err := r.Packages[0].Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			others = append(others, body)
		}
		time.AfterFunc(time.Hour, func() { others[0].Close() })
		read(t, r.Packages[0])
		for _, o := range others {
			o.Close()
		}
	})
}
