package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// execs compares init by "ocibridge exec" with init from nginx. Both use a host block. The time of exec includes its
// start. Its cache has the packages.
func (b *bench) execs(template string, nginx *server) error {
	prefix := []string{"exec", "--template", template, "--"}
	for _, name := range []string{"tofu", "terraform"} {
		client, err := clients.Find(name)
		if err != nil {
			return err
		}
		if err := b.compareExec(client, source{name: "exec", config: b.HostBlock(), exec: prefix}, hostBlock(nginx)); err != nil {
			return err
		}
	}
	return b.execStart(prefix)
}

// compareExec measures init in several runs, and adds a row.
func (b *bench) compareExec(client clients.Client, exec, nginx source) error {
	ws, err := b.Workspace("")
	if err != nil {
		return err
	}
	if err := ws.WriteConfig(use(initNames())); err != nil {
		return err
	}
	var took, of []time.Duration
	for run := range runs + 1 {
		t, err := b.timedInit(ws, client, exec, false)
		if err != nil {
			return err
		}
		n, err := b.timedInit(ws, client, nginx, false)
		if err != nil {
			return err
		}
		if run > 0 { // the first run only fills caches
			took, of = append(took, t), append(of, n)
		}
	}
	r := row{
		what:   fmt.Sprintf("%s init of %d x %d MB by exec", client.Name, initProviders, initMiB<<20/1_000_000),
		figure: fmt.Sprintf("%.2f s", median(took).Seconds()), ratio: medianRatio(took, of), than: "nginx's time", wanted: "<= 1.20",
	}
	r.reached = r.ratio <= 1.2
	b.rows = append(b.rows, r)
	return nil
}

// startWanted is the target for the time from the start of exec to the end of a command that does nothing.
const startWanted = 50 * time.Millisecond

// execStart measures a command that does nothing. The discovery document of one host is cached, because a first run
// would wait for the host.
func (b *bench) execStart(prefix []string) error {
	ws, err := b.plainWorkspace()
	if err != nil {
		return err
	}
	var took []time.Duration
	for range 3 * runs {
		t, err := b.timedRun(ws, append(prefix, "true")...)
		if err != nil {
			return err
		}
		took = append(took, t)
	}
	t := median(took)
	b.rows = append(b.rows, row{
		what: "exec of a command that does nothing", figure: fmt.Sprintf("%d ms", t.Milliseconds()),
		ratio: t.Seconds() / startWanted.Seconds(), than: startWanted.String(), wanted: "<= 1.00", reached: t <= startWanted,
	})
	return nil
}

// timedRun returns how long the program takes.
func (b *bench) timedRun(ws *clients.Workspace, args ...string) (time.Duration, error) {
	start := time.Now()
	_, err := ws.Run(b.bridge, args...)
	return time.Since(start), err
}

// plainWorkspace returns a workspace that needs one provider, whose host's discovery document is cached.
func (b *bench) plainWorkspace() (*clients.Workspace, error) {
	ws, err := b.Workspace("")
	if err != nil {
		return nil, err
	}
	cached := filepath.Join(ws.Home, ".cache", "ocibridge", "discovery", "registry.bench.example.json")
	document := fmt.Sprintf(`{"fetched": %q, "services": {"modules.v1": "https://registry.bench.example/v1/modules/"}}`, time.Now().Format(time.RFC3339))
	err = errors.Join(os.MkdirAll(filepath.Dir(cached), 0o700), os.WriteFile(cached, []byte(document), 0o600),
		ws.WriteConfig(fmt.Sprintf("terraform {\n  required_providers {\n    widget = {\n      source = %q\n    }\n  }\n}\n", "registry.bench.example/acme/widget")))
	return ws, err
}
