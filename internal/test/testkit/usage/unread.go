package usage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
)

// streamsPerConnection is the number of streams that the gateway allows on a connection.
const streamsPerConnection = 128

// Unread sends n GET requests over HTTP/2 connections, in turn for each of the URLs, and waits for the headers of
// all responses. It reads no body. The caller must close the streams, even if Unread returns an error.
func Unread(ctx context.Context, roots *x509.CertPool, n int, urls ...string) (close func(), err error) {
	var (
		mu      sync.Mutex
		closers []io.Closer
		errs    []error
		all     sync.WaitGroup
	)
	for first := 0; first < n; first += streamsPerConnection {
		var protocols http.Protocols
		protocols.SetHTTP2(true)
		// The client takes 1 KiB of each body into its buffers, and allows no more.
		transport := &http.Transport{
			Protocols: &protocols, TLSClientConfig: &tls.Config{RootCAs: roots}, DisableCompression: true,
			HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 1 << 10},
		}
		closers = append(closers, client{transport})
		begin := func(url string) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return err
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			closers = append(closers, resp.Body)
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s", url, resp.Status)
			}
			return nil
		}
		for i := range min(streamsPerConnection, n-first) {
			url := urls[(first+i)%len(urls)]
			if i == 0 { // opens the connection
				errs = append(errs, begin(url))
				continue
			}
			all.Go(func() {
				if err := begin(url); err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
				}
			})
		}
		all.Wait()
	}
	return func() {
		for _, c := range slices.Backward(closers) { // bodies before their connections
			c.Close()
		}
	}, errors.Join(errs...)
}
