package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/internal/embedded"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/selfsigned"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	// shutdownTimeout is how long downloads under way may take to finish.
	shutdownTimeout = 5 * time.Minute
	// headerTimeout bounds how long a client may take to ask.
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
)

const serveExamples = `  # try it: embedded registry, self-signed certificate, localhost:8443
  ocibridge serve

  # in front of Harbor, for everybody
  ocibridge serve --listen :8443 --tls-cert tls.pem --tls-key tls.key \
    --template 'harbor.example.com/providers/${hostname}/${namespace}/${type}'`

// serveFlags are the flags of serve.
type serveFlags struct {
	registryFlags
	output     outputFlag
	listen     string
	cert, key  string
	selfSigned bool
	log        logFlag
}

func newServeCommand() *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the providers in an OCI registry to every client",
		Long: `serve answers the provider network mirror protocol under /providers/ from the
repositories that the template names, and the provider registry protocol under
/hosts/HOST/v1/providers/ for what is signed there. Without a template it serves
the embedded registry, which OpenTofu can also read directly, as an oci_mirror.

Clients speak TLS only. Give --tls-cert and --tls-key, or let serve make a
certificate of its own for a first try: it does so by itself on a loopback
address, and elsewhere with --tls-self-signed.`,
		Example: serveExamples,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.settings(cmd)
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), s, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.registryFlags.register(cmd)
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelInfo)
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "localhost:8443", "`address` to listen on")
	flags.StringVar(&f.cert, "tls-cert", "", "`file` with the certificate and its chain, in PEM")
	flags.StringVar(&f.key, "tls-key", "", "`file` with the certificate's key, in PEM")
	flags.BoolVar(&f.selfSigned, "tls-self-signed", false, "make a self-signed certificate and print how clients trust it")
	cmd.MarkFlagFilename("tls-cert", "pem", "crt")
	cmd.MarkFlagFilename("tls-key", "pem", "key")
	return cmd
}

// run serves until ctx ends, and then lets downloads finish.
func (f *serveFlags) run(ctx context.Context, s settings, stdout, stderr io.Writer) error {
	if err := f.check(); err != nil {
		return usage(err)
	}
	log := f.log.open(stderr)
	back, err := f.open(s, nil, log)
	if err != nil {
		return err
	}
	defer back.Close()
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return hint.Wrap(fmt.Errorf("listen on %s: %w", f.listen, err), "is it an address of this machine, free, and open to you? --listen names another one, such as localhost:9443")
	}
	defer listener.Close()
	cert, caFile, err := f.certificate()
	if err != nil {
		return err
	}
	if err := f.announce(stdout, listener.Addr(), caFile, back.embedded != nil); err != nil {
		return err
	}
	return serve(ctx, listener, cert, newGateway(back, f.publicURL(s), log), log)
}

// check refuses flags that do not go together.
func (f *serveFlags) check() error {
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
	case f.cert == "" && !f.selfSigned && !ociaddr.Registry(host).IsLoopback():
		return hint.New(fmt.Sprintf("no certificate for %s", f.listen), "give --tls-cert and --tls-key: clients speak TLS only. For a first try, --tls-self-signed makes one")
	}
	return nil
}

// certificate loads the certificate, or makes one; then caFile is what clients
// trust it by.
func (f *serveFlags) certificate() (cert tls.Certificate, caFile string, err error) {
	if f.cert != "" {
		cert, err = tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			err = hint.Wrap(fmt.Errorf("--tls-cert and --tls-key: %w", err), "both are PEM files, the certificate with its chain, the key without a passphrase")
		}
		return cert, "", err
	}
	dir, err := f.dataDir()
	if err != nil {
		return cert, "", err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return cert, "", err
	}
	return selfsigned.Certificate(filepath.Join(dir, "tls"), f.hosts(), time.Now())
}

// hosts are the names that clients may know this machine by.
func (f *serveFlags) hosts() []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if host := f.publicHost(); !slices.Contains(hosts, host) {
		hosts = append([]string{host}, hosts...)
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

// publicURL is how clients reach the gateway: as the configuration says, or by the
// address to listen on.
func (f *serveFlags) publicURL(s settings) *url.URL {
	if u, err := url.Parse(s.file.Gateway.PublicURL); err == nil && u.Host != "" { // it was checked
		return u
	}
	_, port, _ := net.SplitHostPort(f.listen)
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(f.publicHost(), port), Path: "/"}
}

// announce prints where the gateway is and what a client needs to use it.
func (f *serveFlags) announce(w io.Writer, addr net.Addr, caFile string, oci bool) error {
	_, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return err
	}
	authority := net.JoinHostPort(f.publicHost(), port)
	mirror := "https://" + authority + gateway.MirrorPath
	if f.output.json() {
		out := map[string]string{"url": mirror}
		if caFile != "" {
			out["ca_file"] = caFile
		}
		if oci {
			out["repository_template"] = authority + "/" + embedded.Template
		}
		return json.NewEncoder(w).Encode(out)
	}
	fmt.Fprintf(w, "Serving providers at %s\n\nClients need, in ~/.tofurc or ~/.terraformrc:\n\n", mirror)
	fmt.Fprintf(w, "  provider_installation {\n    network_mirror {\n      url = %q\n    }\n  }\n\n", mirror)
	if oci {
		fmt.Fprintf(w, "or, for OpenTofu 1.10 and later, straight from the registry:\n\n")
		fmt.Fprintf(w, "  provider_installation {\n    oci_mirror {\n      repository_template = \"%s/%s\"\n    }\n  }\n\n", authority, embedded.Template)
	}
	if caFile != "" {
		fmt.Fprintf(w, "The certificate is self-signed. Clients on Linux trust it by\n\n  export SSL_CERT_FILE=%s\n\nOn macOS and Windows, add that file to the system's trusted certificates.\n\n", caFile)
	}
	return nil
}

// newGateway wires the gateway to the backend.
func newGateway(back *backend, public *url.URL, log *slog.Logger) http.Handler {
	o := gateway.Options{
		Log: log, PublicURL: public,
		Repository: func(ctx context.Context, a provider.Address) (gateway.Store, error) {
			_, repo, err := back.repository(ctx, a)
			if notServed(err) {
				return nil, fmt.Errorf("%w: %w", gateway.ErrNotServed, err)
			}
			return repo, err
		},
	}
	if back.embedded != nil {
		o.Registry = back.embedded.ReadOnly()
	}
	return gateway.New(o)
}

// serve answers on l until ctx ends.
func serve(ctx context.Context, l net.Listener, cert tls.Certificate, handler http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           handler,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(l, "", "") }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	log.Info("shutting down: downloads under way may finish", "within", shutdownTimeout)
	grace, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return fmt.Errorf("shutting down: %w", errors.Join(err, server.Close()))
	}
	return nil
}
