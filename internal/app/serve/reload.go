package serve

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// reloader replaces the site when settings change. If it cannot use the new settings, it logs why, and keeps the site.
type reloader struct {
	*process
	live  *live
	load  func(*files.Snapshot) (Settings, error)
	level *slog.LevelVar // the log's level

	seen    *files.Snapshot   // the files from which the settings were last read
	pending [sha256.Size]byte // the digest of the changed files at the last check
}

// run reloads when a signal arrives on asked, and when files have changed, until ctx ends.
func (r *reloader) run(ctx context.Context, asked <-chan os.Signal) {
	tick := time.NewTicker(files.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-asked:
			r.reload("SIGHUP")
		case <-tick.C:
			r.live.current.Load().look()
			if names, stable := r.changed(); stable {
				r.reload(strings.Join(names, ", "))
			}
		}
	}
}

// changed returns the names of the files that have changed since settings were last read. stable is true if their contents
// are the same as at the last check. Otherwise, a file may still be half written.
func (r *reloader) changed() (names []string, stable bool) {
	names, digest := r.seen.Changed()
	stable = len(names) > 0 && digest == r.pending
	r.pending = digest
	return names, stable
}

// reload loads settings and replaces the site.
func (r *reloader) reload(reason string) {
	r.manager.notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
	err := r.replace(reason)
	r.ops.reload(err)
	status := "serving"
	if err != nil {
		status = "serving by earlier settings: the new ones cannot be used"
		r.log.Error("settings cannot be used; those from before stay in force", "reason", reason, "err", hint.OneLine(err.Error()), "hint", hint.OneLine(hint.Of(err)))
	}
	r.manager.notify(daemon.SdNotifyReady + "\nSTATUS=" + status)
}

// replace loads settings, and replaces the current site with a new site that uses these settings.
func (r *reloader) replace(reason string) error {
	before := r.live.current.Load()
	s, err := r.read(before)
	if err == nil {
		err = r.keepListeners(&s, &before.settings)
	}
	if err == nil {
		err = s.check()
	}
	if err == nil {
		err = s.checkLogins()
	}
	if err != nil {
		return err
	}
	watched := s.readWatched()
	site, err := r.newSite(s, before)
	if err != nil {
		r.seen.Add(watched)
		return err
	}
	r.live.replace(site)
	r.level.Set(s.LogLevel)
	r.log.Info("settings have been read again and are in force", "reason", reason, "changed", cmp.Or(strings.Join(s.changes(before.settings), ", "), "nothing"))
	return nil
}

// changes returns the paths of the arguments that have changed, except for those that [reloader.keepListeners] keeps.
func (s *Settings) changes(before Settings) []string {
	return slices.DeleteFunc(s.Effective.Changes(before.Effective), func(path string) bool {
		return path == "gateway.listen" || path == "gateway.metrics_listen"
	})
}

// read loads the settings, and remembers the files that it read. A change of any of these files causes the next reload, even
// if the current reload fails.
func (r *reloader) read(before *site) (Settings, error) {
	r.seen = &files.Snapshot{}
	s, err := r.load(r.seen)
	s.files = r.seen
	if err == nil {
		err = r.stillThere(before.settings.Config.File, &s)
	}
	return s, err
}

// keepListeners copies the addresses of the running listeners into the new settings, because only a restart can change them.
// It returns an error if the argument http has changed.
func (r *reloader) keepListeners(s, before *Settings) error {
	now, then := s.gateway(), before.gateway()
	if now.HTTP != then.HTTP {
		return hint.New("http cannot change while serve runs", "restart it: nothing of the new settings is in force before")
	}
	if now.Listen != then.Listen {
		r.log.Warn("the address to listen on changes only at a restart; the other settings do not wait for that", "listen", then.Listen, "new", now.Listen)
		now.Listen = then.Listen
	}
	if now.MetricsListen != then.MetricsListen {
		r.log.Warn("the address of the metrics changes only at a restart; the other settings do not wait for that", "listen", then.MetricsListen, "new", now.MetricsListen)
		now.MetricsListen = then.MetricsListen
	}
	return nil
}

// readWatched returns a snapshot of the files that a site watches by itself. One of these files can prevent the
// creation of the site, for example a new certificate whose key has not arrived yet. In that case, the reloader tries
// again when one of these files changes.
func (s *Settings) readWatched() *files.Snapshot {
	g := s.gateway()
	watched := &files.Snapshot{}
	for _, name := range []string{g.TLS.CertFile, g.TLS.KeyFile, g.TLS.ClientCAFile, g.CapabilityKeyFile} {
		if name != "" {
			_, _ = watched.ReadFile(name) // newSite reports the error
		}
	}
	return watched
}

// stillThere returns an error if the configuration file is gone or empty: a deleted file would turn off access control.
func (r *reloader) stillThere(name string, s *Settings) error {
	if name == "" {
		return nil
	}
	b, err := files.Read(name)
	switch {
	case err != nil:
		err = fmt.Errorf("the configuration file is gone: %w", err)
	case len(bytes.TrimSpace(b)) == 0:
		err = fmt.Errorf("the configuration file %s is empty", name)
	case s.Config.File != name:
		r.log.Info("another configuration file is in force", "file", s.Config.File, "before", name)
	}
	return hint.Wrap(err, "put it back, or restart to go on without it")
}

// checkLogins returns an error if a login file that the configuration names is unusable, before a request needs the login.
func (s *Settings) checkLogins() error {
	d := s.Repositories.Auth.Login.Defaults
	if d == nil || !d.Discover {
		return nil
	}
	for _, name := range d.Files {
		b, err := s.files.ReadFile(name)
		if err == nil {
			err = login.CheckFile(b)
		}
		if err != nil {
			return hint.Wrap(fmt.Errorf("%s: login file %s: %w", d.Origin, name, err), "correct it, or take it out of docker_style_config_files")
		}
	}
	return nil
}
