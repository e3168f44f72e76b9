package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// The configuration that init initializes calls 30 modules. Each of them has moduleFiles files of moduleKiB.
const (
	benchModules  = 30
	moduleFiles   = 16
	moduleKiB     = 8
	moduleVersion = "1.0.0"
)

// moduleSource is a place from which a client can install modules.
type moduleSource struct {
	name    string
	address func(module string) string // the source argument of a module block
	version bool                       // whether the module block has a version
	cli     string                     // the CLI configuration
}

// modules compares how long a client's init takes for modules from the gateway, by oci:// from its registry, and from
// local bare Git repositories. Terraform cannot read oci://. The gateway has served the same requests before.
func (b *bench) modules() error {
	certFile, keyFile, err := b.certificate()
	if err != nil {
		return err
	}
	reg, err := registry.Start(b.ctx, registry.Options{CertFile: certFile, KeyFile: keyFile})
	if err != nil {
		return err
	}
	defer reg.Stop()
	repositories, err := b.publishModules(reg.Host + "/modules/${hostname}/${namespace}/${name}/${system}")
	if err != nil {
		return err
	}
	gateway, _, err := b.startGatewayWith(certFile, keyFile, reg.Host+"/providers/${hostname}/${namespace}/${type}", func(dir string) string {
		return fmt.Sprintf("module_mirror {\n  repository_template = \"%s/modules/${hostname}/${namespace}/${name}/${system}\"\n}\ngateway {\n  cache {\n    directory = %q\n  }\n}\n",
			reg.Host, filepath.Join(dir, "cache"))
	})
	if err != nil {
		return err
	}
	defer gateway.stop()
	host := fmt.Sprintf("host %q {\n  services = {\n    \"modules.v1\" = \"%s/hosts/%[1]s/v1/modules/\"\n  }\n}\n", world.Host, rootOf(gateway))
	sources := []moduleSource{
		{"the gateway", moduleAddress, true, host},
		{"git", func(m string) string {
			return "git::file://" + filepath.Join(repositories, m) + "?ref=v" + moduleVersion
		}, false, ""},
		{"oci://", func(m string) string {
			return "oci://" + reg.Host + "/modules/" + moduleAddress(m) + "?tag=" + moduleVersion
		}, false, ""},
	}
	for _, name := range []string{"tofu", "terraform"} {
		client, err := clients.Find(name)
		if err != nil {
			return err
		}
		if name == "terraform" {
			sources = sources[:2]
		}
		if err := b.compareModules(client, sources); err != nil {
			return err
		}
	}
	return nil
}

func moduleAddress(m string) string { return world.Host + "/platform/" + m + "/aws" }

func benchModule(i int) string { return fmt.Sprintf("module%d", i) }

// publishModules creates the modules, and pushes them into the registry. It also commits each of them into a bare Git
// repository, and returns the folder of the repositories.
func (b *bench) publishModules(template string) (repositories string, err error) {
	if repositories, err = b.subdir("repositories"); err != nil {
		return "", err
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return "", err
	}
	for i := range benchModules {
		dir, err := b.subdir(filepath.Join("modules", benchModule(i)))
		if err != nil {
			return "", err
		}
		if err := writeModule(dir, uint64(i)); err != nil {
			return "", err
		}
		if _, err := b.ws.Run(b.bridge, "module", "push", dir, "--as", moduleAddress(benchModule(i))+"@"+moduleVersion, "--template", template); err != nil {
			return "", err
		}
		run := func(args ...string) {
			if err == nil {
				_, err = b.ws.Run(clients.Client{Name: "git", Path: git}, append([]string{"-C", dir, "-c", "user.name=bench", "-c", "user.email=bench@example.com"}, args...)...)
			}
		}
		run("init", "--quiet")
		run("add", ".")
		run("commit", "--quiet", "--message", "The module")
		run("tag", "v"+moduleVersion)
		run("clone", "--quiet", "--bare", dir, filepath.Join(repositories, benchModule(i)))
		if err != nil {
			return "", err
		}
	}
	return repositories, nil
}

// writeModule writes the files of a module. Their content is text, and differs between modules.
func writeModule(dir string, seed uint64) error {
	random := rand.New(rand.NewPCG(seed, 0))
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "docs"), 0o755), os.WriteFile(filepath.Join(dir, "main.tf"), []byte("output \"id\" { value = \"id\" }\n"), 0o644))
	for i := range moduleFiles {
		var text strings.Builder
		for text.Len() < moduleKiB<<10 {
			fmt.Fprintf(&text, "The subnet %d has the number %d.\n", random.Uint32(), random.Uint32())
		}
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "docs", fmt.Sprintf("%d.md", i)), []byte(text.String()), 0o644))
	}
	return err
}

// compareModules measures init in several runs, and adds a row for each source but Git, the second source.
func (b *bench) compareModules(client clients.Client, sources []moduleSource) error {
	ws, err := b.Workspace("")
	if err != nil {
		return err
	}
	took := make([][]time.Duration, len(sources))
	for run := range runs + 1 {
		for i := range sources {
			k := (i + run) % len(sources) // the order changes with each run
			if err := ws.WriteConfig(sources[k].calls()); err != nil {
				return err
			}
			t, err := b.timedInit(ws, client, source{config: sources[k].cli}, false)
			if err != nil {
				return fmt.Errorf("%s: %w", sources[k].name, err)
			}
			if run > 0 { // the first run only fills caches
				took[k] = append(took[k], t)
			}
		}
	}
	for k, s := range sources {
		if s.name == "git" {
			continue
		}
		b.rows = append(b.rows, row{
			what:   fmt.Sprintf("%s init of %d modules of %d KiB by %s", client.Name, benchModules, moduleFiles*moduleKiB, s.name),
			figure: fmt.Sprintf("%.2f s", median(took[k]).Seconds()), ratio: medianRatio(took[k], took[1]), than: "Git's time", wanted: nothing,
		})
	}
	return nil
}

// calls returns the configuration that calls the modules.
func (s moduleSource) calls() string {
	var out strings.Builder
	for i := range benchModules {
		fmt.Fprintf(&out, "module %q {\n  source = %q\n", benchModule(i), s.address(benchModule(i)))
		if s.version {
			fmt.Fprintf(&out, "  version = %q\n", moduleVersion)
		}
		out.WriteString("}\n")
	}
	return out.String()
}
