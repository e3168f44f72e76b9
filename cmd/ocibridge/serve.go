package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

const serveExamples = `  # try it: embedded registry, certificate of a local CA, localhost:8443
  ocibridge serve

  # in front of Harbor, for everybody
  ocibridge serve --listen :8443 --tls-cert tls.pem --tls-key tls.key \
    --template 'harbor.example.com/providers/${hostname}/${namespace}/${type}'

  # behind a proxy that speaks TLS to clients
  ocibridge serve --listen 10.0.0.5:8080 --http --config ocibridge.hcl`

// defaultListen is where serve listens if nothing else is said.
const defaultListen = "localhost:8443"

// serveFlags are the flags of serve.
type serveFlags struct {
	registryFlags
	output     outputFlag
	listen     string
	cert, key  string
	selfSigned bool
	http       bool
	noPull     bool
	metrics    string // address of their own
	log        logFlag
}

func newServeCommand() *cobra.Command {
	f := &serveFlags{}
	f.files = &readings{}
	return f.command()
}

// command returns the command that reads the flags and serves.
func (f *serveFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the providers in an OCI registry to every client",
		Long: `serve answers the provider network mirror protocol under /providers/ from the
repositories that the template names, and the provider registry protocol under
/hosts/HOST/v1/providers/ for what is signed there. Without a template it serves
the embedded registry, which OpenTofu can also read directly, as an oci_mirror.
At / is a page for people: how to set up clients, and what there is.

Clients speak TLS only. Give --tls-cert and --tls-key, or for a first try, let
serve make a CA in the data folder, once, which signs a certificate at each start:
it does so by itself on a loopback address, and elsewhere with --tls-self-signed.
Behind a proxy that speaks TLS to them, --http does without. An acme block in the
configuration file has a certificate issued for a public name.

Certificates and settings are read again when their files change, and on SIGHUP.

With a pull_through block in the configuration file, providers that are not in
the registry are fetched from their origins when they are first asked for,
verified and stored. Without a configuration file and without a template, serve
does so for all of them, as long as it listens on a loopback address.
--no-pull-through turns it off.

Who may read what, the token and oidc blocks of the configuration file say;
without them, everybody may read everything.`,
		Example: serveExamples,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.settings(cmd)
			if err != nil {
				return err
			}
			return f.run(cmd, s)
		},
	}
	f.registryFlags.register(cmd)
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelInfo)
	f.log.registerFormat(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", defaultListen, "`address` to listen on")
	flags.StringVar(&f.metrics, "metrics-listen", "", "`address` on which plain HTTP answers /metrics, /healthz and /readyz, such as localhost:9090 (default: where all else is answered)")
	flags.StringVar(&f.cert, "tls-cert", "", "`file` with the certificate and its chain, in PEM")
	flags.StringVar(&f.key, "tls-key", "", "`file` with the certificate's key, in PEM")
	flags.BoolVar(&f.selfSigned, "tls-self-signed", false, "have a CA in the data folder sign the certificate, and print how clients trust that CA")
	flags.BoolVar(&f.http, "http", false, "speak plain HTTP, behind a proxy that speaks TLS to clients")
	flags.BoolVar(&f.noPull, "no-pull-through", false, "fetch nothing from origins: serve what is in the registry alone")
	cmd.MarkFlagFilename("tls-cert", "pem", "crt")
	cmd.MarkFlagFilename("tls-key", "pem", "key")
	return cmd
}

// run serves until the command's context ends, and then lets downloads finish.
func (f *serveFlags) run(cmd *cobra.Command, s settings) error {
	if err := f.check(s.file.Gateway.TLS); err != nil {
		return usage(err)
	}
	asked, stop := hangups()
	defer stop()
	log, flush := f.log.openBuffered(cmd.ErrOrStderr())
	defer flush()
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return hint.Wrap(fmt.Errorf("listen on %s: %w", f.listen, err), "is it an address of this machine, free, and open to you? --listen names another one, such as localhost:9443")
	}
	defer listener.Close()
	p := newProcess(log, listener.Addr())
	if p.ops, err = newOperations(cmd.Context(), f.metrics, log); err != nil {
		return err
	}
	defer p.ops.Close()
	p.ops.watchPulls(p.pulls)
	site, err := f.newSite(p, s, nil)
	if err != nil {
		return err
	}
	live := &live{process: p}
	live.replace(site)
	defer live.Close()
	unwatch, err := p.ops.listen()
	if err != nil {
		return err
	}
	defer unwatch()
	if err := site.at.announce(cmd.OutOrStdout(), f.output.json()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	go boundMemory(ctx)
	var reloading sync.WaitGroup
	reloading.Go(func() {
		(&reloader{process: p, live: live, cmd: cmd, flags: f, level: &f.log.inForce, seen: f.files}).run(ctx, asked)
	})
	defer reloading.Wait() // before live is closed
	defer cancel()
	return live.serve(ctx, listener)
}

// check refuses flags that do not go together.
func (f *serveFlags) check(t config.TLS) error {
	host, port, err := net.SplitHostPort(f.listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	switch {
	case err != nil:
		return hint.New(fmt.Sprintf("--listen %s is no address", f.listen), "write HOST:PORT, such as localhost:8443, or :8443 for every interface")
	case (f.cert == "") != (f.key == ""):
		return hint.New("--tls-cert and --tls-key go together", "give both")
	case f.cert != "" && f.selfSigned:
		return hint.New("--tls-cert and --tls-self-signed exclude each other", "leave one of them out")
	case f.http && (f.cert != "" || f.selfSigned):
		return hint.New("--http and --tls-* exclude each other", "leave out --http, unless a proxy speaks TLS to clients")
	case f.http && t.ClientCAFile != "":
		return hint.New("over plain HTTP no client shows a certificate, as client_ca_file wants it", "leave out --http, or have the proxy ask for certificates and leave out client_ca_file")
	case f.http && t.ACME != nil:
		return hint.New("over plain HTTP there is no certificate, as acme would have one issued", "leave out --http, or the acme block")
	case !f.http && f.cert == "" && !f.selfSigned && t.ACME == nil && !ociaddr.Registry(host).IsLoopback():
		return hint.New(fmt.Sprintf("no certificate for %s", f.listen), "give --tls-cert and --tls-key: clients speak TLS only. For a first try, --tls-self-signed has a local CA sign one; on a public name, an acme block in the configuration has one issued")
	}
	return nil
}

// hosts are the names that clients may know this machine by, the first of them
// being the one that is given to them.
func (f *serveFlags) hosts(first string) []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	for _, host := range []string{f.publicHost(), first} {
		if !slices.Contains(hosts, host) {
			hosts = append([]string{host}, hosts...)
		}
	}
	return hosts
}

// publicHost is the host of the address to listen on, or the machine's name where
// that is every address.
func (f *serveFlags) publicHost() string {
	host, _, _ := net.SplitHostPort(f.listen)
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
