package main

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/hint"
)

// accessControl returns who may read what, by the configuration file; nil if
// everybody may read everything. before is the control that it takes the place of,
// nil for none.
func (s *site) accessControl(before *access.Control) (*access.Control, error) {
	g := s.settings.file.Gateway
	if !s.settings.asksForTokens() {
		return nil, nil
	}
	o := access.Options{Log: s.log, Counters: s.ops.accessCounters(), Before: before}
	for _, t := range g.Tokens {
		o.Tokens = append(o.Tokens, access.Token(t))
	}
	for _, i := range g.OIDC {
		issuer := access.Issuer{Name: i.Name, URL: i.Issuer, Audience: i.Audience}
		for _, r := range i.Rules {
			issuer.Rules = append(issuer.Rules, access.Rule(r))
		}
		o.Issuers = append(o.Issuers, issuer)
	}
	if g.CapabilityKeyFile == "" {
		s.log.Info("links to archives are good in this process alone, and until it ends: gateways side by side need gateway.capability_key_file")
		o.Keys = s.ownKeys
		return access.New(o), nil
	}
	keys, err := capabilityKeys(g.CapabilityKeyFile, s.log)
	if err != nil {
		return nil, err
	}
	o.Keys = keys.get
	s.looks = append(s.looks, func() { keys.get() })
	return access.New(o), nil
}

// asksForTokens reports whether the gateway refuses who shows no token.
func (s settings) asksForTokens() bool {
	return len(s.file.Gateway.Tokens)+len(s.file.Gateway.OIDC) > 0
}

// capabilityKeys reads a key file, now and when it changes.
func capabilityKeys(file string, log *slog.Logger) (*watched[*access.Keys], error) {
	keys, err := watch(log, func(contents [][]byte) (*access.Keys, error) {
		if err := ownersAlone(file); err != nil {
			return nil, err
		}
		k, err := access.ParseKeys(contents[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return k, nil
	}, file)
	if err != nil {
		if hint.Of(err) == "" {
			err = hint.Wrap(err, "make one with: (umask 077; openssl rand -hex 32 > %s)", file)
		}
		return nil, fmt.Errorf("capability_key_file: %w", err)
	}
	return keys, nil
}

// ownersAlone refuses a file that everybody may use, where systems have such modes.
func ownersAlone(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o007 != 0 {
		return hint.New(fmt.Sprintf("everybody may use %s, its mode being %04o", file, mode),
			"who reads it can read every provider: chmod o-rwx %s, or of a Kubernetes secret set defaultMode to 0440", file)
	}
	return nil
}
