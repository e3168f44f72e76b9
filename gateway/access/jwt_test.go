package access_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/ocibridge/ocibridge/gateway/access"
)

// payload returns the claims of a token as JSON, with additional members at the end. The additional
// members take effect in a parser that ignores case, or that uses the last of two duplicate members.
func payload(t *testing.T, changes map[string]any, more ...string) string {
	t.Helper()
	b, err := json.Marshal(claims(changes))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(b), "}") + "," + strings.Join(append(more, `"last":0}`), ",")
}

// header returns the header of a token as JSON, with additional members before alg and kid.
func (i *issuer) header(more ...string) string {
	return "{" + strings.Join(append(more, `"alg":"ES256"`, fmt.Sprintf(`"kid":%q`, i.id)), ",") + "}"
}

// signature returns the issuer's signature of the given text in base64.
func (i *issuer) signature(text string) string {
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, sum[:])
	if err != nil {
		i.t.Fatal(err)
	}
	return base64url(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// written returns a signed token with exactly the given header and payload.
func (i *issuer) written(header, payload string) string {
	text := base64url([]byte(header)) + "." + base64url([]byte(payload))
	return text + "." + i.signature(text)
}

type tokenCase struct {
	token  string
	status int
}

// wantStatus sends a request with the token of each case to a control that trusts the issuer, and checks
// the status.
func (i *issuer) wantStatus(t *testing.T, cases map[string]tokenCase) {
	t.Helper()
	d := newDoor(t, i.trusting(rule("registry.acme.example/acme/*", "repository_owner", "acme")))
	for name, tt := range cases {
		if w := d.get(doc, "Bearer "+tt.token); w.Code != tt.status {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, tt.status)
		}
	}
}

func TestClaimNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		now := time.Now()
		past, future := now.Add(-time.Hour).Unix(), now.Add(time.Hour).Unix()
		token := func(changes map[string]any, more ...string) string {
			return i.written(i.header(), payload(t, changes, more...))
		}
		i.wantStatus(t, map[string]tokenCase{
			"good":                              {token(nil), 200},
			"issuer in another case":            {token(map[string]any{"iss": "https://issuer.example/other"}, fmt.Sprintf(`"Iss":%q`, issuerURL)), 401},
			"issuer with a long s":              {token(map[string]any{"iss": "https://issuer.example/other"}, fmt.Sprintf(`"iſs":%q`, issuerURL)), 401},
			"audience in another case":          {token(map[string]any{"aud": "elsewhere"}, `"Aud":"gateway"`), 401},
			"audience in capitals only":         {token(map[string]any{"aud": nil}, `"AUD":"gateway"`), 401},
			"other audience in capitals":        {token(nil, `"AUD":"elsewhere"`), 401},
			"audience in another case, escaped": {token(map[string]any{"aud": "elsewhere"}, `"\u0041ud":"gateway"`), 401},
			"audience, escaped":                 {token(map[string]any{"aud": nil}, `"\u0061ud":"gateway"`), 200},
			"expiry in another case":            {token(map[string]any{"exp": past}, fmt.Sprintf(`"Exp":%d`, future)), 401},
			"not before in another case":        {token(map[string]any{"nbf": future}, fmt.Sprintf(`"NBF":%d`, past)), 401},
			"subject in another case":           {token(nil, `"Sub":"repo:other"`), 401},
			"subject with a long s":             {token(nil, `"ſub":"repo:other"`), 401},
			"issued at in another case":         {token(nil, `"Iat":0`), 401},
			"token ID in another case":          {token(nil, `"Jti":"1"`), 401},
			"claim names in another case":       {token(nil, `"_Claim_names":{}`), 401},
			"audience twice":                    {token(map[string]any{"aud": "elsewhere"}, `"aud":"gateway"`), 401},
			"expiry twice":                      {token(map[string]any{"exp": past}, fmt.Sprintf(`"exp":%d`, future)), 401},
			"same subject twice":                {token(map[string]any{"sub": "a"}, `"sub":"a"`), 401},
			"claim of a rule twice":             {token(map[string]any{"repository_owner": "mallory"}, `"repository_owner":"acme"`), 401},
			"claim of a rule twice, escaped":    {token(map[string]any{"repository_owner": "mallory"}, `"repository\u005fowner":"acme"`), 401},
			"claim of a rule in another case":   {token(map[string]any{"repository_owner": "mallory"}, `"Repository_Owner":"acme"`), 403},
			"claim of no rule in another case":  {token(nil, `"Repository_Owner":"mallory"`), 200},
		})
	})
}

func TestClaimValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		now := time.Now()
		cases := map[string]tokenCase{}
		for _, tt := range []struct {
			claim, value string
			status       int
		}{
			{"exp", fmt.Sprint(now.Unix() + 60), 200},
			{"exp", fmt.Sprint(now.Unix()+60, ".5"), 200},
			{"exp", "2.5e11", 200}, // in the year 9892
			{"exp", fmt.Sprint(now.Unix()), 401},
			{"exp", "null", 401},
			{"exp", fmt.Sprintf("%q", fmt.Sprint(now.Unix()+60)), 401},
			{"exp", "true", 401},
			{"exp", fmt.Sprintf("[%d]", now.Unix()+60), 401},
			{"exp", "253402300800", 401}, // in the year 10000
			{"exp", "9223372036854775807", 401},
			{"exp", "1e300", 401},
			{"exp", "0", 401},
			{"exp", "-1", 401},
			{"nbf", fmt.Sprint(now.Unix() + 4*60), 200},
			{"nbf", fmt.Sprint(now.Unix() + 6*60), 401},
			{"nbf", fmt.Sprintf("%q", fmt.Sprint(now.Unix())), 401},
			{"nbf", "1e300", 401},
			{"nbf", "-1", 401},
			{"iat", `"yesterday"`, 401},
			{"iat", "-1e300", 401},
			{"aud", `["elsewhere","gateway"]`, 200},
			{"aud", `["elsewhere"]`, 401},
			{"aud", `["gateway",1]`, 401},
			{"aud", `[["gateway"]]`, 401},
			{"aud", `{"gateway":"gateway"}`, 401},
			{"aud", `[]`, 401},
			{"aud", `null`, 401},
			{"aud", `"Gateway"`, 401},
			{"iss", `["` + issuerURL + `"]`, 401},
			{"sub", `1`, 401},
		} {
			cases[tt.claim+" "+tt.value] = tokenCase{i.written(i.header(), payload(t, map[string]any{tt.claim: nil}, fmt.Sprintf("%q:%s", tt.claim, tt.value))), tt.status}
		}
		i.wantStatus(t, cases)

		o := i.trusting(rule("*/*/*", "repository_owner", "acme"))
		o.Issuers[0].Audience = ""
		if w := newDoor(t, o).get(doc, "Bearer "+i.token(map[string]any{"aud": ""})); w.Code != http.StatusUnauthorized {
			t.Errorf("no audience is configured: %d", w.Code)
		}
	})
}

func TestTokenHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		cases := map[string]tokenCase{}
		public, err := json.Marshal(jose.JSONWebKey{Key: i.key.Public()})
		if err != nil {
			t.Fatal(err)
		}
		for member, status := range map[string]int{
			`"x5t":"AAAA"`:                   200,
			`"typ":"JWT"`:                    200,
			`"typ":"jwt"`:                    200,
			`"typ":"at+jwt"`:                 200,
			`"typ":"AT+JWT"`:                 200,
			`"typ":"Application/AT+JWT"`:     200,
			`"typ":"application/jwt"`:        200,
			`"typ":"logout+jwt"`:             401,
			`"typ":"application/logout+jwt"`: 401,
			`"typ":"dpop+jwt"`:               401,
			`"typ":"kb+jwt"`:                 401,
			`"typ":"secevent+jwt"`:           401,
			`"typ":"JOSE"`:                   401,
			`"typ":"application/"`:           401,
			`"typ":""`:                       401,
			`"typ":null`:                     401,
			`"typ":["JWT"]`:                  401,
			`"Typ":"logout+jwt"`:             401,
			`"typ":"JWT","TYP":"logout+jwt"`: 401,
			`"typ":"logout+jwt","typ":"JWT"`: 401,
			`"ALG":"none"`:                   401,
			`"alg":"none"`:                   401, // in addition to ES256
			`"Kid":"other"`:                  401,
			`"\u212aid":"other"`:             401, // the Kelvin sign
			`"crit":["exp"],"exp":1`:         401,
			`"crit":["b64"],"b64":true`:      401,
			`"crit":[]`:                      401,
			`"crit":null`:                    401,
			`"Crit":["exp"],"exp":1`:         401,
			`"b64":true`:                     401,
			`"B64":false`:                    401,
			`"jwk":` + string(public):        401,
			`"Jwk":` + string(public):        401,
			`"jwk":null`:                     401,
		} {
			cases[member] = tokenCase{i.written(i.header(member), payload(t, nil)), status}
		}
		for _, member := range []string{`"b64":false`, `"crit":["b64"],"b64":false`} {
			encoded, p := base64url([]byte(i.header(member))), payload(t, nil)
			cases[member+", payload signed as it is"] = tokenCase{encoded + "." + base64url([]byte(p)) + "." + i.signature(encoded+"."+p), 401}
		}
		cases["no header but alg and kid"] = tokenCase{i.written(i.header(), payload(t, nil)), 200}
		i.wantStatus(t, cases)
	})
}

// TestLogSaysWhyATokenIsRefused shows that the log says why a token is refused, and does not quote the
// token.
func TestLogSaysWhyATokenIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		o := i.trusting(rule("*/*/*", "repository_owner", "acme"))
		var log bytes.Buffer
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		d := newDoor(t, o)
		for token, why := range map[string]string{
			i.written(i.header(`"typ":"marked+jwt"`), payload(t, nil)):                           "another purpose",
			i.token(map[string]any{"exp": 1}):                                                    "it has expired",
			i.token(map[string]any{"aud": "marked"}):                                             "another audience",
			i.written(i.header(), payload(t, nil, `"Aud":"marked"`)):                             "only in case",
			i.written(i.header(), payload(t, map[string]any{"exp": "marked"})):                   "malformed",
			sign(t, jose.ES256, newIssuer(t).key, i.id, claims(map[string]any{"sub": "marked"})): "no key of the issuer",
		} {
			log.Reset()
			d.get(doc, "Bearer "+token)
			if got := log.String(); !strings.Contains(got, why) || strings.Contains(got, "marked") || strings.Contains(got, token[:40]) {
				t.Errorf("%s: the log has %q", why, got)
			}
		}
	})
}

func TestCompactSerializationOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		good := i.token(nil)
		parts := strings.Split(good, ".")
		i.wantStatus(t, map[string]tokenCase{
			"compact":          {good, 200},
			"flattened JSON":   {fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2]), 401},
			"general JSON":     {fmt.Sprintf(`{"payload":%q,"signatures":[{"protected":%q,"signature":%q}]}`, parts[1], parts[0], parts[2]), 401},
			"with a space":     {parts[0] + " ." + parts[1] + "." + parts[2], 401},
			"four parts":       {good + ".", 401},
			"two parts":        {parts[0] + "." + parts[1], 401},
			"padded":           {parts[0] + "=." + parts[1] + "." + parts[2], 401},
			"no header":        {"." + parts[1] + "." + parts[2], 401},
			"header is a list": {base64url([]byte("[]")) + "." + parts[1] + "." + parts[2], 401},
		})
	})
}

// TestKeyInATokenIsNotValidated shows that a token with a key in its header is refused before go-jose
// validates the key. The validation would take seconds and return another error.
func TestKeyInATokenIsNotValidated(t *testing.T) {
	token := base64url([]byte(`{"alg":"RS256","jwk":`+privateKey(t, 9689, 9941)+`}`)) + ".e30.AAAA"
	if len(token) > 16<<10 {
		t.Fatalf("the token has %d bytes: it would be refused for its length", len(token))
	}
	if err := access.CheckToken(token); !errors.Is(err, access.ErrOwnKey) {
		t.Error(err)
	}
}
