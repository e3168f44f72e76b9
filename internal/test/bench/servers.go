package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// bareCommand is the argument with which this program runs as the bare server.
const bareCommand = "bare"

// serveBare serves a folder with net/http. It serves documents from memory, with the gateway's headers, and other
// files with http.ServeContent. Like the gateway and nginx, it logs each request to a buffered file. It prints its
// address, and exits when its standard input ends.
func serveBare(args []string) error {
	root, certFile, keyFile := args[0], args[1], args[2]
	documents, etags := map[string][]byte{}, map[string]string{}
	err := filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".json" {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		path := "/" + filepath.ToSlash(rel)
		documents[path], err = os.ReadFile(name)
		sum := sha256.Sum256(documents[path])
		etags[path] = strconv.Quote(base64.RawURLEncoding.EncodeToString(sum[:18]))
		return err
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	out, err := os.CreateTemp(filepath.Dir(root), "bare-log-")
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(bufio.NewWriterSize(out, 64<<10), nil)) // the handler locks the writer
	fmt.Println(l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.ServeTLS(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, start := rand.Text(), time.Now()
		w.Header().Set("X-Request-Id", id)
		defer func() {
			log.Info("request", "method", r.Method, "path", r.URL.Path, "duration", time.Since(start), "client", r.RemoteAddr, "agent", r.UserAgent(), "request_id", id)
		}()
		if body, ok := documents[r.URL.Path]; ok {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			w.Header().Set("ETag", etags[r.URL.Path])
			w.Write(body)
			return
		}
		f, err := os.Open(filepath.Join(root, filepath.FromSlash(r.URL.Path)))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer f.Close()
		w.Header().Set("Content-Type", "application/zip")
		http.ServeContent(w, r, "", time.Time{}, f)
	}), certFile, keyFile)
}

// server is a running server that a benchmark uses.
type server struct {
	name string
	url  string // the base URL, without a slash at the end
	stop func()
}

// startBare starts the bare server.
func (b *bench) startBare(root, certFile, keyFile string) (*server, error) {
	return b.startSelf("net/http", bareCommand, root, certFile, keyFile)
}

// startGateway starts the gateway with a cache of archives. It logs to a file.
func (b *bench) startGateway(certFile, keyFile, template string) (*server, *world.Gateway, error) {
	return b.startGatewayWith(certFile, keyFile, template, cacheIn)
}

// cacheIn returns the settings of a cache of archives below a folder.
func cacheIn(dir string) string {
	return fmt.Sprintf("gateway {\n  cache {\n    directory = %q\n  }\n}\n", filepath.Join(dir, "cache"))
}

// startStreaming starts the gateway without a cache of archives.
func (b *bench) startStreaming(certFile, keyFile, template string) (*server, *world.Gateway, error) {
	return b.startGatewayWith(certFile, keyFile, template, func(string) string { return "gateway {\n  cache {\n    enabled = false\n  }\n}\n" })
}

// startCatalogGateway starts a gateway in front of a registry with a large catalog. stop ends both.
func (b *bench) startCatalogGateway() (fake *fakeRegistry, gateway *server, process *world.Gateway, stop func(), err error) {
	certFile, keyFile, err := b.certificate()
	if err != nil {
		return nil, nil, nil, nil, err
	}
	if fake, err = b.newFakeRegistry(); err != nil {
		return nil, nil, nil, nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, nil, nil, err
	}
	registry := &http.Server{Handler: fake}
	go registry.Serve(l)
	gateway, process, err = b.startGateway(certFile, keyFile, l.Addr().String()+"/${hostname}/${namespace}/${type}")
	if err != nil {
		registry.Close()
		return nil, nil, nil, nil, err
	}
	return fake, gateway, process, func() {
		gateway.stop()
		registry.Close()
	}, nil
}

// startGatewayWith starts the gateway with additional settings. settings gets the gateway's own folder, so that
// the settings can name files there.
func (b *bench) startGatewayWith(certFile, keyFile, template string, settings func(dir string) string) (*server, *world.Gateway, error) {
	return b.startConfigured(certFile, keyFile, func(dir string) string {
		return fmt.Sprintf("oci_mirror {\n  repository_template = \"%s\"\n}\n", template) + settings(dir)
	})
}

// startConfigured starts the gateway with a configuration and more arguments.
func (b *bench) startConfigured(certFile, keyFile string, settings func(dir string) string, args ...string) (*server, *world.Gateway, error) {
	dir, err := os.MkdirTemp(b.Dir, "gateway-")
	if err != nil {
		return nil, nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, nil, err
	}
	config := filepath.Join(dir, "ocibridge.hcl")
	if err := os.WriteFile(config, []byte(settings(dir)), 0o600); err != nil {
		return nil, nil, err
	}
	args = append([]string{"--config", config, "--tls-cert", certFile, "--tls-key", keyFile}, args...)
	g, err := world.ServeLogging(b.bridge, b.ws, log, args...)
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		return nil, nil, fmt.Errorf("%w\n%s", err, said)
	}
	stop := func() { g.Stop(); log.Close() }
	return &server{"gateway", strings.TrimSuffix(g.URL, "/"), stop}, g, nil
}

// startNginx starts nginx in the foreground with its own configuration. It returns nil if nginx is not
// installed.
func (b *bench) startNginx(root, certFile, keyFile string) (*server, error) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			return nil, nil
		}
	}
	dir, err := b.subdir("nginx")
	if err != nil {
		return nil, err
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(config, []byte(nginxConfig(dir, root, certFile, keyFile, addr)), 0o644); err != nil {
		return nil, err
	}
	var said bytes.Buffer
	cmd := exec.Command(program, "-p", dir, "-e", "stderr", "-c", config)
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop := func() {
		cmd.Process.Signal(os.Interrupt) // the workers of nginx exit with it
		<-ended
	}
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return &server{"nginx", "https://" + addr, stop}, nil
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("nginx: %w\n%s", errors.Join(errors.New("it does not start"), err), said.String())
		case <-b.ctx.Done():
			stop()
			return nil, b.ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// nginxConfig returns a configuration for a static mirror. The access log is like the gateway's. A kept-alive
// connection can have any number of requests.
func nginxConfig(dir, root, certFile, keyFile, addr string) string {
	user := ""
	if os.Getuid() == 0 {
		user = "user root;\n" // the served folder belongs to root
	}
	return user + strings.NewReplacer("DIR", dir, "ROOT", root, "CERT", certFile, "KEY", keyFile, "ADDR", addr).Replace(`daemon off;
worker_processes auto;
pid DIR/pid;
events { worker_connections 1024; }
http {
  types { application/json json; application/zip zip; }
  access_log DIR/access.log combined buffer=32k flush=1s;
  client_body_temp_path DIR/body;
  proxy_temp_path DIR/proxy;
  fastcgi_temp_path DIR/fastcgi;
  uwsgi_temp_path DIR/uwsgi;
  scgi_temp_path DIR/scgi;
  sendfile on;
  tcp_nopush on;
  open_file_cache max=1000;
  keepalive_requests 1000000;
  server {
    listen ADDR ssl http2;
    ssl_certificate CERT;
    ssl_certificate_key KEY;
    ssl_protocols TLSv1.2 TLSv1.3;
    root ROOT;
  }
}
`)
}
