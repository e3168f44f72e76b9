// Package usage measures the process of a running gateway, and opens idle connections to it.
package usage

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"sync"
)

// Usage is the resource usage of a process.
type Usage struct {
	Memory  int64 // resident memory in bytes
	Threads int64
	Files   int64 // open files, including connections
}

// Of returns the current usage of a process. It needs /proc.
func Of(pid int) (Usage, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return Usage{}, err
	}
	memory, err := number(status, vmRSS)
	if err != nil {
		return Usage{}, err
	}
	threads, err := number(status, threads)
	return Usage{memory << 10, threads, int64(len(files))}, err
}

var (
	vmRSS   = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)
	threads = regexp.MustCompile(`(?m)^Threads:\s+(\d+)$`)
)

func number(status []byte, line *regexp.Regexp) (int64, error) {
	m := line.FindSubmatch(status)
	if m == nil {
		return 0, fmt.Errorf("no %s in %s", line, status)
	}
	return strconv.ParseInt(string(m[1]), 10, 64)
}

// dialers is the number of connections that are opened concurrently.
const dialers = 32

// Idle opens n HTTP/1.1 connections to the server at base. It sends a request for /healthz over each connection,
// and leaves the connection open. The caller must close the connections, even if Idle returns an error.
func Idle(base string, roots *x509.CertPool, n int) ([]io.Closer, error) {
	return idle(base, roots, n, open)
}

// IdleHTTP2 is [Idle] with HTTP/2 connections.
func IdleHTTP2(base string, roots *x509.CertPool, n int) ([]io.Closer, error) {
	return idle(base, roots, n, openHTTP2)
}

func idle(base string, roots *x509.CertPool, n int, open func(*url.URL, *x509.CertPool) (io.Closer, error)) ([]io.Closer, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	var (
		mu    sync.Mutex
		conns []io.Closer
		errs  []error
		all   sync.WaitGroup
	)
	next := make(chan struct{})
	for range dialers {
		all.Go(func() {
			for range next {
				conn, err := open(u, roots)
				mu.Lock()
				if conn != nil {
					conns = append(conns, conn)
				}
				if err != nil && len(errs) < 3 {
					errs = append(errs, err)
				}
				mu.Unlock()
			}
		})
	}
	for range n {
		next <- struct{}{}
	}
	close(next)
	all.Wait()
	return conns, errors.Join(errs...)
}

func open(u *url.URL, roots *x509.CertPool) (io.Closer, error) {
	conn, err := tls.Dial("tcp", u.Host, &tls.Config{RootCAs: roots, ServerName: u.Hostname()})
	if err != nil {
		return nil, err // a nil *tls.Conn in an io.Closer would not be nil
	}
	if _, err := fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", u.Host); err != nil {
		return conn, err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	if err != nil {
		return conn, err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return conn, errors.New(resp.Status)
	}
	return conn, nil
}

// client is an HTTP/2 transport with one connection.
type client struct{ *http.Transport }

// Close implements [io.Closer].
func (c client) Close() error {
	c.CloseIdleConnections()
	return nil
}

func openHTTP2(u *url.URL, roots *x509.CertPool) (io.Closer, error) {
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	c := client{&http.Transport{Protocols: &protocols, TLSClientConfig: &tls.Config{RootCAs: roots}}}
	resp, err := (&http.Client{Transport: c}).Get(u.Scheme + "://" + u.Host + "/healthz")
	if err != nil {
		return c, err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		return c, errors.New(resp.Proto + " " + resp.Status)
	}
	return c, nil
}
