package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sigstore/sigstore/pkg/cryptoutils"

	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// TestDroppedRequirements shows that a trust block that exempts addresses from the requirements of another block causes a warning.
func TestDroppedRequirements(t *testing.T) {
	const require, report, keys = "require \"team\" {\n public_key = file(\"team.pub\")\n}", "require \"team\" {\n public_key = file(\"team.pub\")\n enforce = false\n}", `keys = ["C874011F0AB405110D02105534365D9472D7468F"]`
	m := machine{files: map[string]string{testDir + "/team.pub": string(approvals.NewKey(t, approvals.P256).PEM())}}
	for name, tc := range map[string]struct {
		first, in, second, in2 string
		at                     int // the number of the block with the warning; 0 means none
	}{
		"unsigned inside":                {"*/*/*", require, "a.example/acme/*", "allow_unsigned = true", 2},
		"keys inside":                    {"*/*/*", require, "a.example/acme/*", keys, 2},
		"only reported inside":           {"*/*/*", require, "a.example/acme/*", report, 2},
		"nothing inside":                 {"*/*/*", require, "a.example/acme/*", "", 2},
		"inside, and further up":         {"a.example/acme/*", "", "*/*/*", require, 1},
		"modules inside, in other case":  {"a.example/Acme/*/*", require, "a.example/acme/net/*", "", 2},
		"required inside, too":           {"*/*/*", require, "a.example/acme/*", require, 0},
		"required inside only":           {"*/*/*", "allow_unsigned = true", "a.example/acme/*", require, 0},
		"nothing in common":              {"a.example/*/*", require, "b.example/acme/*", "", 0},
		"providers and modules":          {"*/*/*", require, "a.example/acme/*/*", "", 0},
		"only reported in the wider one": {"*/*/*", report, "a.example/acme/*", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			src := fmt.Sprintf("trust %q {\n%s\n}\ntrust %q {\n%s\n}\n", tc.first, tc.in, tc.second, tc.in2)
			at := 0
			for _, w := range mustParse(t, src, m).Warnings {
				if w.Summary == "No approval is required" {
					at = strings.Count(strings.Join(strings.Split(src, "\n")[:w.Line], "\n"), "trust \"")
				}
			}
			if at != tc.at {
				t.Errorf("the warning is about block %d, want %d:\n%s", at, tc.at, src)
			}
		})
	}
}

// TestCheckSigningKey shows that CheckFiles reports a key of the sign block with which no command could sign.
func TestCheckSigningKey(t *testing.T) {
	encrypted, public, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), cryptoutils.StaticPasswordFunc([]byte("geheim")))
	if err != nil {
		t.Fatal(err)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tlsca.For(t).Issue()
	if err != nil {
		t.Fatal(err)
	}
	c := mustParse(t, "sign {\n  key = \"k.pem\"\n}\n", machine{})
	const file = "2: /etc/ocibridge/k.pem: "
	for name, tc := range map[string]struct {
		key      string
		password string
		want     string
	}{
		"private key":                  {key: string(approvals.PrivatePEM(t, private))},
		"public key":                   {key: string(public), want: file + "A public key, and no private key. Name the private key: "},
		"certificate":                  {key: string(cert.CertPEM), want: file + "A certificate, and no private key. Name the private key: "},
		"OpenPGP":                      {key: "-----BEGIN PGP PRIVATE KEY BLOCK-----\n", want: file + "An OpenPGP key, "},
		"empty":                        {want: file + "No private key in PEM format. "},
		"encrypted":                    {key: string(encrypted)},
		"encrypted, with its password": {key: string(encrypted), password: "geheim"},
		"encrypted, with another":      {key: string(encrypted), password: "falsch", want: file + "The private key cannot be decrypted: "},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine{files: map[string]string{testDir + "/k.pem": tc.key}, vars: map[string]string{}}
			if tc.password != "" {
				m.vars["COSIGN_PASSWORD"] = tc.password
			}
			got := ""
			for _, d := range c.CheckFiles(m.environment()) {
				got += fmt.Sprintf("%d: %s", d.Line, d.Detail)
			}
			if tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) || strings.Contains(got, "falsch") {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// TestWrongTrustedRoots shows what is said about files that are no trusted root: each error says what to do.
func TestWrongTrustedRoots(t *testing.T) {
	const root = `{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`
	for name, tc := range map[string]struct{ argument, content, want string }{
		"missing":          {`"gone.json"`, "", "The file /etc/ocibridge/gone.json: file does not exist. Name a trusted_root.json file"},
		"empty":            {`"root.json"`, "", "The file /etc/ocibridge/root.json: it is empty. 'cosign trusted-root create'"},
		"no authority":     {`"root.json"`, root, "The file /etc/ocibridge/root.json: the trusted root names no certificate authority, so that no signer's certificate could be verified. Write the file again"},
		"another document": {`"root.json"`, "{}", "The file /etc/ocibridge/root.json: it is no trusted root: "},
		"a public key":     {`"root.json"`, string(approvals.NewKey(t, approvals.P256).PEM()), "The file /etc/ocibridge/root.json: it is a public key, and no trusted root. Give a public key as public_key"},
		"the content":      {`file("root.json")`, root, `It is the content of a file, and no name. Write trusted_root = "trusted_root.json", without file(...).`},
	} {
		t.Run(name, func(t *testing.T) {
			src := "trust \"*/*/*\" {\n  require \"ci\" {\n    issuer = \"https://issuer.example\"\n    identity = \"ci@acme.example\"\n    trusted_root = " + tc.argument + "\n  }\n}\n"
			_, err := parse(src, machine{files: map[string]string{testDir + "/root.json": tc.content}})
			var invalid *Error
			if !errors.As(err, &invalid) || len(invalid.Diagnostics) != 1 || !strings.HasPrefix(invalid.Diagnostics[0].Detail, tc.want) {
				t.Errorf("%+v, want %s", err, tc.want)
			}
		})
	}
}
