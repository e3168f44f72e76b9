package access

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"
)

// FuzzParseClaims checks that two other parsers read the same claims from an accepted
// token. One of these parsers compares names exactly, and the other ignores case.
func FuzzParseClaims(f *testing.F) {
	const issuer, audience = "https://issuer.example", "gateway"
	now := time.Unix(1_800_000_000, 0)
	const good = `{"iss":"https://issuer.example","aud":"gateway","exp":1800000060`
	for _, s := range []string{
		good + `}`, good + `,"Aud":"other"}`, good + `,"iſs":"other"}`, good + `,"aud":"other"}`, good + `,"\u0061ud":"other"}`, good + `,"EXP":1}`,
		`{"iss":"https://issuer.example","aud":["a","gateway"],"exp":1.80000006e9,"nbf":1800000000,"iat":1,"sub":"a","groups":["b"]}`,
		good + `,"_claim_names":{"a":"b"},"_claim_sources":{"b":{}}}`, good + `,"a\ud800":1,"a\udfff":2}`, `null`, `[]`, `{}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := parseClaims(payload)
		if err != nil || c.check(issuer, audience, now) != nil {
			return
		}
		var exact map[string]any
		if err := json.Unmarshal(payload, &exact); err != nil {
			t.Fatal(err)
		}
		list, _ := exact["aud"].([]any)
		exp, _ := exact["exp"].(float64)
		if exact["iss"] != issuer || exact["aud"] != audience && !slices.Contains(list, audience) || exp <= float64(now.Unix()) {
			t.Errorf("%s passes", payload)
		}
		var folded struct{ Iss, Sub, Aud, Exp, Nbf, Iat, Jti any }
		if err := json.Unmarshal(payload, &folded); err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]any{
			"iss": folded.Iss, "sub": folded.Sub, "aud": folded.Aud, "exp": folded.Exp, "nbf": folded.Nbf, "iat": folded.Iat, "jti": folded.Jti,
		} {
			if !reflect.DeepEqual(exact[name], value) {
				t.Errorf("%s passes, with %s %v or %v", payload, name, exact[name], value)
			}
		}
	})
}
