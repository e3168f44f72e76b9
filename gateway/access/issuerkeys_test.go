package access_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/ocibridge/ocibridge/gateway/access"
)

func base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// mersenne returns 2^n-1, which is prime for some n. An RSA key made of such primes takes no time to
// create, but a long time to validate.
func mersenne(n uint) *big.Int {
	one := big.NewInt(1)
	return one.Sub(one.Lsh(one, n), big.NewInt(1))
}

// privateKey returns an RSA private key as a JWK. The key's primes are 2^a-1 and 2^b-1.
func privateKey(t *testing.T, a, b uint) string {
	t.Helper()
	one, e, p, q := big.NewInt(1), big.NewInt(65537), mersenne(a), mersenne(b)
	phi := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
	d := new(big.Int).ModInverse(e, phi)
	n := new(big.Int).Mul(p, q)
	return fmt.Sprintf(`{"kty":"RSA","e":"AQAB","n":%q,"d":%q,"p":%q,"q":%q}`, base64url(n.Bytes()), base64url(d.Bytes()), base64url(p.Bytes()), base64url(q.Bytes()))
}

func TestKeySets(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	marshal := func(key any) string {
		b, err := json.Marshal(jose.JSONWebKey{Key: key, KeyID: "1"})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	good := marshal(key.Public())
	with := func(member string) string { return "{" + member + "," + good[1:] }
	modulus := func(bits uint) string {
		return fmt.Sprintf(`{"kty":"RSA","e":"AQAB","n":%q}`, base64url(mersenne(bits).Bytes()))
	}
	set := func(keys ...string) string { return `{"keys":[` + strings.Join(keys, ",") + `]}` }
	many := func(n int) (out []string) {
		for range n {
			out = append(out, good)
		}
		return out
	}
	for name, tt := range map[string]struct {
		body string
		keys int // the number of usable keys; 0 if parsing fails
	}{
		"one":                           {set(good), 1},
		"as many as there may be":       {set(many(100)...), 100},
		"one more":                      {set(many(101)...), 0},
		"RSA of no bits":                {set(`{"kty":"RSA","n":"AB","e":"QB"}`), 0},
		"RSA of 2047 bits":              {set(good, modulus(2047)), 1},
		"RSA of 2048 bits":              {set(good, modulus(2048)), 2},
		"RSA of 8192 bits":              {set(good, modulus(8192)), 2},
		"RSA of 8193 bits":              {set(good, modulus(8193)), 1},
		"RSA of a million bits":         {set(modulus(1 << 20)), 0},
		"private key":                   {set(good, marshal(key)), 1},
		"private key, long to validate": {set(good, privateKey(t, 23209, 44497)), 1},
		"no private key":                {set(with(`"d":null`)), 1},
		"certificates are not read":     {set(with(`"x5c":["AAAA"]`)), 1},
		"member of a key twice":         {set(with(`"use":"sig","use":"enc"`)), 0},
		"use in another case":           {set(with(`"use":"sig","Use":"enc"`)), 1},
		"keys in another case":          {`{"Keys":[` + good + `]}`, 0},
		"keys twice":                    {`{"keys":[],"keys":[` + good + `]}`, 0},
		"keys that are no list":         {`{"keys":` + good + `}`, 0},
		"keys that are null":            {`{"keys":null}`, 0},
		"a list that breaks off":        {`{"keys":[` + good + `,`, 0},
	} {
		if n, err := access.ParseKeySet([]byte(tt.body)); n != tt.keys || (err == nil) != (n > 0) {
			t.Errorf("%s: %d keys, %v; want %d", name, n, err, tt.keys)
		}
	}
}

// TestKeysAreCountedWhileTheyAreRead shows that a key set with too many keys is rejected before all
// keys are decoded.
func TestKeysAreCountedWhileTheyAreRead(t *testing.T) {
	body := append(append([]byte(`{"keys":[`), bytes.Repeat([]byte("{},"), 300_000)...), "{}]}"...)
	allocations := testing.AllocsPerRun(1, func() {
		if _, err := access.ParseKeySet(body); err == nil {
			t.Error("the key set is accepted")
		}
	})
	if allocations > 2000 {
		t.Errorf("%.0f allocations", allocations)
	}
}
