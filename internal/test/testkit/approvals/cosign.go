package approvals

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// Cosign runs the real cosign with one key pair. It never leaves the loopback interface, and logs nothing.
type Cosign struct {
	tb      testkit.TB
	program clients.Client
	work    *clients.Workspace
	key     string // the file with the private key
}

// NewCosign returns a cosign with a new ECDSA key. It ends the test if cosign is missing.
func NewCosign(tb testkit.TB) *Cosign {
	tb.Helper()
	c := &Cosign{tb: tb, program: clients.Program(tb, "cosign"), work: clients.For(tb)}
	// A request to any other host fails.
	for name, value := range map[string]string{"COSIGN_PASSWORD": "", "HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost"} {
		c.work.Env[name] = value
	}
	prefix := filepath.Join(c.work.Home, "cosign")
	c.work.MustRun(tb, c.program, "generate-key-pair", "--output-key-prefix", prefix)
	c.key = prefix + ".key"
	return c
}

// Program returns the program and the folder in which it runs.
func (c *Cosign) Program() (clients.Client, *clients.Workspace) { return c.program, c.work }

// PEM returns the public key.
func (c *Cosign) PEM() []byte {
	c.tb.Helper()
	text, err := os.ReadFile(c.PublicKey())
	if err != nil {
		c.tb.Fatalf("%v", err)
	}
	return text
}

// PublicKey returns the file with the public key.
func (c *Cosign) PublicKey() string { return strings.TrimSuffix(c.key, ".key") + ".pub" }

// unlogged are the flags with which cosign neither logs the signature nor asks for the services of the public instance.
var unlogged = []string{"--use-signing-config=false", "--tlog-upload=false", "--yes"}

// Sign signs REGISTRY/REPOSITORY@DIGEST.
func (c *Cosign) Sign(image string, flags ...string) {
	c.tb.Helper()
	c.work.MustRun(c.tb, c.program, append(append([]string{"sign", "--key", c.key}, unlogged...), append(flags, image)...)...)
}

// SignSimple signs REGISTRY/REPOSITORY@DIGEST as older versions of cosign do.
func (c *Cosign) SignSimple(image string) { c.tb.Helper(); c.Sign(image, "--new-bundle-format=false") }

// Attest attaches a SLSA provenance to REGISTRY/REPOSITORY@DIGEST.
func (c *Cosign) Attest(image string) {
	c.tb.Helper()
	predicate := filepath.Join(c.work.Home, "predicate.json")
	if err := os.WriteFile(predicate, []byte(`{"buildDefinition":{},"runDetails":{}}`), 0o600); err != nil {
		c.tb.Fatalf("%v", err)
	}
	c.work.MustRun(c.tb, c.program, append(append([]string{"attest", "--key", c.key}, unlogged...), "--type", "slsaprovenance1", "--predicate", predicate, image)...)
}

// Verify runs "cosign verify" with a public key, and returns its error.
func (c *Cosign) Verify(image, publicKey string) error {
	c.tb.Helper()
	_, err := c.work.Run(c.program, "verify", "--key", publicKey, "--insecure-ignore-tlog", image)
	return err
}
