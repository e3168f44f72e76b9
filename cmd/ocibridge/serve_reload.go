package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/internal/hint"
)

// reloader makes new sites of settings that have changed. What cannot be used leaves
// all as it is.
type reloader struct {
	*process
	live  *live
	cmd   *cobra.Command // whose flags stay
	flags *serveFlags    // in force
	level *slog.LevelVar // of the log

	seen    *readings         // of the last time that settings were read
	pending [sha256.Size]byte // what has changed since, when last looked at
}

// hangups returns the signals that ask for a reload, from now on.
func hangups() (c chan os.Signal, stop func()) {
	c = make(chan os.Signal, 1) // one that waits stands for all
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// run reloads when asked to, and when files have changed, until ctx ends.
func (r *reloader) run(ctx context.Context, asked <-chan os.Signal) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-asked:
			r.reload("SIGHUP")
		case <-tick.C:
			r.live.current.Load().look()
			if names, settled := r.changed(); settled {
				r.reload(strings.Join(names, ", "))
			}
		}
	}
}

// changed returns which files are otherwise than when settings were last read, and
// whether they were so the last time, too: a file may be half written.
func (r *reloader) changed() (names []string, settled bool) {
	names, sum := r.seen.changed()
	settled = len(names) > 0 && sum == r.pending
	r.pending = sum
	return names, settled
}

// reload puts new settings in force, or says why it cannot.
func (r *reloader) reload(reason string) {
	r.notify("RELOADING=1", "MONOTONIC_USEC="+monotonic())
	err := r.replace(reason)
	r.ops.Reloaded(err)
	status := "serving"
	if err != nil {
		status = "serving by earlier settings: the new ones cannot be used"
		r.log.Error("settings cannot be used; those from before stay in force", "reason", reason, "err", hint.OneLine(err.Error()), "hint", hint.OneLine(hint.Of(err)))
	}
	r.notify("READY=1", "STATUS="+status)
}

func (r *reloader) replace(reason string) error {
	before := r.live.current.Load()
	f, s, err := r.read()
	if err != nil {
		return err
	}
	if f.http != r.flags.http {
		return hint.New("http cannot change while serve runs", "restart it: nothing of the new settings is in force before")
	}
	if f.listen != r.flags.listen {
		r.log.Warn("the address to listen on changes with a restart; the rest of the settings does not wait for that", "listen", r.flags.listen, "new", f.listen)
		f.listen = r.flags.listen
	}
	if f.metrics != r.flags.metrics {
		r.log.Warn("the address of the metrics changes with a restart; the rest of the settings does not wait for that", "listen", r.flags.metrics, "new", f.metrics)
		f.metrics = r.flags.metrics
	}
	if err := f.check(s.file.Gateway.TLS); err != nil {
		return err
	}
	if err := s.checkLogins(); err != nil {
		return err
	}
	apart := f.readApart(s.file.Gateway)
	site, err := f.newSite(r.process, s, before)
	if err != nil {
		r.seen.add(apart)
		return err
	}
	r.live.replace(site)
	r.flags = f
	r.level.Set(f.log.level)
	r.log.Info("settings have been read again and are in force", "reason", reason, "changed", strings.Join(s.inForce.Changes(before.settings.inForce), ", "))
	return nil
}

// read reads everything again that settings are made of. The command line stays.
func (r *reloader) read() (*serveFlags, settings, error) {
	f := &serveFlags{}
	f.files = &readings{}
	cmd := f.command()
	cmd.SetErr(warnings{r.log})
	var err error
	r.cmd.Flags().Visit(func(given *pflag.Flag) {
		err = cmp.Or(err, giveFlag(cmd.Flags().Lookup(given.Name), given))
	})
	if err == nil {
		err = variables(cmd)
	}
	var s settings
	if err == nil {
		s, err = f.settings(cmd)
	}
	r.seen = f.files // whatever came of it: when they change, it is tried again
	if err == nil {
		err = r.stillThere(s)
	}
	return f, s, err
}

// readApart reads the files that are looked at apart from settings. One of them may be
// why these cannot be used, such as a certificate whose key is yet to come: then they
// are tried again when it changes.
func (f *serveFlags) readApart(g config.Gateway) *readings {
	apart := &readings{}
	for _, name := range []string{f.cert, f.key, g.TLS.ClientCAFile, g.CapabilityKeyFile} {
		if name != "" {
			apart.readFile(name) // whatever comes of it
		}
	}
	return apart
}

// giveFlag gives a flag the value that another one of its name was given.
func giveFlag(to, from *pflag.Flag) error {
	if to == nil {
		return nil
	}
	to.Changed = true
	if list, ok := to.Value.(pflag.SliceValue); ok {
		return list.Replace(from.Value.(pflag.SliceValue).GetSlice())
	}
	return to.Value.Set(from.Value.String())
}

// stillThere fails where the configuration file has gone, or is empty: by a mishap
// like that nobody is to get more than was meant for them.
func (r *reloader) stillThere(s settings) error {
	name := r.live.current.Load().settings.file.File
	if name == "" {
		return nil
	}
	b, err := readBounded(name)
	switch {
	case err != nil:
		err = fmt.Errorf("the configuration file is gone: %w", err)
	case len(bytes.TrimSpace(b)) == 0:
		err = fmt.Errorf("the configuration file %s is empty", name)
	case s.file.File != name:
		r.log.Info("another configuration file counts now", "file", s.file.File, "before", name)
	}
	return hint.Wrap(err, "put it back, or restart to go on without it")
}

// checkLogins reads the login files that the configuration names, which else are
// read when they are first of use.
func (s settings) checkLogins() error {
	d := s.authOptions().Defaults
	if d == nil || !d.Discover {
		return nil
	}
	for _, name := range d.Files {
		b, err := s.files.readFile(name)
		if err == nil {
			err = auth.CheckLoginFile(b)
		}
		if err != nil {
			return hint.Wrap(fmt.Errorf("%s: login file %s: %w", d.Origin, name, err), "correct it, or take it out of docker_style_config_files")
		}
	}
	return nil
}

// warnings has the log take what a command warns of.
type warnings struct{ log *slog.Logger }

// Write implements [io.Writer].
func (w warnings) Write(p []byte) (int, error) {
	w.log.Warn(hint.OneLine(strings.TrimPrefix(string(p), "warning: ")))
	return len(p), nil
}

// inForceFor is what is in force for a command, for the log to say what changes.
func (s settings) inForceFor(cmd *cobra.Command) *config.InForce {
	return s.file.InForce(surroundings(cmd, s.cli))
}
