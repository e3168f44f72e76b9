package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

const (
	withoutRequire = "no require block"
	// coldWanted is the target for the CPU time that the approval of a version adds to the first request for it.
	coldWanted = 10 * time.Millisecond
	// approvedVersions is the number of versions of a long list.
	approvedVersions = 3000
)

// approver is a key pair that approves versions.
type approver struct {
	private, public string // the names of the files
	signer          approval.Signer
}

func (b *bench) newApprover() (*approver, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	known, err := approval.NewPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	a := &approver{filepath.Join(b.Dir, "approver.key"), filepath.Join(b.Dir, "approver.pub"), approval.Signer{Key: known.Fingerprint()}}
	return a, errors.Join(
		os.WriteFile(a.private, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600),
		os.WriteFile(a.public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644))
}

// settings returns the settings of a gateway that requires the approvals.
func (a *approver) settings(dir string) string {
	return cacheIn(dir) + fmt.Sprintf("trust %q {\n  require \"platform team\" {\n    public_key = file(%q)\n  }\n}\n", world.Host+"/*/*", a.public)
}

// approvals compares a gateway that requires approvals with one that does not: warm answers, the first request for a version, and a
// long list whose summary has the signers.
func (b *bench) approvals() error {
	certFile, keyFile, err := b.certificate()
	if err != nil {
		return err
	}
	reg, err := registry.Start(b.ctx, registry.Options{})
	if err != nil {
		return err
	}
	defer reg.Stop()
	template := reg.Host + "/providers/${hostname}/${namespace}/${type}"
	if err := b.publish(template); err != nil {
		return err
	}
	key, err := b.newApprover()
	if err != nil {
		return err
	}
	if _, err := b.ws.Run(b.bridge, "approve", "--template", template, "--key", key.private, "--all", benchmarked+"@>= 1.0.0"); err != nil {
		return err
	}
	start := func(settings func(string) string) (*server, *world.Gateway, error) {
		return b.startGatewayWith(certFile, keyFile, template, settings)
	}
	if err := b.warmApprovals(key, start); err != nil {
		return err
	}
	if err := b.coldApprovals(key, start); err != nil {
		return err
	}
	return b.listApprovals(key, certFile, keyFile)
}

// starter starts a gateway with the given settings.
type starter func(settings func(dir string) string) (*server, *world.Gateway, error)

// warmApprovals compares answers from memory.
func (b *bench) warmApprovals(key *approver, start starter) error {
	var roots []*server
	for _, settings := range []func(string) string{key.settings, cacheIn} {
		gateway, _, err := start(settings)
		if err != nil {
			return err
		}
		defer gateway.stop()
		roots = append(roots, &server{name: gateway.name, url: rootOf(gateway)})
	}
	roots[1].name = withoutRequire
	for _, a := range warm() {
		a.what, a.than, a.wanted = "approvals: "+a.what, withoutRequire, beforeWanted
		if err := b.compare(a, false, roots); err != nil {
			return fmt.Errorf("%s: %w", a.what, err)
		}
	}
	return nil
}

// coldApprovals measures the CPU time that a new gateway needs for the first request for each version.
func (b *bench) coldApprovals(key *approver, start starter) error {
	measure := func(settings func(string) string) (time.Duration, error) {
		gateway, process, err := start(settings)
		if err != nil {
			return 0, err
		}
		defer gateway.stop()
		c := b.connect(true)
		defer c.close()
		if _, err := c.get(b.ctx, rootOf(gateway)+"/healthz", io.Discard); err != nil { // opens the connection
			return 0, err
		}
		before, err := usedCPU(process.PID())
		if err != nil {
			return 0, err
		}
		for i := range versions {
			if _, err := c.get(b.ctx, fmt.Sprintf("%s/%s/1.%d.0.json", gateway.url, benchmarked, i), io.Discard); err != nil {
				return 0, err
			}
		}
		after, err := usedCPU(process.PID())
		return after - before, err
	}
	var more []time.Duration
	for range 2 * runs {
		with, err := measure(key.settings)
		if err != nil {
			return err
		}
		without, err := measure(cacheIn)
		if err != nil {
			return err
		}
		more = append(more, (with-without)/versions)
	}
	t := median(more)
	b.rows = append(b.rows, row{
		what: "approvals: CPU time for a version's signatures", figure: fmt.Sprintf("%.1f ms", t.Seconds()*1e3), ratio: t.Seconds() / coldWanted.Seconds(),
		than: coldWanted.String(), wanted: "<= 1.00", reached: t <= coldWanted,
	})
	return nil
}

// listApprovals measures how long a new gateway takes to list the versions of a provider whose summary has the signers.
func (b *bench) listApprovals(key *approver, certFile, keyFile string) error {
	distant, err := newDistantRegistry(approvedVersions, registryDelay, key.signer)
	if err != nil {
		return err
	}
	host, stop, err := distant.serve()
	if err != nil {
		return err
	}
	defer stop()
	var took, of []time.Duration
	for range runs {
		with, err := b.coldVersions(certFile, keyFile, host, key.settings, summarized)
		if err != nil {
			return err
		}
		without, err := b.coldVersions(certFile, keyFile, host, cacheIn, summarized)
		if err != nil {
			return err
		}
		took, of = append(took, with), append(of, without)
	}
	ratio := medianRatio(took, of)
	b.rows = append(b.rows, row{
		what:   fmt.Sprintf("approvals: cold list of %d versions, registry %s away", approvedVersions, registryDelay),
		figure: fmt.Sprintf("%.0f ms", median(took).Seconds()*1e3), ratio: ratio, than: withoutRequire, wanted: "<= 1.25", reached: ratio <= 1.25,
	})
	return nil
}
