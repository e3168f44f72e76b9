package deploy_test

import (
	"context"
	"crypto/tls"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// container is a container as a container engine would run it. It is a process of an unprivileged user with its
// own read-only root.
type container struct {
	Root    string
	Args    []string
	Env     []string
	Files   map[string]string // the files to mount into the root, by path in the container
	Volumes []string          // writable folders
	Tmpfs   []string
	Empty   []string   // folders that are mounted like an emptyDir with fsGroup: root's, and open to all users
	Hosts   string     // host names of the loopback interface
	URLs    []string   // URLs that must return 200
	Check   []string   // a command in the container that must succeed
	Beside  [][]string // commands that run outside of the container
}

const (
	user = 65532
	// patience is the maximum time until a container answers requests.
	patience = 2 * time.Minute
)

// errNoMounts is the error of a process that may not mount anything in its own namespaces.
var errNoMounts = errors.New("private mounts")

func init() {
	if len(os.Args) == 2 && os.Args[0] == "container" {
		if err := runContainer(os.Args[1]); err != nil {
			if errors.Is(err, errNoMounts) {
				clients.NotAllowed(err)
			}
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// contain runs c in its own namespaces. It checks that the container answers requests, and that the container
// stops cleanly on request.
func contain(t *testing.T, c container) {
	t.Helper()
	for name, file := range c.Files {
		if absolute, err := filepath.Abs(file); err == nil {
			c.Files[name] = absolute
		}
	}
	plan, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	self := exec.CommandContext(ctx, "/proc/self/exe")
	self.Args = []string{"container", string(plan)}
	self.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		self.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		self.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		self.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	_, err = clients.RunInNamespaces(self)
	clients.Must(t, err)
}

// runContainer runs in the namespaces that contain has created. When it ends, every process that it has started
// also ends.
func runContainer(plan string) error {
	var c container
	if err := json.Unmarshal([]byte(plan), &c); err != nil {
		return err
	}
	if err := c.mount(); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	for _, args := range c.Beside {
		if err := exec.Command(args[0], args[1:]...).Start(); err != nil {
			return err
		}
	}
	var log strings.Builder
	main := c.command(c.Args)
	main.Stdout, main.Stderr = &log, &log
	if err := main.Start(); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if err := c.wait(); err != nil {
		_ = main.Process.Kill()
		_ = main.Wait()
		return fmt.Errorf("%w\n%s", err, log.String())
	}
	if err := os.WriteFile(filepath.Join(c.Root, "usr/bin/other"), nil, 0o755); err == nil {
		return fmt.Errorf("the root is writable")
	}
	if err := main.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := main.Wait(); err != nil {
		return fmt.Errorf("end: %w\n%s", err, log.String())
	}
	return nil
}

// mount mounts the container's files into the root, and makes the root read-only.
func (c *container) mount() error {
	hosts := filepath.Join(c.Root, "etc/hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost "+c.Hosts+"\n"), 0o644); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("%w: %w", errNoMounts, err)
	}
	if err := unix.Mount(c.Root, c.Root, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	for _, target := range slices.Sorted(maps.Keys(c.Files)) {
		place := filepath.Join(c.Root, target)
		if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(place, nil, 0o644); err != nil {
			return err
		}
		if err := unix.Mount(c.Files[target], place, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
	}
	for _, volume := range c.Volumes {
		if err := unix.Mount(filepath.Join(c.Root, volume), filepath.Join(c.Root, volume), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("volume %s: %w", volume, err)
		}
	}
	for _, folder := range c.Tmpfs {
		if err := unix.Mount("tmpfs", filepath.Join(c.Root, folder), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
			return fmt.Errorf("tmpfs %s: %w", folder, err)
		}
	}
	for _, folder := range c.Empty {
		group := user
		if mapped() {
			group = 0
		}
		if err := unix.Mount("tmpfs", filepath.Join(c.Root, folder), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=2777,uid=0,gid=%d", group)); err != nil {
			return fmt.Errorf("emptyDir %s: %w", folder, err)
		}
	}
	// In a user namespace, a remount must keep the restrictions of the original mount.
	var has unix.Statfs_t
	if err := unix.Statfs(c.Root, &has); err != nil {
		return err
	}
	keep := uintptr(has.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("", c.Root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|keep, ""); err != nil {
		return fmt.Errorf("read-only root: %w", err)
	}
	return nil
}

// command returns a command in the container. If this process is root only in a user namespace, the command is
// already unprivileged.
func (c *container) command(args []string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Dir = c.Env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.Root}
	if !mapped() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user, Gid: user}
	}
	return cmd
}

// mapped reports whether this process is root only in a user namespace.
func mapped() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(text)), " ") != "0 0 4294967295"
}

func loopbackUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}

// wait waits until the container answers requests and the container's check succeeds.
func (c *container) wait() error {
	// No other processes use this network, so certificates need no verification.
	client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := c.healthy(client)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *container) healthy(client *http.Client) error {
	for _, url := range c.URLs {
		response, err := client.Get(url)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s, %v\n%s", url, response.Status, err, body)
		}
	}
	if len(c.Check) == 0 {
		return nil
	}
	if out, err := c.command(c.Check).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(c.Check, " "), err, out)
	}
	return nil
}

// TestContainers runs the image in the ways in which the compose file and the chart run it. It shows that the
// image works in these ways.
func TestContainers(t *testing.T) {
	t.Parallel()
	root, env := buildImage(t)
	wantLicences(t, root)
	t.Run("compose", func(t *testing.T) {
		gateway := composed(t).Services["gateway"]
		c := container{
			Root: root, Args: append([]string{"/usr/bin/ocibridge"}, gateway.Command...), Env: slices.Clone(env),
			Files: map[string]string{}, Hosts: "registry", URLs: []string{"https://localhost:8443/readyz"}, Check: gateway.Healthcheck.Test[1:],
			Beside: [][]string{{command(t, "registry").Path, "serve", registryConfig(t)}},
		}
		for name, value := range gateway.Environment {
			c.Env = append(c.Env, name+"="+value)
		}
		for _, v := range gateway.Volumes {
			if v.Type == "bind" {
				c.Files[v.Target] = v.Source
			} else {
				c.Volumes = append(c.Volumes, v.Target)
			}
		}
		for _, folder := range gateway.Tmpfs {
			folder, _, _ = strings.Cut(folder, ":")
			c.Tmpfs = append(c.Tmpfs, folder)
		}
		contain(t, c)
	})
	for name, set := range map[string]string{"chart": "tls.secretName=", "chart with a certificate": "tls.secretName=tls"} {
		t.Run(name, func(t *testing.T) { contain(t, charted(t, root, env, set)) })
	}
}

// wantLicences checks that an image contains the licences of all modules in its program.
func wantLicences(t *testing.T, root string) {
	t.Helper()
	info, err := buildinfo.ReadFile(filepath.Join(root, "usr/bin/ocibridge"))
	if err != nil {
		t.Fatal(err)
	}
	modules := []string{"std"}
	for _, d := range info.Deps {
		modules = append(modules, d.Path)
	}
	for _, m := range modules {
		texts, err := os.ReadDir(filepath.Join(root, "usr/share/doc/ocibridge/third-party", m))
		if err != nil || len(texts) == 0 {
			t.Errorf("there is no licence of %s: %v", m, err)
		}
	}
}

// charted returns the container of the chart's gateway, in front of a registry. The probes of the gateway's pod
// must succeed.
func charted(t *testing.T, root string, env []string, set string) container {
	t.Helper()
	folder := t.TempDir()
	write := func(name string, data []byte) string {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	values := write("values.yaml", []byte(`image: {repository: registry.example.com/ocibridge}
config: |
  oci_mirror {
    repository_template = "registry:5000/${hostname}/${namespace}/${type}"
  }
  registry "registry:5000" {
    plain_http = true
  }
`))
	cert, err := tlsca.For(t).Issue("localhost")
	if err != nil {
		t.Fatal(err)
	}
	pod := rendered(t, values, "Deployment", "--set", set)[0].Spec.Template.Spec.Containers[0]
	c := container{
		Root: root, Args: append([]string{"/usr/bin/ocibridge"}, pod.Args...), Env: slices.Clone(env), Hosts: "registry",
		Files: map[string]string{
			"/etc/ocibridge/config/ocibridge.hcl": write("ocibridge.hcl", []byte(rendered(t, values, "ConfigMap", "--set", set)[0].Data["ocibridge.hcl"])),
			"/etc/ocibridge/tls/tls.crt":          write("tls.crt", cert.CertPEM),
			"/etc/ocibridge/tls/tls.key":          write("tls.key", cert.KeyPEM),
		},
		Empty:  []string{"/tmp", "/var/cache/ocibridge"},
		Beside: [][]string{{command(t, "registry").Path, "serve", registryConfig(t)}},
	}
	for _, v := range pod.Env {
		c.Env = append(c.Env, v.Name+"="+v.Value)
	}
	for _, p := range pod.Ports {
		for _, probe := range []probe{pod.StartupProbe, pod.LivenessProbe, pod.ReadinessProbe} {
			if get := probe.HTTPGet; get.Port == p.Name {
				c.URLs = append(c.URLs, fmt.Sprintf("%s://localhost:%d%s", strings.ToLower(get.Scheme), p.ContainerPort, get.Path))
			}
		}
		if p.Name == "metrics" {
			c.URLs = append(c.URLs, fmt.Sprintf("http://localhost:%d/metrics", p.ContainerPort))
		}
	}
	if len(c.URLs) != 4 {
		t.Fatalf("the probes request %v", c.URLs)
	}
	return c
}

// registryConfig writes the compose file's registry configuration with another folder, and returns its path.
func registryConfig(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("compose/registry.yml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "registry.yml")
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "/var/lib/registry", t.TempDir(), 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
