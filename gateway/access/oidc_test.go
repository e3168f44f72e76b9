package access_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/ocibridge/ocibridge/gateway/access"
)

const issuerURL = "https://issuer.example/ci"

// issuer is a fake OpenID Connect issuer. It is also the http.RoundTripper that answers requests to the
// issuer.
type issuer struct {
	t         *testing.T
	key       *ecdsa.PrivateKey
	id        string        // the key's ID
	name      string        // the issuer's name in its discovery document
	keysAt    string        // the URL of its keys
	down      bool          // whether the issuer refuses connections
	silent    chan struct{} // if not nil, the issuer answers only after the channel is closed
	discovery string        // if not "", the issuer's discovery document
	keySet    string        // if not "", the issuer's key set
	oversized bool
	plain     bool         // whether the issuer received a plain HTTP request
	asked     atomic.Int32 // the number of requests for the discovery document
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{t: t, name: issuerURL, keysAt: issuerURL + "/keys"}
	i.rotate("first")
	return i
}

// rotate makes the issuer sign with a new key.
func (i *issuer) rotate(id string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.key, i.id = key, id
}

func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	if i.silent != nil {
		select {
		case <-i.silent:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if i.down {
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.String() {
	case issuerURL + "/.well-known/openid-configuration":
		i.asked.Add(1)
		if i.discovery != "" {
			io.WriteString(w, i.discovery)
			break
		}
		json.NewEncoder(w).Encode(map[string]any{"issuer": i.name, "jwks_uri": i.keysAt})
	case issuerURL + "/keys":
		if i.oversized {
			w.Write(bytes.Repeat([]byte(" "), 2<<20))
		}
		if i.keySet != "" {
			io.WriteString(w, i.keySet)
			break
		}
		// The key set also has keys that cannot verify signatures, and a key of an unknown type.
		public := jose.JSONWebKey{Key: i.key.Public(), KeyID: i.id, Use: "sig"}
		encrypts := jose.JSONWebKey{Key: i.key.Public(), KeyID: "encrypts", Use: "enc"}
		shared := jose.JSONWebKey{Key: []byte("marked-shared-secret-of-32-bytes"), KeyID: "shared"}
		json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{"kty": "new"}, shared, encrypts, public}})
	case issuerURL + "/away":
		http.Redirect(w, r, "http://issuer.example/ci/keys", http.StatusFound)
	case issuerURL + "/gone":
		w.WriteHeader(http.StatusGone)
	default:
		i.plain = i.plain || r.URL.Scheme == "http"
		w.WriteHeader(http.StatusNotFound)
	}
	return w.Result(), nil
}

// claims returns valid claims that expire in five minutes, with the given changes.
func claims(changes map[string]any) map[string]any {
	now := time.Now()
	out := map[string]any{
		"iss": issuerURL, "aud": "gateway", "sub": "repo:acme/app:ref:refs/heads/main", "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(),
		"repository_owner": "acme", "groups": []string{"dev", "ops"}, "protected": true, "owner_id": 12,
	}
	for name, value := range changes {
		if out[name] = value; value == nil {
			delete(out, name)
		}
	}
	return out
}

func (i *issuer) token(changes map[string]any) string {
	return sign(i.t, jose.ES256, i.key, i.id, claims(changes))
}

func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	out, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// trusting returns the options of a control that trusts the issuer and has the given rules for its
// tokens.
func (i *issuer) trusting(rules ...access.Rule) access.Options {
	return access.Options{
		Issuers: []access.Issuer{{Name: "ci", URL: issuerURL, Audience: "gateway", Rules: rules}},
		Tokens:  []access.Token{token("static", "static-token")},
		Client:  &http.Client{Transport: i},
	}
}

func rule(pattern string, claims ...string) access.Rule {
	r := access.Rule{Claims: map[string]string{}, Selector: selector(pattern)}
	for n := 0; n < len(claims); n += 2 {
		r.Claims[claims[n]] = claims[n+1]
	}
	return r
}

const doc = "/registry.acme.example/acme/widget/doc"

func TestIssuersTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		d := newDoor(t, i.trusting(rule("registry.acme.example/acme/*", "repository_owner", "acme")))
		other := newIssuer(t)
		good := i.token(nil)
		parts := strings.Split(good, ".")
		none := "eyJhbGciOiJub25lIn0." + parts[1] + "."
		for name, tt := range map[string]struct {
			token  string
			status int
		}{
			"good":                    {good, 200},
			"one audience of several": {i.token(map[string]any{"aud": []string{"x", "gateway"}}), 200},
			"no rule applies":         {i.token(map[string]any{"repository_owner": "mallory"}), 403},
			"claim is missing":        {i.token(map[string]any{"repository_owner": nil}), 403},
			"other audience":          {i.token(map[string]any{"aud": "elsewhere"}), 401},
			"no audience":             {i.token(map[string]any{"aud": nil}), 401},
			"other issuer":            {i.token(map[string]any{"iss": "https://issuer.example/other"}), 401},
			"expired":                 {i.token(map[string]any{"exp": time.Now().Add(-time.Second).Unix()}), 401},
			"never expires":           {i.token(map[string]any{"exp": nil}), 401},
			"not yet":                 {i.token(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), 401},
			"other key, same name":    {sign(t, jose.ES256, other.key, i.id, claims(nil)), 401},
			"no algorithm":            {none, 401},
			"no signature":            {parts[0] + "." + parts[1] + ".", 401},
			"other payload":           {parts[0] + "." + strings.Split(i.token(map[string]any{"sub": "x"}), ".")[1] + "." + parts[2], 401},
			"by a shared secret":      {sign(t, jose.HS256, []byte("marked-shared-secret-of-32-bytes"), "shared", claims(nil)), 401},
			"by an encryption key":    {sign(t, jose.ES256, i.key, "encrypts", claims(nil)), 401},
			"no JSON":                 {parts[0] + ".AAAA." + parts[2], 401},
			"distributed claims":      {i.token(map[string]any{"_claim_names": map[string]string{"a": "b"}}), 401},
		} {
			if w := d.get(doc, "Bearer "+tt.token); w.Code != tt.status {
				t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, tt.status)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if w := d.get("/registry.acme.example/secret/widget/doc", "Bearer "+good); w.Code != http.StatusForbidden {
			t.Errorf("another provider: %d", w.Code)
		}
		d.get(doc, "Bearer "+good)
		if got := fmt.Sprint(d.attrs); !strings.Contains(got, "subject=oidc ci repo:acme/app:ref:refs/heads/main") {
			t.Errorf("the log is told %v", got)
		}
	})
}

func TestClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		for _, tt := range []struct {
			rules  []access.Rule
			status int
		}{
			{[]access.Rule{rule("*/*/*", "groups", "ops")}, 200},
			{[]access.Rule{rule("*/*/*", "groups", "op")}, 403},
			{[]access.Rule{rule("*/*/*", "groups", `["dev","ops"]`)}, 403},
			{[]access.Rule{rule("*/*/*", "protected", "true", "owner_id", "12")}, 200},
			{[]access.Rule{rule("*/*/*", "protected", "false")}, 403},
			{[]access.Rule{rule("*/*/*", "repository_owner", "acme", "groups", "none")}, 403},
			{[]access.Rule{rule("*/*/*", "repository_owner", "*")}, 403},
			{[]access.Rule{rule("*/*/*", "absent", "")}, 403},
			{[]access.Rule{rule("*/*/*")}, 403},
			{[]access.Rule{rule("registry.acme.example/secret/*", "repository_owner", "acme"), rule("registry.acme.example/acme/*", "groups", "dev")}, 200},
		} {
			d := newDoor(t, i.trusting(tt.rules...))
			if w := d.get(doc, "Bearer "+i.token(nil)); w.Code != tt.status {
				t.Errorf("%v: %d, want %d", tt.rules, w.Code, tt.status)
			}
		}
	})
}

// TestIssuersCapability shows that the capability of an issuer's token becomes invalid in three cases:
// the token expires, the token's rule is removed, or the rule no longer covers the provider.
func TestIssuersCapability(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		file := keys(t, firstKey)
		options := func(r ...access.Rule) access.Options {
			o := i.trusting(r...)
			o.Keys = file
			return o
		}
		mine := rule("registry.acme.example/acme/*", "repository_owner", "acme")
		d := newDoor(t, options(mine))
		link := d.link(i.token(nil))
		for name, tt := range map[string]struct {
			rules  []access.Rule
			status int
		}{
			"same":         {[]access.Rule{mine}, 200},
			"another more": {[]access.Rule{rule("*/*/*", "sub", "x"), mine}, 200},
			"wider":        {[]access.Rule{rule("*/*/*", "repository_owner", "acme")}, 200},
			"narrower":     {[]access.Rule{rule("registry.acme.example/acme/gadget", "repository_owner", "acme")}, 403},
			"other claims": {[]access.Rule{rule("registry.acme.example/acme/*", "repository_owner", "other")}, 403},
			"gone":         {nil, 403},
		} {
			if w := newDoor(t, options(tt.rules...)).get(link); w.Code != tt.status {
				t.Errorf("%s: %d, want %d", name, w.Code, tt.status)
			}
		}
		time.Sleep(5*time.Minute - time.Second)
		if w := d.get(link); w.Code != http.StatusOK {
			t.Errorf("before the token's end: %d", w.Code)
		}
		time.Sleep(time.Second)
		if w := d.get(link); w.Code != http.StatusForbidden {
			t.Errorf("after the token's end: %d", w.Code)
		}
	})
}

// discovery returns a function that makes an issuer serve the given discovery document. The result of
// that function, mend, restores the real document.
func discovery(format string, a ...any) func(*issuer) (mend func()) {
	return func(i *issuer) func() {
		i.discovery = fmt.Sprintf(format, a...)
		return func() { i.discovery = "" }
	}
}

// TestIssuerInTrouble shows that an issuer that cannot be reached affects only requests with its own
// tokens.
func TestIssuerInTrouble(t *testing.T) {
	for name, trouble := range map[string]func(*issuer) (mend func()){
		"down": func(i *issuer) func() { i.down = true; return func() { i.down = false } },
		"silent": func(i *issuer) func() {
			i.silent = make(chan struct{})
			return func() { close(i.silent) }
		},
		"another issuer": func(i *issuer) func() { i.name = "https://issuer.example"; return func() { i.name = issuerURL } },
		"too much":       func(i *issuer) func() { i.oversized = true; return func() { i.oversized = false } },
		"redirect to plain HTTP": func(i *issuer) func() {
			i.keysAt = issuerURL + "/away"
			return func() { i.keysAt = issuerURL + "/keys" }
		},
		"keys are gone": func(i *issuer) func() {
			i.keysAt = issuerURL + "/gone"
			return func() { i.keysAt = issuerURL + "/keys" }
		},
		"plain HTTP": func(i *issuer) func() {
			i.keysAt = "http://issuer.example/ci/keys"
			return func() { i.keysAt = issuerURL + "/keys" }
		},
		"another issuer, and this one in another case": discovery(`{"issuer":"https://issuer.example","Issuer":%q,"jwks_uri":%q}`, issuerURL, issuerURL+"/keys"),
		"another issuer, and this one":                 discovery(`{"issuer":"https://issuer.example","issuer":%q,"jwks_uri":%q}`, issuerURL, issuerURL+"/keys"),
		"keys in another case":                         discovery(`{"issuer":%q,"jwks_uri":%q,"JWKS_URI":%q}`, issuerURL, issuerURL+"/gone", issuerURL+"/keys"),
		"another issuer with a long name":              discovery(`{"issuer":%q,"jwks_uri":%q}`, strings.Repeat("x", 100_000), issuerURL+"/keys"),
		"too much discovery":                           discovery(`%s{"issuer":%q,"jwks_uri":%q}`, strings.Repeat(" ", 2<<20), issuerURL, issuerURL+"/keys"),
		"keys are too large": func(i *issuer) func() {
			i.keySet = fmt.Sprintf(`{"keys":[{"kty":"RSA","kid":"first","e":"AQAB","n":%q}]}`, strings.Repeat("_", 200_000))
			return func() { i.keySet = "" }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := newIssuer(t)
				mend := trouble(i)
				o := i.trusting(rule("*/*/*", "repository_owner", "acme"))
				var log bytes.Buffer
				o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
				d := newDoor(t, o)
				start := time.Now()
				good := i.token(map[string]any{"exp": start.Add(time.Hour).Unix()})
				w := d.get(doc, "Bearer "+good)
				if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || w.Header().Get("WWW-Authenticate") != "" {
					t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
				}
				if waited := time.Since(start); waited > 8*time.Second { // of virtual time
					t.Errorf("the response took %s", waited)
				}
				for text, status := range map[string]int{"static-token": 200, "nonsense": 401, i.token(map[string]any{"iss": "https://other.example"}): 401} {
					if w := d.get(doc, "Bearer "+text); w.Code != status {
						t.Errorf("%s: %d, want %d", text, w.Code, status)
					}
				}
				time.Sleep(time.Minute)
				mend()
				if w := d.get(doc, "Bearer "+good); w.Code != http.StatusOK {
					t.Errorf("when it is back: %d %s", w.Code, w.Body)
				}
				synctest.Wait()
				for _, s := range []string{good[:60], strings.Split(good, ".")[1], "marked"} {
					if strings.Contains(log.String(), s) {
						t.Errorf("the log has %s:\n%s", s, log.String())
					}
				}
				if log.Len() > 10_000 {
					t.Errorf("the log has %d bytes", log.Len())
				}
				if i.plain {
					t.Error("the issuer received a request by plain HTTP")
				}
				if !strings.Contains(log.String(), "cannot have the keys") {
					t.Errorf("the log does not say why:\n%s", log.String())
				}
			})
		})
	}
}

// TestNewControlTakesOverIssuerKeys shows that a new control takes over the issuer keys of the control
// that it replaces. So the new control accepts tokens while the issuer is down.
func TestNewControlTakesOverIssuerKeys(t *testing.T) {
	i := newIssuer(t)
	o := i.trusting(rule("*/*/*", "repository_owner", "acme"))
	first := newDoor(t, o)
	if w := first.get(doc, "Bearer "+i.token(nil)); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	o.Before, i.down = first.control, true
	o.Issuers[0].Rules = append(o.Issuers[0].Rules, rule("*/*/*", "repository_owner", "other"))
	for _, tt := range []struct {
		owner  string
		status int
	}{{"acme", http.StatusOK}, {"other", http.StatusOK}, {"third", http.StatusForbidden}} {
		if w := newDoor(t, o).get(doc, "Bearer "+i.token(map[string]any{"repository_owner": tt.owner})); w.Code != tt.status {
			t.Errorf("%s: %d, want %d: %s", tt.owner, w.Code, tt.status, w.Body)
		}
	}
	o.Before = nil
	if w := newDoor(t, o).get(doc, "Bearer "+i.token(nil)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("with nothing passed on: %d", w.Code)
	}
}

// TestIssuerIsAskedSeldom shows that an issuer gets at most one request in five seconds, whichever tokens
// clients send. If the issuer is down, its cached keys are used for a day.
func TestIssuerIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		d := newDoor(t, i.trusting(rule("*/*/*", "repository_owner", "acme")))
		good := "Bearer " + i.token(map[string]any{"exp": time.Now().Add(100 * time.Hour).Unix()})
		start := time.Now()
		for n := range 1000 {
			forged := sign(t, jose.ES256, i.key, fmt.Sprint("made up ", n), claims(nil))
			if w := d.get(doc, "Bearer "+forged); w.Code != http.StatusUnauthorized {
				t.Fatalf("a key that is made up: %d", w.Code)
			}
			if w := d.get(doc, good); w.Code != http.StatusOK {
				t.Fatalf("the good token: %d", w.Code)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if asked, most := int(i.asked.Load()), int(time.Since(start)/(5*time.Second))+1; asked > most || asked < 2 {
			t.Errorf("asked %d times in %s", asked, time.Since(start))
		}

		// The issuer's new key is valid immediately. Its old key is no longer valid.
		time.Sleep(time.Minute)
		i.rotate("second")
		if w := d.get(doc, "Bearer "+i.token(nil)); w.Code != http.StatusOK {
			t.Errorf("the new key: %d", w.Code)
		}
		if w := d.get(doc, good); w.Code != http.StatusUnauthorized {
			t.Errorf("the old key: %d", w.Code)
		}

		// While the issuer is down, its cached keys are used for a day, and not longer.
		good = "Bearer " + i.token(map[string]any{"exp": time.Now().Add(100 * time.Hour).Unix()})
		i.down = true
		time.Sleep(23 * time.Hour)
		if w := d.get(doc, good); w.Code != http.StatusOK {
			t.Errorf("in an outage: %d", w.Code)
		}
		time.Sleep(2 * time.Hour)
		if w := d.get(doc, good); w.Code != http.StatusServiceUnavailable {
			t.Errorf("in a long outage: %d", w.Code)
		}
		synctest.Wait()
	})
}

// TestRequestsToFailingIssuerAreLimited shows that a failing issuer, too, gets at most one request in
// five seconds.
func TestRequestsToFailingIssuerAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		d := newDoor(t, i.trusting(rule("*/*/*", "repository_owner", "acme")))
		token := "Bearer " + i.token(nil)
		i.discovery = "broken"
		for range 100 {
			if w := d.get(doc, token); w.Code != http.StatusServiceUnavailable {
				t.Fatalf("without keys: %d", w.Code)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := i.asked.Load(); n < 2 || n > 3 {
			t.Errorf("the issuer was asked %d times in 10 s", n)
		}
	})
}

// TestConcurrentRequestsShareOneFetch shows that concurrent requests of clients share one fetch of the
// issuer's keys.
func TestConcurrentRequestsShareOneFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		i.silent = make(chan struct{})
		o := i.trusting(rule("*/*/*", "repository_owner", "acme"))
		o.Issuers = append(o.Issuers, access.Issuer{Name: "again", URL: issuerURL, Audience: "other", Rules: o.Issuers[0].Rules})
		c := access.New(o)
		good := i.token(nil)
		codes := make(chan int)
		for range 100 {
			go func() {
				d := &door{t: t, control: c, content: archive}
				codes <- d.get(doc, "Bearer "+good).Code
			}()
		}
		synctest.Wait()
		close(i.silent)
		for range 100 {
			if code := <-codes; code != http.StatusOK {
				t.Errorf("%d", code)
			}
		}
		if n := i.asked.Load(); n != 1 {
			t.Errorf("the issuer was asked %d times", n)
		}
	})
}
