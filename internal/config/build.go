package config

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/internal/files"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
	"github.com/ocibridge/ocibridge/trust"
)

// MaxCount bounds numbers of concurrent requests and packages.
const MaxCount = 256

// config converts a decoded file, and checks it.
func (d *decoder) config(f *fileBlock) *Config {
	c := &Config{
		Data: d.path(f.Body, "data", f.Data),
		Jobs: d.positive(f.Body, "jobs", f.Jobs, MaxCount),
	}
	parseOne(d, f.Body, "log_level", f.LogLevel, parseLevel) // only checked: the flag has the value
	parseOne(d, f.Body, "log_format", f.LogFormat, parseFormat)
	c.templates, c.mirrors = d.mirrors(f)
	c.Logins = d.logins(f.Credentials)
	c.Defaults = d.defaults(f.Defaults)
	c.Registries = d.registries(f.Registries)
	c.Trust = d.trust(f.Trust)
	c.Providers = d.providers(f.Providers)
	c.PullThrough = d.pullThrough(f.PullThrough)
	if f.Gateway != nil {
		c.Gateway = d.gateway(f.Gateway)
		d.checkVerify(f, c)
		d.checkPullThrough(f, c)
	}
	d.checkCooldown(f, c)
	return c
}

// checkVerify warns about providers without pinned keys, because verify = "required" serves
// none of their versions.
func (d *decoder) checkVerify(f *fileBlock, c *Config) {
	if !c.Gateway.VerifyRequired {
		return
	}
	if !slices.ContainsFunc(f.Trust, trustBlock.pins) {
		d.conflict(at(f.Gateway.Body, "verify"), `verify = "required" serves what is signed by keys that trust blocks name, and none names any: add a trust block with keys or key_files.`)
		return
	}
	for _, b := range f.Trust {
		if !b.pins() {
			d.warn(b.Range, "Providers that are not served", `This trust block has no keys: with verify = "required", the gateway serves none of its providers.`)
		}
	}
}

func (d *decoder) mirrors(f *fileBlock) (set templates.Set, written []MirrorText) {
	all := f.Mirrors
	for _, in := range f.Installations {
		all = append(all, in.Mirrors...)
		for _, other := range slices.Concat(in.Direct, in.Network, in.Filesystem) {
			d.warn(other.Range, "Block without effect", "This installation method is for clients. Of provider_installation, ocibridge takes the oci_mirror blocks.")
		}
	}
	slices.SortStableFunc(all, func(a, b mirrorBlock) int {
		return cmp.Compare(a.Range.Start.Byte, b.Range.Start.Byte)
	})
	for _, m := range all {
		text, at := d.templateArgument(m.Body, "repository_template")
		sel := d.selector(m.Body, m.Include, m.Exclude)
		if text == "" || len(sel.Include) < len(m.Include) {
			continue // another warning says so
		}
		t, err := templates.Parse(text, sel)
		if err != nil {
			d.errorf(at, "repository_template", err)
			continue
		}
		set = append(set, t)
		written = append(written, TextOf(t, place(m.Range)))
	}
	return set, written
}

func (d *decoder) logins(blocks []credentialsBlock) []auth.Login {
	var out []auth.Login
	byPrefix := map[string][]auth.Login{}
	for _, b := range blocks {
		l := auth.Login{
			Prefix:   b.Prefix,
			Username: d.secret(b.Body, "username"), Password: d.secret(b.Body, "password"),
			AccessToken: d.secret(b.Body, "access_token"), RefreshToken: d.secret(b.Body, "refresh_token"),
			Origin: place(b.Range),
		}
		if b.Helper != nil {
			if l.Helper = *b.Helper; l.Helper == "" {
				d.errorf(at(b.Body, "docker_credentials_helper"), "docker_credentials_helper", errors.New("it is empty"))
				continue
			}
		}
		if d.incomplete {
			continue
		}
		if err := auth.CheckLogins(append(byPrefix[b.Prefix], l)); err != nil {
			d.errorf(b.Range, "oci_credentials block", err)
			continue
		}
		byPrefix[b.Prefix] = []auth.Login{l}
		out = append(out, l)
	}
	return out
}

func (d *decoder) defaults(b *defaultsBlock) *auth.Defaults {
	if b == nil {
		return nil
	}
	out := &auth.Defaults{Discover: b.Discover == nil || *b.Discover, Origin: place(b.Range)}
	if b.Files != nil {
		// An empty list differs from no list.
		out.Files = append([]string{}, parseEach(d, b.Body, "docker_style_config_files", b.Files, d.parsePath)...)
	}
	if b.Helper != nil {
		out.Helper = *b.Helper
	}
	if err := out.Validate(); err != nil && !d.incomplete {
		d.errorf(b.Range, "oci_default_credentials block", err)
	}
	return out
}

func (d *decoder) registries(blocks []registryBlock) []Registry {
	var out []Registry
	var at []hcl.Range
	seen := map[ociaddr.Registry]bool{}
	for _, b := range blocks {
		r := d.registry(b)
		switch {
		case r.Host == "":
			continue
		case seen[r.Host]:
			d.duplicate(b.Range, "registry", b.Host)
			continue
		}
		if err := r.settings().Validate(r.Host); err != nil {
			d.errorf(b.Range, "registry block", err)
			continue
		}
		seen[r.Host] = true
		out, at = append(out, r), append(at, b.Range)
	}
	// Two names may mean one registry. Package auth finds such pairs.
	together := func(n int) error {
		return auth.Options{Registries: (&Config{Registries: out[:n]}).RegistrySettings()}.Validate()
	}
	if together(len(out)) != nil {
		n := sort.Search(len(out), func(n int) bool { return together(n) != nil })
		d.errorf(at[n-1], "registry block", together(n))
	}
	return out
}

func (d *decoder) registry(b registryBlock) Registry {
	r := Registry{
		Host:                   parseLabel(d, "registry", b.Range, b.Host, ociaddr.ParseRegistry),
		MirrorsBlobsByRedirect: yes(b.MirrorsBlobsByRedirect),
	}
	settings := auth.Registry{
		PlainHTTP: yes(b.PlainHTTP), InsecureSkipVerify: yes(b.InsecureSkipVerify), DeniedMeansAbsent: yes(b.DeniedMeansAbsent),
		RedirectsBlobs: yes(b.MirrorsBlobsByRedirect),
		CAs:            d.pem(b.Body, "ca_file", b.CAFile),
		MaxConcurrent:  d.positive(b.Body, "max_concurrent", b.MaxConcurrent, MaxCount),
		Timeout:        parseOne(d, b.Body, "timeout", b.Timeout, parsePositiveDuration),
		Origin:         place(b.Range),
	}
	if b.RequestsPerSecond != nil {
		if settings.RequestsPerSecond = *b.RequestsPerSecond; settings.RequestsPerSecond <= 0 {
			d.errorf(at(b.Body, "requests_per_second"), "requests_per_second", fmt.Errorf("%v is not more than 0", *b.RequestsPerSecond))
			settings.RequestsPerSecond = 0
		}
	}
	cert, key := d.pem(b.Body, "client_cert_file", b.ClientCertFile), d.pem(b.Body, "client_key_file", b.ClientKeyFile)
	switch {
	case (b.ClientCertFile == nil) != (b.ClientKeyFile == nil):
		d.conflict(b.Range, "client_cert_file and client_key_file go together: give both.")
	case cert != nil && key != nil:
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			d.errorf(at(b.Body, "client_cert_file"), "client_cert_file", keyPairError(err))
		}
		settings.ClientCert = &pair
	}
	if secure := b.CAFile != nil || b.ClientCertFile != nil || settings.InsecureSkipVerify; settings.PlainHTTP && secure {
		d.conflict(at(b.Body, "plain_http"), "Over plain HTTP there are no certificates: leave out plain_http, or ca_file, client_cert_file and insecure_skip_verify.")
	}
	r.settings = func() auth.Registry { return settings }
	return r
}

// keyPairError explains why a certificate and its key cannot be used. The library's errors
// quote nothing from the files.
func keyPairError(err error) error {
	return hint.New(strings.TrimPrefix(err.Error(), "tls: "), "both are PEM files, the certificate with its chain, the key without a passphrase")
}

// pem reads a file of certificates or keys.
func (d *decoder) pem(b hcl.Body, name string, file *string) []byte {
	return parseOne(d, b, name, file, func(s string) ([]byte, error) {
		path, err := d.parsePath(s)
		if err != nil {
			return nil, err
		}
		pem, err := d.env.ReadFile(path)
		switch {
		case err != nil:
			return nil, fmt.Errorf("the file %s: %w", path, files.Cause(err))
		case len(pem) > maxPEM:
			return nil, fmt.Errorf("the file %s has more than %d MiB", path, maxPEM>>20)
		}
		return pem, nil
	})
}

// maxPEM bounds files of certificates. A system's whole trust store takes a quarter of it.
const maxPEM = 1 << 20

// pins reports whether the block names the keys that may sign.
func (b trustBlock) pins() bool { return len(b.Keys)+len(b.KeyFiles) > 0 }

var errNoKey = hint.New("no key is accepted", "leave the argument out for the keys that the origin offers")

func (d *decoder) trust(blocks []trustBlock) trust.Rules {
	var out trust.Rules
	for _, b := range blocks {
		t := trust.Rule{Pattern: parseLabel(d, "trust pattern", b.Range, b.Pattern, provider.ParsePattern), Policy: trust.Policy{
			Keys:          parseEach(d, b.Body, "keys", b.Keys, parseFingerprint),
			AllowUnsigned: yes(b.AllowUnsigned),
			StrictExpiry:  yes(b.StrictExpiry),
		}}
		for _, keys := range parseEach(d, b.Body, "key_files", b.KeyFiles, d.keyFile) {
			t.Policy.Keys = append(t.Policy.Keys, keys...)
		}
		if b.Keys != nil && len(b.Keys) == 0 {
			d.errorf(at(b.Body, "keys"), "keys", errNoKey)
		}
		if b.KeyFiles != nil && len(b.KeyFiles) == 0 {
			d.errorf(at(b.Body, "key_files"), "key_files", errNoKey)
		}
		if b.pins() && t.Policy.AllowUnsigned {
			d.conflict(at(b.Body, "allow_unsigned"), "keys and key_files say who must have signed, and allow_unsigned that nobody need have: leave out one of them.")
		}
		if slices.ContainsFunc(out, func(o trust.Rule) bool { return o.Pattern == t.Pattern && t.Pattern != (provider.Pattern{}) }) {
			d.duplicate(b.Range, "trust", b.Pattern)
		}
		out = append(out, t)
	}
	return out
}

// keyFile returns the fingerprints of the primary keys in a file.
func (d *decoder) keyFile(name string) ([]string, error) {
	path, err := d.parsePath(name)
	if err != nil {
		return nil, err
	}
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

func (d *decoder) providers(blocks []providerBlock) []Provider {
	var out []Provider
	for _, b := range blocks {
		p := Provider{
			Address:     parseLabel(d, "provider address", b.Range, b.Address, provider.ParseAddress),
			Versions:    parseOne(d, b.Body, "versions", b.Versions, provider.ParseConstraint),
			Platforms:   parseEach(d, b.Body, "platforms", b.Platforms, provider.ParsePlatform),
			Latest:      d.positive(b.Body, "latest", b.Latest, 1000),
			Prereleases: yes(b.Prereleases),
			Cooldown:    parseOne(d, b.Body, "cooldown", b.Cooldown, parseDuration),
			From:        parseOne(d, b.Body, "from", b.From, d.parseSource),
			Source:      place(b.Range),
		}
		if b.Versions == nil && b.Latest == nil {
			d.conflict(b.Range, `Neither versions nor latest says which versions: for all that there are, write versions = ">= 0".`)
		}
		if slices.ContainsFunc(out, func(o Provider) bool { return o.Address == p.Address && !p.Address.IsZero() }) {
			d.duplicate(b.Range, "provider", b.Address)
		}
		d.warnOfClients(b.Range, p.Address.ClientWarning())
		out = append(out, p)
	}
	return out
}

// warnOfClients adds a warning that a ClientWarning method has returned, unless it is "".
func (d *decoder) warnOfClients(r hcl.Range, warning string) {
	if warning != "" {
		d.warn(r, "Provider address that some clients refuse", warning+".")
	}
}

// yes reports whether an argument is true. Left out, it is false.
func yes(b *bool) bool { return b != nil && *b }

// duplicate reports a second block with the same label.
func (d *decoder) duplicate(r hcl.Range, block, label string) {
	d.fail(r, "Duplicate "+block+" block", fmt.Sprintf("There is a %s block for %s further up: remove one of them.", block, label))
}
