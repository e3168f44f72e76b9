package origin_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/origin"
)

// breaking is a transport whose responses with packages break off. The n-th response
// breaks off after the number of bytes in cuts[n]. If the number is negative, the
// response ends without an error.
type breaking struct {
	inProcess
	cuts *[]int
}

func (b breaking) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.inProcess.RoundTrip(req)
	if err != nil || !strings.HasSuffix(req.URL.Path, ".zip") || len(*b.cuts) == 0 {
		return resp, err
	}
	n := (*b.cuts)[0]
	*b.cuts = (*b.cuts)[1:]
	cause := io.ErrUnexpectedEOF
	if n < 0 {
		n, cause = -n, io.EOF
	}
	resp.Body = &brokenBody{resp.Body, n, cause}
	return resp, nil
}

type brokenBody struct {
	io.ReadCloser
	left  int
	cause error
}

func (b *brokenBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, b.cause
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// TestDownloadIsResumed shows in which cases a download that breaks off is resumed, the
// position of each resumption, and in which cases the download fails.
func TestDownloadIsResumed(t *testing.T) {
	rel := build(t, nil, "1.0.0")
	pkg := rel.Package("linux", "amd64")
	for name, tc := range map[string]struct {
		cuts      []int
		header    func(http.Header, int) // changes the headers of the response to the n-th request for the package
		noRanges  bool
		ranges    []string // the requested ranges
		says      string
		wantsHint string
	}{
		"never":                     {ranges: []string{""}},
		"once":                      {cuts: []int{10}, ranges: []string{"", "bytes=10-"}},
		"without an error":          {cuts: []int{-10}, ranges: []string{"", "bytes=10-"}},
		"at its beginning":          {cuts: []int{0}, ranges: []string{"", "bytes=0-"}},
		"again and again":           {cuts: []int{10, 5, 1}, ranges: []string{"", "bytes=10-", "bytes=15-", "bytes=16-"}},
		"for ever":                  {cuts: make([]int, 100), ranges: []string{"", "bytes=0-", "bytes=0-", "bytes=0-", "bytes=0-", "bytes=0-"}, says: "unexpected EOF", wantsHint: "again"},
		"the same file":             {cuts: []int{10}, header: func(h http.Header, _ int) { h.Set("ETag", `"a"`) }, ranges: []string{"", "bytes=10-"}},
		"another file meanwhile":    {cuts: []int{10}, header: func(h http.Header, n int) { h.Set("ETag", fmt.Sprintf(`"%d"`, n)) }, ranges: []string{"", "bytes=10-"}, says: "changed meanwhile", wantsHint: "again"},
		"an origin without ranges":  {cuts: []int{10}, noRanges: true, ranges: []string{"", "bytes=10-"}},
		"an origin that then fails": {cuts: []int{10}, header: func(h http.Header, n int) { h.Set("Test-Status", fmt.Sprint([]int{0, 0, 404}[n])) }, ranges: []string{"", "bytes=10-"}, says: "unexpected EOF; resuming it: ", wantsHint: "again"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := testorigin.New(testorigin.Options{}, rel)
				var asked atomic.Int32
				server.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.HasSuffix(r.URL.Path, ".zip") {
						return false
					}
					n := int(asked.Add(1))
					if tc.header != nil {
						tc.header(w.Header(), n)
					}
					if w.Header().Get("Test-Status") == "404" {
						w.WriteHeader(http.StatusNotFound)
						return true
					}
					if tc.noRanges {
						r.Header.Del("Range")
					}
					return false
				})
				cuts := tc.cuts
				data, err := download(t, registryOver(breaking{inProcess{server}, &cuts}))
				if tc.says != "" {
					checkError(t, err, tc.says, tc.wantsHint)
				} else if err != nil || !bytes.Equal(data, pkg.Data) {
					t.Errorf("read %d of %d bytes, %v", len(data), len(pkg.Data), err)
				}
				var ranges []string
				for _, r := range server.Requests(recorder.PathSuffix(".zip")) {
					ranges = append(ranges, r.Range)
				}
				if fmt.Sprint(ranges) != fmt.Sprint(tc.ranges) {
					t.Errorf("requested ranges %q, want %q", ranges, tc.ranges)
				}
			})
		})
	}
}

func download(t *testing.T, client *origin.Registry) ([]byte, error) {
	l, err := client.Versions(t.Context(), widget)
	if err != nil {
		return nil, err
	}
	r, err := client.Release(t.Context(), widget, l, v1, platforms("linux_amd64"))
	if err != nil {
		return nil, err
	}
	body, _, err := r.Packages[0].Open(t.Context())
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

// TestBoundOfOneHost shows that no more than 16 downloads from one host run
// concurrently, and that the others wait.
func TestBoundOfOneHost(t *testing.T) {
	rel := build(t, nil, "1.0.0")
	synctest.Test(t, func(t *testing.T) {
		server := testorigin.New(testorigin.Options{}, rel)
		client := registryOver(inProcess{server})
		l, err := client.Versions(t.Context(), widget)
		if err != nil {
			t.Fatal(err)
		}
		r, err := client.Release(t.Context(), widget, l, v1, platforms("linux_amd64"))
		if err != nil {
			t.Fatal(err)
		}
		const downloads, bound = 20, 16
		closeOne := make(chan struct{})
		for range downloads {
			go func() {
				body, _, err := r.Packages[0].Open(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				<-closeOne
				body.Close()
			}()
		}
		for _, want := range []int{bound, bound + 1, bound + 2} {
			synctest.Wait()
			if n := server.Count(recorder.PathSuffix(".zip")); n != want {
				t.Errorf("%d downloads began, want %d", n, want)
			}
			closeOne <- struct{}{}
		}
		close(closeOne)
		synctest.Wait()
		if n := server.Count(recorder.PathSuffix(".zip")); n != downloads {
			t.Errorf("%d downloads began, want %d", n, downloads)
		}
	})
}

// TestDownloadFindsConnection shows that the download of a package reuses a connection
// that was opened for SHA256SUMS or its signature.
func TestDownloadFindsConnection(t *testing.T) {
	b := newBench(t)
	p := b.mustGet("linux_amd64").Packages[0]
	var opened, found atomic.Int32
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		if c.Reused {
			found.Add(1)
		} else {
			opened.Add(1)
		}
	}})
	body, _, err := p.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if opened.Load() != 0 || found.Load() != 1 {
		t.Errorf("%d connections were opened, %d found", opened.Load(), found.Load())
	}
}
