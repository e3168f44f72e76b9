package config

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
	"github.com/ocibridge/ocibridge/trust"
)

// MaxCount is the maximum value of arguments that limit concurrent requests or packages.
const MaxCount = 256

// DefaultShutdownTimeout is the default of shutdown_timeout. It is the maximum time that a
// stopping gateway waits for running downloads.
const DefaultShutdownTimeout = 5 * time.Minute

// config builds the Config from the decoded values of a file. It reports values that
// contradict each other.
func (d *decoder) config(f *fileBlock) *Config {
	c := &Config{Jobs: f.Jobs}
	c.templates, c.mirrors = d.mirrors(f)
	c.modules = d.moduleMirrors(f.ModuleMirrors)
	for _, m := range c.modules {
		c.templates = append(c.templates, m.Template)
	}
	c.Logins = d.logins(f.Credentials)
	c.Defaults = d.defaults(f.Defaults)
	c.registries = d.registries(f.Registries)
	c.Trust = d.trust(f.Trust)
	c.Approvals = d.approvals(f.Trust)
	c.Sign = f.Sign
	c.Providers = d.providers(f.Providers)
	c.Modules = d.syncedModules(f.Modules)
	c.PullThrough = d.pullThrough(f.PullThrough)
	if d.of(&f.Gateway) != nil {
		// If a value of the gateway block could not be read, combinations of arguments are not checked in this block. The other
		// blocks are still checked.
		incomplete := d.incomplete
		d.incomplete = incomplete || d.missing
		d.gateway(&f.Gateway)
		d.incomplete = incomplete
		c.Gateway = f.Gateway
		d.checkVerify(f)
		d.checkOrigins(f, c)
	}
	d.checkCooldown(f, c)
	d.checkRetention(f, c)
	return c
}

// checkVerify checks the trust blocks if verify = "required". The gateway then serves only
// versions that are signed by pinned keys. checkVerify reports an error if no trust block
// pins keys. Otherwise it warns about each trust block without keys.
func (d *decoder) checkVerify(f *fileBlock) {
	if !f.Gateway.VerifyRequired {
		return
	}
	if !slices.ContainsFunc(f.Trust, trustBlock.pins) {
		d.conflict(d.of(&f.Gateway).at("verify"), `verify = "required" serves what is signed by keys that trust blocks name, and none names any: add a trust block with keys or key_files.`)
		return
	}
	for i, b := range f.Trust {
		if _, ok := b.Pattern.(provider.Pattern); ok && !b.pins() {
			d.warn(d.of(&f.Trust[i]).header, "Providers that are not served", `This trust block has no keys: with verify = "required", the gateway serves none of its providers.`)
		}
	}
}

func (d *decoder) mirrors(f *fileBlock) (set templates.Set, written []MirrorText) {
	var all []*mirrorBlock
	add := func(blocks []mirrorBlock) {
		for i := range blocks {
			all = append(all, &blocks[i])
		}
	}
	add(f.Mirrors)
	for _, in := range f.Installations {
		add(in.Mirrors)
		for _, other := range [][]clientBlock{in.Direct, in.Network, in.Filesystem} {
			for i := range other {
				d.warn(d.of(&other[i]).header, "Block without effect", "This installation method is for clients. Of provider_installation, ocibridge takes the oci_mirror blocks.")
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *mirrorBlock) int {
		return cmp.Compare(d.of(a).header.Start.Byte, d.of(b).header.Start.Byte)
	})
	for _, m := range all {
		b := d.of(m)
		sel := selectorOf(d, b, m.Include, m.Exclude)
		if m.Template == "" {
			continue // another diagnostic reports the missing or invalid template
		}
		t, err := templates.Parse(m.Template, sel)
		if err != nil {
			d.errorf(b.at("repository_template"), "repository_template", err)
			continue
		}
		set = append(set, t)
		written = append(written, TextOf(t, b.source))
	}
	return set, written
}

func (d *decoder) moduleMirrors(blocks []moduleMirrorBlock) (out []ModuleMirror) {
	for i := range blocks {
		m, b := &blocks[i], d.of(&blocks[i])
		if m.Template == "" {
			continue // another diagnostic reports the missing or invalid template
		}
		t, err := templates.Parse(m.Template, selectorOf(d, b, m.Include, m.Exclude))
		if err != nil {
			d.errorf(b.at("repository_template"), "repository_template", err)
			continue
		}
		out = append(out, ModuleMirror{t, m.FallThrough, m.Direct})
	}
	return out
}

// selectorOf returns the selector of a block, and warns of patterns that some clients refuse.
func selectorOf[P subject.Pattern](d *decoder, b *block, include, exclude []P) subject.SelectorOf[P] {
	for i, p := range include {
		d.warnOfClients(b.atElement("include", i), p.ClientWarning())
	}
	return subject.SelectorOf[P]{Include: include, Exclude: exclude}
}

func (d *decoder) logins(blocks []credentialsBlock) []login.Login {
	var out []login.Login
	byPrefix := map[string][]login.Login{}
	for i, l := range blocks {
		b := d.of(&blocks[i])
		l.Origin = b.source
		if d.incomplete || b.has("docker_credentials_helper") && l.Helper == "" {
			continue // another diagnostic reports the invalid argument
		}
		converted := login.Login(l)
		if err := login.Check(append(byPrefix[l.Prefix], converted)); err != nil {
			d.errorf(b.header, "oci_credentials block", err)
			continue
		}
		byPrefix[l.Prefix] = []login.Login{converted}
		out = append(out, converted)
	}
	return out
}

func (d *decoder) defaults(b *defaultsBlock) *login.Defaults {
	if b == nil {
		return nil
	}
	b.Origin = d.of(b).source
	out := login.Defaults(*b)
	if err := out.Validate(); err != nil && !d.incomplete {
		d.errorf(d.of(b).header, "oci_default_credentials block", err)
	}
	return &out
}

// registries checks the registry blocks. It returns a function that returns their settings.
func (d *decoder) registries(blocks []registryBlock) func() map[ociaddr.Registry]wire.Settings {
	var hosts []ociaddr.Registry
	var at []hcl.Range
	all := map[ociaddr.Registry]wire.Settings{}
	for i := range blocks {
		r, b := &blocks[i], d.of(&blocks[i])
		settings := d.registry(r, b)
		if _, ok := all[r.Host]; ok || r.Host == "" {
			continue // another diagnostic reports the duplicate or invalid host
		}
		if err := settings.Validate(r.Host); err != nil {
			d.errorf(b.header, "registry block", err)
			continue
		}
		all[r.Host] = settings
		hosts, at = append(hosts, r.Host), append(at, b.header)
	}
	// Two host names can mean the same registry. wire.Options.Validate returns an error for
	// such a pair of names.
	together := func(n int) error {
		first := map[ociaddr.Registry]wire.Settings{}
		for _, host := range hosts[:n] {
			first[host] = all[host]
		}
		return wire.Options{Registries: first}.Validate()
	}
	if together(len(hosts)) != nil {
		n := sort.Search(len(hosts), func(n int) bool { return together(n) != nil })
		d.errorf(at[n-1], "registry block", together(n))
	}
	return func() map[ociaddr.Registry]wire.Settings { return maps.Clone(all) }
}

func (d *decoder) registry(r *registryBlock, b *block) wire.Settings {
	settings := wire.Settings{
		PlainHTTP: r.PlainHTTP, InsecureSkipVerify: r.InsecureSkipVerify, DeniedMeansAbsent: r.DeniedMeansAbsent,
		RedirectsBlobs: r.MirrorsBlobsByRedirect, RequestsPerSecond: r.RequestsPerSecond, MaxConcurrent: r.MaxConcurrent,
		Timeout: r.Timeout, CAs: d.pem(b, "ca_file", r.CAFile), Origin: b.source,
	}
	cert, key := d.pem(b, "client_cert_file", r.ClientCertFile), d.pem(b, "client_key_file", r.ClientKeyFile)
	switch {
	case b.has("client_cert_file") != b.has("client_key_file"):
		d.conflict(b.header, "client_cert_file and client_key_file go together: give both.")
	case cert != nil && key != nil:
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			d.errorf(b.at("client_cert_file"), "client_cert_file", keyPairError(err))
		}
		settings.ClientCert = &pair
	}
	if r.PlainHTTP && (b.has("ca_file") || b.has("client_cert_file") || r.InsecureSkipVerify) {
		d.conflict(b.at("plain_http"), "Over plain HTTP there are no certificates: leave out plain_http, or ca_file, client_cert_file and insecure_skip_verify.")
	}
	return settings
}

// keyPairError adds a hint to err, the error of [tls.X509KeyPair]. The result contains no
// secret, because errors of crypto/tls quote nothing from the files.
func keyPairError(err error) error {
	return hint.New(strings.TrimPrefix(err.Error(), "tls: "), "both are PEM files, the certificate with its chain, the key without a passphrase")
}

// pem reads the PEM file at path. name is the argument of the block that names the file.
// pem reports a file that cannot be read or is too large, and returns nil for it. It also
// returns nil if path is "".
func (d *decoder) pem(b *block, name, path string) []byte {
	if path == "" {
		return nil
	}
	pem, err := d.env.ReadFile(path)
	switch {
	case err != nil:
		err = fmt.Errorf("the file %s: %w", path, files.Cause(err))
	case len(pem) > maxPEM:
		err = fmt.Errorf("the file %s has more than %d MiB", path, maxPEM>>20)
	}
	if err != nil {
		d.errorf(b.at(name), name, err)
		return nil
	}
	return pem
}

// maxPEM is the maximum size in bytes of a PEM file. The whole trust store of an operating
// system has about a quarter of this size.
const maxPEM = 1 << 20

// pins reports whether the block names keys. If it does, only these keys may sign releases.
func (b trustBlock) pins() bool { return len(b.Keys)+len(b.KeyFiles) > 0 }

// trust returns the rules for the signatures of publishers. Only trust blocks for providers have such rules.
func (d *decoder) trust(blocks []trustBlock) trust.Rules {
	var out trust.Rules
	for i := range blocks {
		t, b := &blocks[i], d.of(&blocks[i])
		if t.Pattern == nil {
			continue // another diagnostic reports the invalid pattern
		}
		pattern, ok := t.Pattern.(provider.Pattern)
		if !ok {
			d.moduleTrust(b)
			continue
		}
		policy := trust.Policy{Keys: t.Keys, AllowUnsigned: t.AllowUnsigned == "true", UnsignedAsClients: t.AllowUnsigned == trust.AsClients, StrictExpiry: t.StrictExpiry}
		for i, file := range t.KeyFiles {
			keys, err := d.keyFile(file)
			if err != nil {
				d.errorf(b.atElement("key_files", i), "key_files", err)
			}
			policy.Keys = append(policy.Keys, keys...)
		}
		for _, name := range []string{"keys", "key_files"} {
			if b.isEmpty(name) {
				d.errorf(b.at(name), name, hint.New("no key is accepted", "leave the argument out for the keys that the origin offers"))
			}
		}
		if t.pins() && (policy.AllowUnsigned || policy.UnsignedAsClients) {
			d.conflict(b.at("allow_unsigned"), "keys and key_files require signatures, and allow_unsigned accepts packages without one: leave out one of them.")
		}
		out = append(out, trust.Rule{Pattern: pattern, Policy: policy})
	}
	return out
}

// keyFile returns the fingerprints of the primary keys in an OpenPGP key file. It refuses a
// file with a revoked key.
func (d *decoder) keyFile(path string) ([]string, error) {
	text, err := d.env.ReadFile(path)
	if err != nil {
		return nil, hint.New(fmt.Sprintf("the file %s: %v", path, files.Cause(err)), "name a file that gpg --armor --export KEYID was written to")
	}
	// ReadKeys refuses a file that is too large or has too many keys.
	keys, err := trust.ReadKeys(context.Background(), string(text))
	if err != nil {
		return nil, fmt.Errorf("the file %s: %w", path, err)
	}
	var out []string
	for _, k := range keys {
		if k.Revoked {
			return nil, hint.New(fmt.Sprintf("the file %s: the key %s is revoked", path, k.Fingerprint), "take it out of the file: an older copy of the key, without the revocation, would be accepted")
		}
		out = append(out, k.Fingerprint)
	}
	return out, nil
}

func (d *decoder) providers(blocks []Provider) []Provider {
	for i := range blocks {
		p, b := &blocks[i], d.of(&blocks[i])
		p.Source = b.source
		d.checkVersions(b)
		d.warnOfClients(b.header, p.Address.ClientWarning())
	}
	return blocks
}

func (d *decoder) syncedModules(blocks []Module) []Module {
	for i := range blocks {
		m, b := &blocks[i], d.of(&blocks[i])
		m.Source = b.source
		d.checkVersions(b)
	}
	return blocks
}

// checkVersions reports an error unless a block says which versions sync keeps.
func (d *decoder) checkVersions(b *block) {
	if !b.has("versions") && !b.has("latest") {
		d.conflict(b.header, `Neither versions nor latest says which versions: for all that there are, write versions = ">= 0".`)
	}
}

// warnOfClients reports warning, the result of a ClientWarning method. It does nothing if
// warning is "".
func (d *decoder) warnOfClients(r hcl.Range, warning string) {
	if warning != "" {
		d.warn(r, "Provider address that some clients refuse", warning+".")
	}
}
