package access_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/provider"
)

// guesses yields about n wrong tokens. Some of them are random, and others resemble the right token.
func guesses(n int, right string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := range n {
			sum := sha256.Sum256(fmt.Append(nil, i))
			guess := hex.EncodeToString(sum[:])
			switch i % 4 {
			case 1:
				guess = right[:i%len(right)]
			case 2:
				guess = right[:len(right)-1] + guess[:1]
			case 3:
				guess = right + guess[:i%8+1]
			}
			if guess != right && !yield(guess) {
				return
			}
		}
	}
}

// said records a response. It is cheaper than an httptest.ResponseRecorder.
type said struct {
	status int
	header http.Header
	body   []byte
}

func (s *said) Header() http.Header    { return s.header }
func (s *said) WriteHeader(status int) { s.status = status }

func (s *said) Write(p []byte) (int, error) {
	s.body = append(s.body, p...)
	return len(p), nil
}

func (s *said) same(other *said) bool {
	return s.status == other.status && bytes.Equal(s.body, other.body) && maps.EqualFunc(s.header, other.header, slices.Equal)
}

// TestGuessing shows that 250,000 wrong tokens get the same response as an expired token, and do not fill the
// memory. Afterwards the right token still works.
func TestGuessing(t *testing.T) {
	testkit.LeaveToAll(t)
	const right = "b1946ac92492d2347c6235b4d2611184"
	expired := token("old", "expired-token")
	expired.Expires = time.Now().Add(-time.Hour)
	tokens := []access.Token{expired, token("ci", right)}
	for i := range 20 {
		tokens = append(tokens, token(fmt.Sprint("other", i), fmt.Sprint("other", i)))
	}
	c := access.New(access.Options{Tokens: tokens, Keys: keys(t, firstKey)})
	widget := provider.MustParseAddress("registry.acme.example/acme/widget")
	h := c.Handler(access.Guard(c, func(*http.Request) (provider.Address, error) { return widget, nil }, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	r := httptest.NewRequest(http.MethodGet, doc, nil)
	get := func(token string) *said {
		r.Header["Authorization"] = []string{"Bearer " + token}
		w := &said{status: http.StatusOK, header: http.Header{}}
		h.ServeHTTP(w, r)
		return w
	}
	want := get("expired-token")
	if want.status != http.StatusUnauthorized {
		t.Fatal(want)
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, wrong := heap(), 0
	for guess := range guesses(250_000, right) {
		if got := get(guess); !got.same(want) {
			if wrong++; wrong < 4 {
				t.Errorf("%q is answered %+v, others %+v", guess, got, want)
			}
		}
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("the wrong tokens have left %d KiB in memory", (after-before)>>10)
	}
	if got := get(right); got.status != http.StatusOK {
		t.Errorf("the right one: %+v", got)
	}
}

// TestGuessesTakeTheSameWork shows that a wrong token costs as much work as the right token, and a wrong
// capability as much as the right capability. The test counts compared bytes, because measured times would
// prove nothing.
func TestGuessesTakeTheSameWork(t *testing.T) {
	const right = "b1946ac92492d2347c6235b4d2611184"
	tokens := []access.Token{token("ci", right)}
	for i := range 50 {
		tokens = append(tokens, token(fmt.Sprint("other", i), fmt.Sprint("other", i)))
	}
	d := newDoor(t, access.Options{Tokens: tokens, Keys: keys(t, firstKey+"\n"+secondKey)})
	link := d.link(right)
	at := strings.Index(link, "cap1.")
	end := at + strings.IndexByte(link[at:], '/')
	compared := access.CountComparisons(d.control)
	work := func(path, token string) int {
		*compared = 0
		d.get(path, "Bearer "+token)
		return *compared
	}
	const doc = "/registry.acme.example/acme/widget/doc"
	for _, guess := range []string{right, strings.Repeat("0", len(right)), right[:len(right)-1] + "0", right + "0", "other0", "other49", "x"} {
		if n := work(doc, guess); n != len(tokens)*sha256.Size {
			t.Errorf("%q is compared with %d bytes", guess, n)
		}
	}
	want := work(link, "")
	if want == 0 {
		t.Error("a capability is compared with nothing")
	}
	for what, capability := range map[string]string{
		"empty": "cap1.", "first letter": "cap1.B" + link[at+6:end], "last letters": link[at:end-4] + "AAAA", "in the middle": link[at:at+60] + "AAAA" + link[at+64:end], "too long": link[at:end] + "A",
	} {
		if n := work(link[:at]+capability+link[end:], ""); n != want {
			t.Errorf("a capability, %s: compared with %d bytes, the right one with %d", what, n, want)
		}
	}
}

// TestMadeUpTokensOfAnIssuer shows that all forged tokens that name an existing key get the same response. They
// do not cause a request to the issuer for each token.
func TestMadeUpTokensOfAnIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		d := newDoor(t, i.trusting(rule("registry.acme.example/acme/*", "repository_owner", "acme")))
		good := i.token(nil)
		if w := d.get(doc, "Bearer "+good); w.Code != http.StatusOK {
			t.Fatal(w.Code, w.Body)
		}
		parts := strings.Split(good, ".")
		want := ""
		for n := range 200 {
			sum := sha256.Sum256(fmt.Append(nil, n))
			w := d.get(doc, "Bearer "+parts[0]+"."+parts[1]+"."+base64.RawURLEncoding.EncodeToString(append(sum[:], sum[:]...)))
			got := fmt.Sprint(w.Code, w.Header(), w.Body)
			if want == "" {
				want = got
			}
			if w.Code != http.StatusUnauthorized || got != want {
				t.Fatalf("%s, others %s", got, want)
			}
		}
		if n := i.asked.Load(); n > 2 {
			t.Errorf("the issuer was asked %d times", n)
		}
	})
}
