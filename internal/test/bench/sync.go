package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
)

// sync compares a sync of public modules with clones of the same tags by Git with a depth of one, which run one after another,
// as those of a client or of a script. Both get the modules from the same Git server. It also measures a second sync, which
// finds that nothing has changed. Each run uses a new registry.
func (b *bench) sync() error {
	certFile, keyFile, err := b.certificate()
	if err != nil {
		return err
	}
	root, err := b.subdir("git")
	if err != nil {
		return err
	}
	if err := writeRepositories(root); err != nil {
		return err
	}
	origin, err := b.startSelf("Git", gitCommand, root, certFile, keyFile)
	if err != nil {
		return err
	}
	defer origin.stop()
	ws, err := b.Workspace(fmt.Sprintf("host %q {\n  services = {\n    \"modules.v1\" = \"%s/v1/modules/\"\n  }\n}\n", publicHost, origin.url))
	if err != nil {
		return err
	}
	ws.Timeout = timeLimit
	ws.Env["GIT_SSL_CAINFO"], ws.Env["GIT_CONFIG_NOSYSTEM"] = b.CAFile, "1"
	path, err := exec.LookPath("git")
	if err != nil {
		return err
	}
	git := clients.Client{Name: "git", Path: path}
	var first, second, clones []time.Duration
	for run := range runs + 1 {
		took, err := b.syncTwice(ws)
		if err != nil {
			return err
		}
		cloning, err := cloneAll(ws, git, origin)
		if err != nil {
			return err
		}
		if run > 0 { // the first run only fills the caches of the system
			first, second, clones = append(first, took[0]), append(second, took[1]), append(clones, cloning)
		}
	}
	what := fmt.Sprintf("sync of %d public modules x %d versions", publicModules, publicVersions)
	rows := []row{
		{what: what, figure: fmt.Sprintf("%.2f s", median(first).Seconds()), ratio: medianRatio(first, clones), than: "git clone --depth 1, one after another", wanted: "<= 1.20"},
		{what: what + ", again", figure: fmt.Sprintf("%.2f s", median(second).Seconds()), ratio: medianRatio(second, first), than: "the first sync's time", wanted: "<= 0.10"},
	}
	rows[0].reached, rows[1].reached = rows[0].ratio <= 1.2, rows[1].ratio <= 0.1
	b.rows = append(b.rows, rows...)
	return nil
}

// syncTwice returns how long a sync into a new registry takes, and how long the next one does.
func (b *bench) syncTwice(ws *clients.Workspace) (took [2]time.Duration, err error) {
	reg, err := registry.Start(b.ctx, registry.Options{})
	if err != nil {
		return took, err
	}
	defer reg.Stop()
	var config strings.Builder
	fmt.Fprintf(&config, "module_mirror {\n  repository_template = \"%s/modules/${hostname}/${namespace}/${name}/${system}\"\n}\n", reg.Host)
	for i := range publicModules {
		fmt.Fprintf(&config, "module \"%s/platform/%s/aws\" {\n  latest = %d\n}\n", publicHost, benchModule(i), publicVersions)
	}
	file := filepath.Join(ws.Home, "ocibridge.hcl")
	if err := os.WriteFile(file, []byte(config.String()), 0o600); err != nil {
		return took, err
	}
	for i, says := range []string{"%d pushed", "%d in place"} {
		start := time.Now()
		out, err := ws.Run(b.bridge, "sync", "--config", file)
		took[i] = time.Since(start)
		if says = fmt.Sprintf(says, publicModules*publicVersions); err == nil && !strings.Contains(out, says) {
			err = fmt.Errorf("sync does not say %q:\n%s", says, out)
		}
		if err != nil {
			return took, err
		}
	}
	return took, nil
}

// cloneAll returns how long Git takes to clone each version that sync stores.
func cloneAll(ws *clients.Workspace, git clients.Client, origin *server) (time.Duration, error) {
	dir := filepath.Join(ws.Dir, "clones")
	start := time.Now()
	for i := range publicModules {
		for v := publicTags - publicVersions; v < publicTags; v++ {
			tag := "v" + publicVersion(v)
			_, err := ws.Run(git, "-c", "advice.detachedHead=false", "clone", "--quiet", "--depth", "1", "--branch", tag, origin.url+"/git/"+benchModule(i), filepath.Join(dir, benchModule(i), tag))
			if err != nil {
				return 0, errors.Join(err, os.RemoveAll(dir))
			}
		}
	}
	return time.Since(start), os.RemoveAll(dir)
}
