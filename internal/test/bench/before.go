package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
)

const (
	beforeName = "the earlier build"
	// beforeWanted is the target for the ratio of this build's speed to the earlier build's.
	beforeWanted = 0.93
	beforeRuns   = 15
)

// before compares this build with an earlier one. Both have the same configuration and the same registry, and take turns.
func (b *bench) before(program string) error {
	if program == "" {
		return errors.New("the flag -before does not name the earlier program")
	}
	certFile, keyFile, err := b.certificate()
	if err != nil {
		return err
	}
	reg, err := registry.Start(b.ctx, registry.Options{})
	if err != nil {
		return err
	}
	defer reg.Stop()
	template := reg.Host + "/providers/${hostname}/${namespace}/${type}"
	err = b.publish(template)
	if err == nil {
		_, err = b.publishInit(template)
	}
	if err != nil {
		return err
	}
	earlier := *b
	earlier.bridge = clients.Client{Name: b.bridge.Name, Path: program}
	both := []*bench{b, &earlier}
	var gateways, roots []*server
	for _, build := range both {
		gateway, _, err := build.startGateway(certFile, keyFile, template)
		if err != nil {
			return err
		}
		defer gateway.stop()
		gateways, roots = append(gateways, gateway), append(roots, &server{name: gateway.name, url: rootOf(gateway)})
	}
	roots[1].name = beforeName
	for _, a := range warm() {
		a.than, a.wanted = beforeName, beforeWanted
		for _, http2 := range []bool{false, true} {
			if err := b.compare(a, http2, roots); err != nil {
				return fmt.Errorf("%s: %w", a.what, err)
			}
		}
	}
	for _, name := range []string{"tofu", "terraform"} {
		client, err := clients.Find(name)
		if err == nil {
			err = b.initsBefore(client, template, both, gateways)
		}
		if err != nil {
			return err
		}
	}
	return b.startsBefore(template, both)
}

// warm returns the resources that a gateway serves from memory or its cache. The paths are below the gateway's root.
func warm() []asked {
	out := documents()
	for i := range out {
		out[i].path, out[i].requests, out[i].runs = "/providers"+out[i].path, 300, beforeRuns
	}
	list, download, archived := out[0], out[0], archives()[0]
	list.what, list.path, list.requests = "versions", registryPath+"acme/bench/versions", 100
	download.what, download.path, download.requests = "download", registryPath+"acme/bench/"+last()+"/download/linux/arch0", 100
	archived.path = "/providers" + archived.path
	out = append(out, list, download, archived)
	for i := range out {
		out[i].what = "warm " + out[i].what
	}
	return out
}

// initsBefore compares init through the gateways, and by exec.
func (b *bench) initsBefore(client clients.Client, template string, both []*bench, gateways []*server) error {
	ws, err := b.Workspace("")
	if err == nil {
		err = ws.WriteConfig(use(initNames()))
	}
	if err != nil {
		return err
	}
	exec := source{config: b.HostBlock(), exec: []string{"exec", "--template", template, "--"}}
	for _, way := range []struct {
		name string
		from func(*server) source
	}{{"network_mirror", networkMirror}, {"host", hostBlock}, {"exec", func(*server) source { return exec }}} {
		measure := func(k int) (time.Duration, error) { return both[k].timedInit(ws, client, way.from(gateways[k]), false) }
		if err := b.addBefore(fmt.Sprintf("%s init by %s", client.Name, way.name), runs, beforeWanted, measure); err != nil {
			return err
		}
	}
	return nil
}

// startsBefore compares how fast the programs start. It has no target, because each new library that the program links makes the
// start longer.
func (b *bench) startsBefore(template string, both []*bench) error {
	ws, err := b.plainWorkspace()
	if err != nil {
		return err
	}
	exec := func(k int) (time.Duration, error) {
		return both[k].timedRun(ws, "exec", "--template", template, "--", "true")
	}
	if err := b.addBefore("exec of a command that does nothing", 8*runs, 0, exec); err != nil {
		return err
	}
	return b.addBefore("start of the program", 8*runs, 0, func(k int) (time.Duration, error) { return both[k].timedRun(ws, "version") })
}

// addBefore measures something with both builds, and adds a row. k is 0 for this build, and 1 for the earlier one. wanted is the
// target for the ratio, or 0.
func (b *bench) addBefore(what string, runs int, wanted float64, measure func(k int) (time.Duration, error)) error {
	var took [2][]time.Duration
	for run := range runs + 1 {
		for i := range took {
			k := (i + run) % len(took) // the order changes with each run
			t, err := measure(k)
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			if run > 0 { // the first run only fills caches
				took[k] = append(took[k], t)
			}
		}
	}
	r := row{what: what, figure: fmt.Sprintf("%.0f ms", median(took[0]).Seconds()*1e3), ratio: medianRatio(took[1], took[0]), than: beforeName, wanted: nothing}
	if wanted > 0 {
		r.wanted, r.reached = fmt.Sprintf(">= %.2f", wanted), r.ratio >= wanted
	}
	b.rows = append(b.rows, r)
	return nil
}
