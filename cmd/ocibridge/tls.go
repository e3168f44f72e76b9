package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/localca"
)

// localCertificate opens the CA in the data folder and has it sign a certificate for
// hosts.
func (f *serveFlags) localCertificate(hosts []string, log *slog.Logger) (*localca.Leaf, error) {
	data, err := f.dataDir()
	if err != nil {
		return nil, err
	}
	if data, err = filepath.Abs(data); err != nil {
		return nil, err
	}
	dir := filepath.Join(data, "ca")
	_, missing := os.Stat(dir)
	ca, err := localca.Open(dir, log)
	if err != nil {
		return nil, err
	}
	// Earlier versions kept a self-signed certificate, which clients trusted.
	selfSigned := filepath.Join(data, "tls", "cert.pem")
	if _, err := os.Stat(selfSigned); err == nil && missing != nil {
		log.Warn("the gateway no longer uses its self-signed certificate: clients have to trust the local CA instead",
			"file", selfSigned, "ca_file", ca.File(), "hint", "on clients, set SSL_CERT_FILE to "+ca.File()+" where it names the old file")
	}
	return ca.Issue(hosts)
}

// tlsConfig returns how TLS is spoken: by files that are read again when they change,
// by certificates that an ACME issuer issues unless by is nil, or else by a certificate
// of the local CA. It appends a function that looks at the files to looks.
func (f *serveFlags) tlsConfig(by *issued, own *localca.Leaf, clientCAFile string, log *slog.Logger, looks *[]func()) (*tls.Config, error) {
	var files []string
	if f.cert != "" {
		files = []string{f.cert, f.key}
	}
	if clientCAFile != "" {
		files = append(files, clientCAFile)
	}
	current, err := watch(log, func(contents [][]byte) (*tls.Config, error) {
		config, rest := serverConfig(), contents
		switch {
		case f.cert != "":
			cert, err := tls.X509KeyPair(contents[0], contents[1])
			if err != nil {
				return nil, err
			}
			config.Certificates, rest = []tls.Certificate{cert}, contents[2:]
		case by != nil:
			config.GetCertificate = by.get
		default:
			config.GetCertificate = own.Get
		}
		if len(rest) == 0 {
			return config, nil
		}
		clients := x509.NewCertPool()
		if !clients.AppendCertsFromPEM(rest[0]) {
			return nil, fmt.Errorf("%s: %w", clientCAFile, errNoCertificate)
		}
		// Who shows no certificate by them is not spoken to.
		config.ClientCAs, config.ClientAuth = clients, tls.RequireAndVerifyClientCert
		return config, nil
	}, files...)
	if err != nil {
		return nil, explainFiles(err, clientCAFile)
	}
	*looks = append(*looks, func() { current.get() })
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if by != nil && isChallenge(hello) {
				return by.challengeConfig(), nil
			}
			return current.get(), nil
		},
	}, nil
}

var errNoCertificate = errors.New("there is no certificate in it")

// explainFiles says which of the files it is that cannot be used.
func explainFiles(err error, clientCAFile string) error {
	var missing *fs.PathError
	if errors.Is(err, errNoCertificate) || errors.As(err, &missing) && missing.Path == clientCAFile {
		return hint.Wrap(fmt.Errorf("client_ca_file: %w", err), "it is a PEM file with the authorities of clients' certificates")
	}
	return hint.Wrap(fmt.Errorf("--tls-cert and --tls-key: %w", err), "both are PEM files, the certificate with its chain, the key without a passphrase")
}

// serverConfig returns a configuration with certificates. Without any, the caller sets
// GetCertificate.
func serverConfig(certs ...tls.Certificate) *tls.Config {
	return &tls.Config{
		Certificates: certs,
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
	}
}
