package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/selfsigned"
)

// tlsConfig returns how TLS is spoken, by files that are read again when they
// change, for which looks gets what looks at them, and by certificates that are
// issued, unless by is nil. caFile is what clients trust a self-signed certificate
// by.
func (f *serveFlags) tlsConfig(by *issued, clientCAFile string, hosts []string, log *slog.Logger, looks *[]func()) (config *tls.Config, caFile string, err error) {
	var own tls.Certificate
	var files []string
	if f.cert != "" {
		files = []string{f.cert, f.key}
	} else if by == nil {
		dir, err := f.dataDir()
		if err == nil {
			dir, err = filepath.Abs(dir)
		}
		if err == nil {
			dir = filepath.Join(dir, "tls")
			err = f.keepPrivate(dir, log)
		}
		if err == nil {
			own, caFile, err = selfsigned.Certificate(dir, hosts, time.Now())
		}
		if err != nil {
			return nil, "", err
		}
	}
	if clientCAFile != "" {
		files = append(files, clientCAFile)
	}
	current, err := watch(log, func(contents [][]byte) (*tls.Config, error) {
		cert, rest := own, contents
		if f.cert != "" {
			var err error
			if cert, err = tls.X509KeyPair(contents[0], contents[1]); err != nil {
				return nil, err
			}
			rest = contents[2:]
		}
		config := serverConfig(cert)
		if by != nil {
			config.Certificates, config.GetCertificate = nil, by.get
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
		return nil, "", explainFiles(err, clientCAFile)
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
	}, caFile, nil
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

// serverConfig is one certificate's configuration.
func serverConfig(cert tls.Certificate) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{cert},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
	}
}
