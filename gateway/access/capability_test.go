package access_test

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

const (
	firstKey  = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	secondKey = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func keys(t *testing.T, file string) func() *access.Keys {
	t.Helper()
	k, err := access.ParseKeys([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return func() *access.Keys { return k }
}

// ci returns the options of a control with one token that covers acme's providers. The control uses the
// keys in the given key file.
func ci(t *testing.T, file string) access.Options {
	return access.Options{
		Tokens: []access.Token{token("ci", "ci-token", "registry.acme.example/acme/*")},
		Keys:   keys(t, file),
	}
}

func TestCapabilityLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, ci(t, firstKey))
		link := d.link("ci-token")
		time.Sleep(access.Lifetime - time.Second)
		if w := d.get(link); w.Code != http.StatusOK {
			t.Errorf("at its end: %d %s", w.Code, w.Body)
		}
		time.Sleep(time.Second)
		if w := d.get(link); w.Code != http.StatusForbidden {
			t.Errorf("after its end: %d %s", w.Code, w.Body)
		}
	})
}

// TestRefusedLinksAreLogged shows that refused links cause a warning, but at most one a minute.
func TestRefusedLinksAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		o := ci(t, firstKey)
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		d, link := newDoor(t, o), newDoor(t, ci(t, secondKey)).link("ci-token")
		for range 3 {
			if w := d.get(link); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "a gateway with other keys made it") {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		time.Sleep(telemetry.WarningPause)
		d.get(link)
		if got := log.String(); strings.Count(got, "level=WARN") != 2 || !strings.Contains(got, "others=0") || !strings.Contains(got, "others=2") || !strings.Contains(got, "capability_key_file") {
			t.Error(got)
		}
	})
}

// TestCapabilityRepeats shows that all requests within a minute get the same capability, so that a
// client's cached document stays valid. The repetition does not extend the capability's lifetime.
func TestCapabilityRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, ci(t, firstKey))
		link := d.link("ci-token")
		time.Sleep(59 * time.Second)
		if again := d.link("ci-token"); again != link {
			t.Errorf("%s, and then %s", link, again)
		}
		time.Sleep(time.Second)
		if again := d.link("ci-token"); again == link {
			t.Error("the capability never changes")
		}
		time.Sleep(59 * time.Second)
		late := d.link("ci-token")
		time.Sleep(access.Lifetime - time.Minute)
		if w := d.get(late); w.Code != http.StatusOK {
			t.Errorf("at its end: %d %s", w.Code, w.Body)
		}
		time.Sleep(time.Second)
		if w := d.get(late); w.Code != http.StatusForbidden {
			t.Errorf("after its end: %d %s", w.Code, w.Body)
		}
	})
}

// TestForgedCapabilities shows that all requests with an invalid capability get the same response and do
// not reach the handler, even if they have a valid token.
func TestForgedCapabilities(t *testing.T) {
	d := newDoor(t, ci(t, firstKey))
	link := d.link("ci-token")
	at := strings.Index(link, "cap1.")
	end := at + strings.IndexByte(link[at:], '/')
	capability := link[at:end]
	with := func(c string) string { return link[:at] + c + link[end:] }
	raw, err := base64.RawURLEncoding.DecodeString(capability[len("cap1."):])
	if err != nil {
		t.Fatal(err)
	}
	forged := map[string]string{
		"empty":            with("cap1."),
		"short":            with(capability[:len(capability)-1]),
		"long":             with(capability + "A"),
		"padded":           with(capability + "="),
		"no base64":        with("cap1." + strings.Repeat("!", len(capability)-5)),
		"zeros":            with("cap1." + base64.RawURLEncoding.EncodeToString(make([]byte, len(raw)))),
		"other file":       strings.Replace(link, "widget.zip", "gadget.zip", 1),
		"other version":    strings.Replace(link, "1.0.0", "2.0.0", 1),
		"other provider":   strings.Replace(link, "acme/widget", "acme/gadget", 1),
		"not allowed":      strings.Replace(link, "acme/widget", "secret/widget", 1),
		"no provider":      strings.Replace(link, "acme/widget", "acme", 1),
		"document":         "/registry.acme.example/acme/widget/" + capability + "/doc",
		"other key's":      strings.Replace(newDoor(t, ci(t, secondKey)).link("ci-token"), "\n", "", 1),
		"random key's":     newDoor(t, access.Options{Tokens: ci(t, firstKey).Tokens}).link("ci-token"),
		"other token's":    newDoor(t, access.Options{Tokens: []access.Token{token("other", "other-token")}, Keys: keys(t, firstKey)}).link("other-token"),
		"replaced token's": newDoor(t, access.Options{Tokens: []access.Token{token("ci", "previous")}, Keys: keys(t, firstKey)}).link("previous"),
		"dots":             link[:at] + capability + "/x/../" + capability + link[end:],
	}
	for i := range raw {
		altered := append([]byte{}, raw...)
		altered[i] ^= 1
		forged[fmt.Sprintf("byte %d altered", i)] = with("cap1." + base64.RawURLEncoding.EncodeToString(altered))
	}
	// The last letter of the base64 text has unused bits. A capability is invalid if one of these bits is
	// set.
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		if other := capability[:len(capability)-1] + string(c); other != capability {
			forged["last letter "+string(c)] = with(other)
		}
	}
	reached := d.through
	want := ""
	for name, path := range forged {
		w := d.get(path, "Bearer ci-token") // the token does not help
		if w.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		got := fmt.Sprint(w.Header(), w.Body)
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("%s: another answer: %s", name, got)
		}
	}
	if d.through != reached {
		t.Error("some were let through")
	}
	if w := d.get(link); w.Code != http.StatusOK {
		t.Errorf("the true one: %d", w.Code)
	}
	d.content = digest.FromString("what was pushed over it")
	if w := d.get(link); w.Code != http.StatusForbidden || fmt.Sprint(w.Header(), w.Body) != want {
		t.Errorf("another digest: %d %s", w.Code, w.Body)
	}
}

func TestCapabilityEndsWithItsClient(t *testing.T) {
	link := newDoor(t, ci(t, firstKey)).link("ci-token")
	over := ci(t, firstKey)
	over.Tokens[0].Expires = time.Now().Add(-time.Second)
	barred := ci(t, firstKey)
	barred.Tokens[0].Selector.Exclude = selector("registry.acme.example/acme/widget").Include
	for name, tt := range map[string]struct {
		options access.Options
		status  int
	}{
		"same":     {ci(t, firstKey), 200},
		"more":     {access.Options{Tokens: append([]access.Token{token("first", "first")}, ci(t, firstKey).Tokens...), Keys: keys(t, firstKey)}, 200},
		"renamed":  {access.Options{Tokens: []access.Token{token("new", "ci-token")}, Keys: keys(t, firstKey)}, 403},
		"narrowed": {access.Options{Tokens: []access.Token{token("ci", "ci-token", "registry.acme.example/secret/*")}, Keys: keys(t, firstKey)}, 403},
		"barred":   {barred, 403},
		"replaced": {access.Options{Tokens: []access.Token{token("ci", "new-token")}, Keys: keys(t, firstKey)}, 403},
		"removed":  {access.Options{Tokens: []access.Token{token("other", "other-token")}, Keys: keys(t, firstKey)}, 403},
		"over":     {over, 403},
	} {
		if w := newDoor(t, tt.options).get(link); w.Code != tt.status {
			t.Errorf("%s: %d, want %d", name, w.Code, tt.status)
		}
	}
}

func TestKeyRotation(t *testing.T) {
	old, both, late := newDoor(t, ci(t, firstKey)), newDoor(t, ci(t, secondKey+"\n"+firstKey)), newDoor(t, ci(t, secondKey))
	for name, tt := range map[string]struct {
		from, to *door
		status   int
	}{
		"old one where it verifies": {old, both, 200},
		"new one":                   {both, both, 200},
		"new one, by the new key":   {both, late, 200},
		"new one, by the old key":   {both, old, 403},
		"old one, when it is gone":  {old, late, 403},
	} {
		if w := tt.to.get(tt.from.link("ci-token")); w.Code != tt.status {
			t.Errorf("%s: %d, want %d", name, w.Code, tt.status)
		}
	}
	// The test replaces the keys while the control is in use.
	o := ci(t, firstKey)
	current := o.Keys
	o.Keys = func() *access.Keys { return current() }
	d := newDoor(t, o)
	link := d.link("ci-token")
	current = keys(t, secondKey)
	if w := d.get(link); w.Code != http.StatusForbidden {
		t.Errorf("after its key: %d", w.Code)
	}
	if w := d.get(d.link("ci-token")); w.Code != http.StatusOK {
		t.Errorf("with the new key: %d", w.Code)
	}
}

func TestParseKeys(t *testing.T) {
	for file, want := range map[string]string{
		firstKey:                                "",
		"# made in May\n\n" + firstKey + "\r\n": "",
		firstKey + "\n" + secondKey + "aabb\n":  "",
		"":                                      "there is no key in it",
		"# none\n":                              "there is no key in it",
		firstKey[:62]:                           "line 1 is no key",
		firstKey + "\nmarked-secret\n":          "line 2 is no key",
		strings.Repeat(firstKey+"\n", 17):       "it has 17 keys, more than 16",
	} {
		k, err := access.ParseKeys([]byte(file))
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", file, err)
		case want != "" && (err == nil || err.Error() != want || hint.Of(err) == "" || strings.Contains(err.Error()+hint.Of(err), "marked")):
			t.Errorf("%q: %v", file, err)
		case want == "" && strings.Contains(fmt.Sprintf("%v %+v %#v %s", k, k, k, k), "aaaa"):
			t.Errorf("a key is printed: %v", k)
		}
	}
}
