// Command demo shows what ocibridge does. It uses real parts: a signed release of the null provider, the
// provider's origin registry, a push, the gateway, and clients that install from the gateway. "make demo" runs
// it.
//
// The clients are the tofu and the terraform in .tools/bin or on PATH. If there is none, the demo sends the requests of a
// client itself, because it takes minutes to build a client.
//
// It uses only the loopback interface and a temporary folder.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// The demo pushes the version named version. It does not push unpushed, which the gateway pulls through.
const version, unpushed = "3.2.4", "4.0.0"

func main() {
	keep := flag.Bool("keep", false, "leave the gateway running until an interrupt or SIGTERM")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	start := time.Now()
	if err := run(ctx, *keep); err != nil {
		fmt.Printf("\nThe demo failed: %v\n", err)
		os.Exit(1)
	}
	fmt.Printf("\nAll of it worked, in %s.\n", time.Since(start).Round(time.Second))
}

// demo contains the state of the demo.
type demo struct {
	*world.World
	ctx     context.Context
	bridge  clients.Client
	clients []client // the clients that this machine has; maybe none
	pushing *clients.Workspace
	data    string
	act     int
}

func run(ctx context.Context, keep bool) error {
	dir, err := os.MkdirTemp("", "ocibridge-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w, err := world.New(dir)
	if err != nil {
		return err
	}
	defer w.Close()
	d := &demo{World: w, ctx: ctx, data: dir + "/data"}
	if err := d.findPrograms(); err != nil {
		return err
	}
	if d.pushing, err = d.Workspace(""); err != nil {
		return err
	}
	if err := d.publish(); err != nil {
		return err
	}
	if err := d.push(); err != nil {
		return err
	}
	gateway, err := d.serve()
	if err != nil {
		return err
	}
	defer gateway.Stop()
	if err := d.install(gateway); err != nil {
		return err
	}
	if err := d.pullThrough(gateway); err != nil {
		return err
	}
	if keep {
		d.keep(gateway)
	}
	d.title("The gateway shuts down when it is told to.")
	d.say("It was at %s. \"make demo KEEP=1\" leaves it running.", gateway.Root)
	if err := gateway.Stop(); ctx.Err() == nil {
		return err
	}
	return nil // the interrupt from the terminal stopped the gateway, too
}

// findPrograms finds the programs, and prints which clients the demo runs.
func (d *demo) findPrograms() (err error) {
	if d.bridge, err = clients.Bridge(); err != nil {
		return err
	}
	if _, err = clients.NullProvider(); err != nil {
		return err
	}
	if d.clients, err = findClients(d.Dir); err != nil {
		return err
	}
	for _, c := range d.clients {
		d.say("%-9s %s, %s", c.Name, c.version, c.Path)
	}
	if len(d.clients) == 0 {
		d.say("Neither tofu nor terraform is on PATH: the demo sends the requests of a client itself.")
		d.say("With one of them, it installs providers. \"tools/install.sh tofu\" builds OpenTofu in a few minutes.")
	}
	return nil
}

// publish creates both releases, and adds them to the origin.
func (d *demo) publish() error {
	d.title("Acme builds the null provider from source, signs two versions of it, and offers them at its registry.")
	for _, v := range []string{version, unpushed} {
		if err := d.release(v); err != nil {
			return err
		}
	}
	d.say("%s is %s, as this block in the CLI configuration says:", world.Host, d.OriginURL)
	d.show(d.HostBlock())
	return nil
}

// release creates the release of a version, and adds it to the origin.
func (d *demo) release(version string) error {
	r, err := d.NullRelease(version)
	if err != nil {
		return err
	}
	for _, p := range r.Packages {
		d.say("%s, %.1f MiB, SHA-256 %s...", p.Filename, float64(p.Size)/(1<<20), p.SHA256[:16])
	}
	d.say("signed by the key %s", d.Signer.Fingerprint())
	d.Origin.Add(r)
	return nil
}

// push pushes a version twice. The second push shows that nothing is uploaded again.
func (d *demo) push() error {
	d.title("ocibridge push takes it from there, verifies it and stores it in an OCI registry: its own, as nothing else is configured.")
	push := []string{"push", world.Null + "@~> 3.2", "--data", d.data}
	if err := d.run(d.pushing, d.bridge, push...); err != nil {
		return err
	}
	d.title("Pushed again, nothing is sent.")
	return d.run(d.pushing, d.bridge, push...)
}

// serve starts the gateway.
func (d *demo) serve() (*world.Gateway, error) {
	d.title("ocibridge serve answers clients from that registry.")
	d.say("$ ocibridge serve --data %s --tls-self-signed", d.data)
	g, err := world.Serve(d.pushing, "--data", d.data, "--tls-self-signed")
	if err != nil {
		return nil, err
	}
	d.say("network mirror:   %s", g.URL)
	d.say("OCI repositories: %s", g.RepositoryTemplate)
	d.say("SSL_CERT_FILE:    %s", g.CAFile)
	return g, nil
}

// install makes each client install the pushed version, with every installation method that the client supports.
func (d *demo) install(g *world.Gateway) error {
	if len(d.clients) == 0 {
		d.title("A client asks the network mirror for the version, and downloads the package.")
		return d.request(g, version)
	}
	for _, c := range d.clients {
		for _, way := range c.ways(g) {
			d.title("%s installs it by %s, and applies a configuration with it.", c.Name, way.method)
			if err := d.use(g, c.Client, version, way.config); err != nil {
				return err
			}
		}
	}
	return nil
}

// pullThrough installs the version that the demo does not push. It installs it first while the origin runs, and
// again after the origin has stopped.
func (d *demo) pullThrough(g *world.Gateway) error {
	d.title("Nobody pushed %s: the gateway fetches it when a client asks for it, verifies it, and stores it.", unpushed)
	if len(d.clients) == 0 {
		if err := d.request(g, unpushed); err != nil {
			return err
		}
	} else if err := d.use(g, d.clients[0].Client, unpushed, world.NetworkMirror(g.URL)); err != nil {
		return err
	}
	if err := d.stored(g); err != nil {
		return err
	}
	d.title("Acme's registry is switched off. What was pulled through is in the registry: verified again, and installed.")
	if err := d.World.Close(); err != nil {
		return err
	}
	if err := d.run(d.pushing, d.bridge, "verify", world.Null+"@"+unpushed, "--data", d.data); err != nil {
		return err
	}
	if len(d.clients) == 0 {
		return d.request(g, unpushed)
	}
	for _, c := range d.clients {
		ways := c.ways(g)
		if err := d.use(g, c.Client, unpushed, ways[len(ways)-1].config); err != nil {
			return err
		}
	}
	return nil
}

// keep leaves the gateway running until an interrupt.
func (d *demo) keep(g *world.Gateway) {
	d.title("The gateway runs until you press Ctrl-C.")
	d.say("its page:         %s", g.Root)
	d.say("network mirror:   %s", g.URL)
	d.say("its CA:           %s", g.CAFile)
	d.say("To see what a client sees, run in another terminal:")
	d.say("  curl --cacert %s %s%s/index.json", g.CAFile, g.URL, world.Null)
	<-d.ctx.Done()
	fmt.Println()
}

// stored waits until the registry contains the version that was pulled through.
func (d *demo) stored(g *world.Gateway) error {
	ctx, cancel := context.WithTimeout(d.ctx, clients.DefaultTimeout)
	defer cancel()
	for d.pushing.Command(ctx, d.bridge, "inspect", world.Null+"@"+unpushed, "--data", d.data).Run() != nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is not stored:\n%s", g.Log())
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// use makes a client install a version, and apply a configuration that uses the version. The client cannot reach
// the origin.
func (d *demo) use(g *world.Gateway, client clients.Client, version, config string) error {
	ws, err := d.Workspace("")
	if err != nil {
		return err
	}
	if err := ws.WriteCLIConfig(config); err != nil {
		return err
	}
	ws.TrustCA(g.CAFile)
	if err := ws.WriteConfig(world.UseNull(version)); err != nil {
		return err
	}
	d.show(config)
	if err := d.run(ws, client, "init", "-no-color"); err != nil {
		return err
	}
	if err := d.run(ws, client, "apply", "-auto-approve", "-no-color"); err != nil {
		return err
	}
	lock, err := ws.Lock()
	if err != nil {
		return err
	}
	d.say("locked: %s %s", lock[world.Null].Version, strings.Join(lock[world.Null].Hashes, " "))
	return nil
}

// run runs a program, and prints the command and the output.
func (d *demo) run(ws *clients.Workspace, c clients.Client, args ...string) error {
	quoted := make([]string, len(args))
	for i, a := range args {
		if quoted[i] = a; strings.ContainsAny(a, " ~$") {
			quoted[i] = "'" + a + "'"
		}
	}
	d.say("$ %s %s", c.Name, strings.Join(quoted, " "))
	ctx, cancel := context.WithTimeout(d.ctx, clients.DefaultTimeout)
	defer cancel()
	out, err := ws.Command(ctx, c, args...).CombinedOutput()
	d.show(string(out))
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return nil
}

func (d *demo) title(format string, args ...any) {
	d.act++
	fmt.Printf("\n%d. "+format+"\n\n", append([]any{d.act}, args...)...)
}

func (d *demo) say(format string, args ...any) { fmt.Printf("   "+format+"\n", args...) }

// show prints a text with indented lines, and omits blank lines.
func (d *demo) show(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.TrimSpace(line) != "" {
			fmt.Printf("      %s\n", line)
		}
	}
}
