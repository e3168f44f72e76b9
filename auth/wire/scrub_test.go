package wire

import (
	"encoding/base64"
	"fmt"
	"testing"

	"oras.land/oras-go/v2/registry/remote/auth"
)

func TestSpellingsOfSecrets(t *testing.T) {
	const password = `a"b/c<d e&f`
	sent := newSentSecrets()
	sent.add(auth.Credential{Username: "u", Password: password})
	for _, text := range []string{
		password, `a\"b/c<d e&f`, `a\"b/c\u003cd e\u0026f`, `a\"b\/c<d e&f`, "a%22b%2Fc%3Cd+e%26f", "a%22b%2Fc%3Cd%20e&f",
		base64.StdEncoding.EncodeToString([]byte("u:" + password)),
	} {
		if got := string(sent.scrub([]byte("<"+text+">"), "bearer")); got != "<"+"[redacted]"+">" {
			t.Errorf("%s became %s", text, got)
		}
	}
	if got := string(sent.scrub([]byte("no bearer here, nor ab"), "bearer")); got != "no "+"[redacted]"+" here, nor ab" {
		t.Errorf("%s", got)
	}
	short := newSentSecrets()
	short.add(auth.Credential{Username: "u", Password: "a"})
	if got := string(short.scrub([]byte("banana"), "")); got != "banana" {
		t.Errorf("%s", got)
	}
}

// TestSecretsOfManyCredentials records many passwords, as from a helper that returns a
// different password each time. It shows that the number of recorded secrets is limited,
// and that the latest secrets are still removed from texts.
func TestSecretsOfManyCredentials(t *testing.T) {
	sent := newSentSecrets()
	sent.add(auth.Credential{AccessToken: "always-used"})
	for i := range 10 * maxSecretTexts {
		sent.add(auth.Credential{Username: "u", Password: fmt.Sprintf("secret/%d", i)})
		sent.add(auth.Credential{AccessToken: "always-used"})
	}
	if sent.texts.Len() != maxSecretTexts {
		t.Errorf("%d texts are kept", sent.texts.Len())
	}
	last := fmt.Sprintf("secret/%d", 10*maxSecretTexts-1)
	if got := string(sent.scrub([]byte(last+" always-used"), "")); got != "[redacted]"+" "+"[redacted]" {
		t.Errorf("the last secrets are shown: %s", got)
	}
	// A secret is removed as a whole, even if a later secret is equal to its beginning.
	sent.add(auth.Credential{AccessToken: last + "-and-more"})
	sent.add(auth.Credential{AccessToken: last})
	if got := string(sent.scrub([]byte(last+"-and-more"), "")); got != "[redacted]" {
		t.Errorf("the rest of a secret is shown: %s", got)
	}
}
