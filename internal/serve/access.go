package serve

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/files"
	"github.com/ocibridge/ocibridge/internal/hint"
)

// controlAccess sets up who may read what, if the configuration says so. before is the
// control that the new one replaces; nil for none.
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

// watchKeys reads the file of the keys that sign links to archives, now and when it
// changes.
func watchKeys(file string, log *slog.Logger) (*files.Watched[*access.Keys], error) {
	keys, err := files.Watch(log, func(contents [][]byte) (*access.Keys, error) {
		if err := refusePublic(file); err != nil {
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

// refusePublic refuses a file that every user of the machine may use. Windows has no modes.
func refusePublic(file string) error {
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
