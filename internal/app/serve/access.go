package serve

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// controlAccess creates the site's access control, if the configuration requires tokens. before is the access control of
// the site that this site replaces, or nil.
func (s *site) controlAccess(before *access.Control) error {
	g := s.settings.gateway()
	if !g.AsksForTokens() {
		return nil
	}
	o := access.Options{Log: s.log, Counters: &s.ops.metrics.Access, Before: before, Keys: s.randomKeys, Tokens: g.Tokens, Issuers: g.OIDC}
	if g.CapabilityKeyFile == "" {
		s.log.Info("links to archives are valid only in this process, until it ends: replicas need gateway.capability_key_file")
	} else {
		var err error
		if s.keys, err = watchKeys(g.CapabilityKeyFile, s.log); err != nil {
			return err
		}
		o.Keys = s.keys.Get
	}
	s.control = access.New(o)
	return nil
}

// watchKeys reads the file with the keys that sign links to archives, and reads it again when it changes.
func watchKeys(file string, log *slog.Logger) (*files.Watched[*access.Keys], error) {
	keys, err := files.Watch(log, func(contents [][]byte) (*access.Keys, error) {
		info, err := os.Stat(file)
		if err == nil && runtime.GOOS != "windows" { // Windows has no permission bits
			err = access.CheckMode(file, info.Mode())
		}
		if err != nil {
			return nil, err
		}
		k, err := access.ParseKeys(contents[0])
		if err != nil {
			err = fmt.Errorf("%s: %w", file, err)
		}
		return k, err
	}, file)
	if err != nil {
		return nil, fmt.Errorf("capability_key_file: %w", hint.Wrap(err, "make one with: (umask 077; openssl rand -hex 32 > %s)", file))
	}
	return keys, nil
}
