package trust_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/trust"
)

// changedArmour returns a key's armour in which f has changed each line from the given one to
// the given one. Lines count from 0, and from the end if negative.
func changedArmour(armour string, from, to int, f func(string) string) string {
	lines := strings.Split(strings.TrimSpace(armour), "\n")
	for i := (from + len(lines)) % len(lines); i <= (to+len(lines))%len(lines); i++ {
		lines[i] = f(lines[i])
	}
	return strings.Join(lines, "\n") + "\n"
}

// TestArmour shows which forms of a key's armour Terraform 1.11 can read. OpenTofu 1.12 reads all of them.
// The verdicts are those of go-crypto v1.0.0 (Terraform 1.11.4) and v1.4.1 (OpenTofu 1.12.6).
func TestArmour(t *testing.T) {
	acme := pgp.For(t, "Acme")
	key := acme.ArmoredPublicKey()
	blank := func(s string) string { return s + " " }
	indent := func(s string) string { return "  " + s }
	doc := sumsOf(name)
	for what, tc := range map[string]struct{ armour, says string }{
		"as gpg writes it":        {key, ""},
		"carriage returns":        {changedArmour(key, 0, -1, func(s string) string { return s + "\r" }), ""},
		"blank in the first line": {changedArmour(key, 0, 0, blank), ""},
		"blank in the last line":  {changedArmour(key, -1, -1, blank), ""},
		"header":                  {strings.Replace(key, "\n\n", "\nVersion: 1 \n\n", 1), ""},
		"blanks as empty line":    {strings.Replace(key, "\n\n", "\n  \n", 1), ""},
		"text around it":          {" hello \n" + key + " bye \n", ""},
		"blanks at ends":          {changedArmour(key, 2, -3, blank), "its line 3 begins or ends with a blank"},
		"tab at an end":           {changedArmour(key, 3, 3, func(s string) string { return s + "\t" }), "its line 4 begins or ends with a blank"},
		"blank and return":        {changedArmour(key, 3, 3, func(s string) string { return s + " \r" }), "its line 4 begins or ends with a blank"},
		"blank after checksum":    {changedArmour(key, -2, -2, blank), "begins or ends with a blank"},
		"indented":                {changedArmour(key, 1, -1, indent), "begins or ends with a blank"},
		"last line indented":      {changedArmour(key, -1, -1, indent), "begins or ends with a blank"},
		"wrong checksum":          {changedArmour(key, -2, -2, func(string) string { return "=AAAA" }), "its checksum in line"},
	} {
		t.Run(what, func(t *testing.T) {
			err := trust.CheckArmour(tc.armour)
			if tc.says == "" && err != nil || tc.says != "" && (!errors.Is(err, trust.ErrArmour) || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("%v, want %q", err, tc.says)
			}
			given, _ := json.Marshal(map[string]any{"gpg_public_keys": []any{map[string]any{"key_id": "x", "ascii_armor": tc.armour, "source": "Acme"}}, "other": 1})
			clean, found := trust.CleanKeys(given)
			if (found == nil) != (tc.says == "") || (string(clean) == string(given)) != (tc.says == "") {
				t.Errorf("cleaned: %v\n%s", found, clean)
			}
			keys, err := trust.ParseSigningKeys(clean)
			if err != nil || len(keys) != 1 || trust.CheckArmour(keys[0]) != nil || !strings.Contains(string(clean), `"source":"Acme"`) || !strings.Contains(string(clean), `"other":1`) {
				t.Fatalf("%v\n%s", err, clean)
			}
			for _, keys := range [][]string{{tc.armour}, keys} {
				sums, err := trust.Policy{}.Accept(t.Context(), trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Signature: sign(t, acme, doc), Keys: keys})
				if err != nil || sums.Signer().Fingerprint != acme.Fingerprint() {
					t.Errorf("%v", err)
				}
			}
		})
	}
	for _, object := range []string{"", "null", "[]", `{"gpg_public_keys":[{}]}`, `{"gpg_public_keys":[{"ascii_armor":"x"}]}`} {
		if clean, found := trust.CleanKeys([]byte(object)); string(clean) != object || found != nil {
			t.Errorf("%s: %s, %v", object, clean, found)
		}
	}
}
