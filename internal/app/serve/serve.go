// Package serve runs a gateway. It covers everything from settings to listeners, certificates, reloads and shutdown.
//
// Everything that depends on settings is in one immutable site. A reload creates a new site from new settings, and makes it
// the current site. One site serves a request from its beginning to its end, even if another site becomes current
// meanwhile. Sites share the resources that must be open only once, such as the folder of a cache. If the new settings
// are unusable, the current site stays.
//
// The package knows no flags and no terminal. It reads the environment through [Options]. Only the variables of systemd and
// of OpenTelemetry are read directly, by libraries.
package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/ocibridge/ocibridge/approval/signing"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/origins/originclient"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Settings configure a gateway. The caller must already have merged flags, variables, files and defaults into them.
type Settings struct {
	// Config contains the settings of the configuration file. If a flag overrides a setting, Config contains the flag's
	// value.
	Config *config.Config
	// Repositories configures the repositories. Its data folder also contains the local CA and the certificates from ACME.
	Repositories registry.Options
	CacheFolder  string            // the default folder of the cache, or "" if the user has no such folder
	Origins      originclient.User // the user's configuration for the origins of providers
	LogLevel     slog.Level        // the minimum level of the log
	// Sign is the key with which pull-through approves what it stores. Nil: it approves nothing.
	Sign *signing.Key
	// Effective contains the settings as text. The log uses it to name the settings that a reload changes.
	Effective *config.Effective

	files *files.Snapshot // the files that the settings were read from
	local *url.URL        // the URL of a [Local]; nil for a server
	// moduleOrigin replaces the function that finds the origins of modules, for a [Local].
	moduleOrigin func(context.Context, module.Address) (*url.URL, error)
}

// gateway returns the gateway block.
func (s *Settings) gateway() *config.Gateway { return &s.Config.Gateway }

// dataFolder returns the data folder, or [registry.ErrNoDataFolder].
func (s *Settings) dataFolder() (string, error) {
	if s.Repositories.DataFolder == "" {
		return "", registry.ErrNoDataFolder
	}
	return s.Repositories.DataFolder, nil
}

// Options contains the first settings of a gateway, and everything else that it needs.
type Options struct {
	Settings Settings                                // the first settings
	Files    *files.Snapshot                         // the files that the first settings were read from
	Load     func(*files.Snapshot) (Settings, error) // reads the settings again, and records the files in the snapshot
	Reload   <-chan os.Signal                        // requests a reload, even if no file has changed
	Started  func(Address) error                     // is called once, when the gateway listens

	Log      *slog.Logger
	LogLevel *slog.LevelVar // the level of Log, which a reload can change
	Version  string         // the version of the program
	Getenv   func(string) string
}

// UsageError means that settings contradict each other.
type UsageError struct{ error }

// Unwrap returns the wrapped error, which carries the hint.
func (e UsageError) Unwrap() error { return e.error }

// Run serves until ctx ends, and then waits for downloads to finish.
func Run(ctx context.Context, o Options) error {
	s := o.Settings
	s.files = o.Files
	if err := s.check(); err != nil {
		return err
	}
	listen := s.gateway().Listen
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return hint.Wrap(fmt.Errorf("listen on %s: %w", listen, err), "is it an address of this machine, free, and open to you? --listen names another one, such as localhost:9443")
	}
	defer listener.Close()
	p, err := newProcess(ctx, o, listener.Addr(), s.gateway().MetricsListen)
	if err != nil {
		return err
	}
	defer p.ops.Close()
	site, err := p.newSite(s, nil)
	if err != nil {
		return err
	}
	if site.certificates == nil && s.gateway().PublicURL == "" {
		o.Log.Warn("without public_url the gateway answers with relative URLs in the provider registry protocol, which Renovate refuses: set public_url in the gateway block")
	}
	live := &live{process: p}
	live.replace(site)
	defer live.Close()
	stop, err := p.ops.listen()
	if err != nil {
		return err
	}
	defer stop()
	if err := o.Started(site.address); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var reloading sync.WaitGroup
	reloading.Go(func() {
		(&reloader{process: p, live: live, load: o.Load, level: o.LogLevel, seen: o.Files}).run(ctx, o.Reload)
	})
	defer reloading.Wait() // wait before live is closed
	defer cancel()
	return live.serve(ctx, listener)
}

// check returns an error if settings contradict each other.
func (s *Settings) check() error {
	g := s.gateway()
	host, port, err := net.SplitHostPort(g.Listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	var found error
	switch t := g.TLS; {
	case err != nil:
		found = hint.New(fmt.Sprintf("--listen %s is no address", g.Listen), "write HOST:PORT, such as localhost:8443, or :8443 for every interface")
	case (t.CertFile == "") != (t.KeyFile == ""):
		found = hint.New("--tls-cert and --tls-key go together", "give both")
	case t.CertFile != "" && t.SelfSigned:
		found = hint.New("--tls-cert and --tls-self-signed exclude each other", "leave one of them out")
	case g.HTTP && (t.CertFile != "" || t.SelfSigned):
		found = hint.New("--http and --tls-* exclude each other", "leave out --http, unless a proxy speaks TLS to clients")
	case g.HTTP && t.ClientCAFile != "":
		found = hint.New("over plain HTTP no client shows a certificate, as client_ca_file wants it", "leave out --http, or have the proxy ask for certificates and leave out client_ca_file")
	case g.HTTP && t.ACME != nil:
		found = hint.New("over plain HTTP there is no certificate, as acme would have one issued", "leave out --http, or the acme block")
	case !g.HTTP && t.CertFile == "" && !t.SelfSigned && t.ACME == nil && !ociaddr.Registry(host).IsLoopback():
		found = hint.New(fmt.Sprintf("no certificate for %s", g.Listen), "give --tls-cert and --tls-key: clients speak TLS only. For a first try, --tls-self-signed has a local CA sign one; on a public name, an acme block in the configuration has one issued")
	default:
		return nil
	}
	return UsageError{found}
}

// hosts returns the names that clients may use for this machine. first is the host of the gateway's URL.
func (s *Settings) hosts(first string) []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	for _, host := range []string{s.publicHost(), first} {
		if !slices.Contains(hosts, host) {
			hosts = append([]string{host}, hosts...)
		}
	}
	return hosts
}

// publicHost returns the host of the address to listen on. If the gateway listens on every interface, it returns the
// machine's name.
func (s *Settings) publicHost() string {
	host, _, _ := net.SplitHostPort(s.gateway().Listen)
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return host
	}
	if name, err := os.Hostname(); err == nil {
		return name
	}
	return "localhost"
}

func loopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
