// Package run runs a command with a gateway of its own. The gateway is part of this process, and ends with the command.
//
// The command gets a CLI configuration for Terraform and OpenTofu in TF_CLI_CONFIG_FILE. This is the configuration that the
// client would have read, with a host block for each host whose providers or modules a template selects. The blocks
// send requests for these providers and modules to the gateway, and keep all other services of the hosts.
//
// Invariants: only the command knows the gateway's capability. The CLI configuration, which contains the capability and the
// user's tokens, is in a file that only the user can read. The package reads no variables and writes nothing to the terminal.
package run

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/svcauth"

	"github.com/ocibridge/ocibridge/internal/app/serve"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/clients/cliconfig"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// Options describe a command, and the gateway for it.
type Options struct {
	Command  []string       // the program and its arguments
	Settings serve.Settings // the settings of the gateway
	// Environment is where the user's CLI configuration is read from. The command gets the variables of this
	// environment.
	Environment cliconfig.Environment
	Hosts       []svchost.Hostname        // additional hosts whose providers the gateway serves
	Credentials svcauth.CredentialsSource // the user's API tokens, for discovery; nil means none
	Folders     []string                  // the folders for the file with the CLI configuration, in order of preference
	Cache       string                    // the folder of cached discovery documents; "" means no cache
	NoStore     bool                      // lay no packages into the client's data folder
	// Waiting is called once if the command has to wait for so many packages, for at most the given time. It may be nil.
	Waiting func(packages int, atMost time.Duration)

	Stdin, Stdout, Stderr *os.File // the standard streams of the command

	Log       *slog.Logger
	Notices   *slog.Logger // messages about the user's own files, which the user should see even if the command succeeds
	Version   string       // the version of this program
	UserAgent string       // the name of this program in requests
}

// Result is the outcome of a command that ran.
type Result struct {
	Status int // the exit status, as in shells

	// The rest is empty if the command succeeded.

	Missing        []Missing          // what the command requested or needs, and the gateway does not have
	MissingModules []module.Address   // the requested modules without a version in the registry
	Unasked        []svchost.Hostname // the hosts that the gateway serves, if the command sent no request to the gateway
}

// Run runs a command. It returns an error if the command did not run. If the reason is the command itself, the error is a
// [*StatusError].
func Run(ctx context.Context, o Options) (*Result, error) {
	program, err := find(o.Command[0])
	if err != nil {
		return nil, err
	}
	// 1. Read the client's own configuration.
	merged, err := readMerged(o.Command[0], o.Environment)
	if err != nil {
		return nil, err
	}
	for _, w := range merged.Warnings {
		o.Notices.Warn(w)
	}
	// 2. Find the hosts and their services.
	served, err := o.hosts()
	if err != nil {
		return nil, err
	}
	served.providers = o.withoutBlocked(merged, served.providers, served.named)
	origins := o.discovery().all(ctx, served.all(), merged.Hosts())
	// 3. Start the gateway.
	requests := &requests{}
	gateway, err := serve.StartLocal(ctx, serve.LocalOptions{
		Settings: o.Settings, Listed: requests.listed, Lacks: requests.lacks, LacksModule: requests.lacksModule, Log: o.Log, Version: o.Version,
		DeprecatedModule: func(a module.Address, v provider.Version, reason string) {
			if text := fmt.Sprintf("%s %s is deprecated here: %s", a, v, reason); !requests.said(text) {
				o.Notices.Warn(text)
			}
		},
		Origin: func(host svchost.Hostname) *url.URL { return originOf(host, origins[host], providersID) },
		ModuleOrigin: func(host svchost.Hostname) (*url.URL, error) {
			if origins[host] == nil {
				return nil, hint.New("the services of "+host.ForDisplay()+" are unknown", "is it reachable? Otherwise, push the module")
			}
			return originOf(host, origins[host], modulesID), nil
		},
	})
	if err != nil {
		return nil, err
	}
	// 4. Lay the packages that the client needs, and run the command.
	o.lay(ctx, merged, gateway, served)
	status, err := o.run(ctx, program, merged, blocks(gateway, served, origins), served.providers)
	r := &Result{Status: status}
	if err == nil && status != 0 {
		r.Missing = requests.missing(ctx, readNeeds(folderOf(o.Command[1:])), upgrades(o.Command[1:]), gateway)
		r.MissingModules = requests.missingModules()
		if !gateway.Requested() && !(status == 2 && plansChanges(o.Command[1:])) {
			r.Unasked = served.all()
		}
	}
	// 5. Stop the gateway.
	if cerr := gateway.Close(ctx); cerr != nil {
		o.Log.Warn("the gateway did not stop as it should", "err", cerr)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// run runs the command with a CLI configuration that contains the given host blocks. The client must be able to install
// providers from the given hosts.
func (o *Options) run(ctx context.Context, program string, merged *cliconfig.Merged, blocks map[svchost.Hostname]services, providers []svchost.Hostname) (int, error) {
	text, err := merged.WithHosts(blocks, providers)
	if err != nil {
		return 0, err
	}
	file, err := writePrivate(o.Folders, text)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err := file.remove(); err != nil {
			o.Notices.Error("a file with the user's tokens is left behind", "file", file.path(), "err", err, "hint", "remove it")
		}
	}()
	if ctx.Err() != nil {
		return 0, hint.New("interrupted before the command began", "run it again")
	}
	cmd := exec.Command(program, o.Command[1:]...)
	cmd.Args[0] = o.Command[0]
	cmd.Env = append(o.Environment.Environ(), o.Environment.Substitute(file.path())...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.Stdin, o.Stdout, o.Stderr
	return runChild(cmd)
}

// blocks returns the host blocks that send requests to the gateway.
func blocks(gateway *serve.Local, served *hosts, origins map[svchost.Hostname]services) map[svchost.Hostname]services {
	out := map[svchost.Hostname]services{}
	for host, s := range origins {
		out[host] = services{}
		maps.Copy(out[host], s)
		if slices.Contains(served.providers, host) {
			out[host][providersID] = gateway.RegistryURL(host)
		}
		if slices.Contains(served.modules, host) {
			out[host][modulesID] = gateway.ModulesURL(host)
		}
	}
	return out
}

// discovery returns the service discovery of a command.
func (o *Options) discovery() *discovery {
	transport := outgoing.Transport()
	outgoing.Trust(transport, o.Settings.Origins.CAs)
	d := &discovery{transport: transport, credentials: o.Credentials, userAgent: o.UserAgent, folder: o.Cache, now: time.Now, log: o.Log}
	if err := privatefolder.Check(o.Cache); o.Cache != "" && err != nil {
		o.Log.Warn("discovery documents are not cached", "err", err, "hint", hint.Of(err))
		d.folder = ""
	}
	return d
}

// hosts are the hosts whose providers or modules the gateway serves.
type hosts struct {
	providers, modules []svchost.Hostname
	// named are the hosts of providers that a template, a flag or the command's folder names.
	named []svchost.Hostname
	needs needs // what the command's folder names
}

// all returns all hosts once.
func (h *hosts) all() []svchost.Hostname {
	out := slices.Concat(h.providers, h.modules)
	slices.Sort(out)
	return slices.Compact(out)
}

// hosts returns the hosts that the gateway serves. It returns an error if no template covers a host in o.Hosts. The
// embedded registry serves modules only for the hosts whose modules it stores or pulls through. For other hosts, clients still use the
// host's own module registry, and send it their tokens.
func (o *Options) hosts() (*hosts, error) {
	set := o.Settings.Repositories.Templates
	rules, ofModules := rulesOf(subject.Provider, set), rulesOf(subject.Module, set)
	for _, host := range o.Hosts {
		if !selectsHost(rules, host) && !selectsHost(ofModules, host) {
			help := "widen the include patterns"
			if hasPort(host) {
				help = "a repository name cannot hold a port: include the host in a template without ${hostname}"
			}
			return nil, hint.New("no template is for providers of "+host.ForDisplay(), "%s, or leave out --host %s", help, host.ForDisplay())
		}
	}
	n, defaults := readNeeds(folderOf(o.Command[1:])), defaultHosts(o.Command[0])
	out := &hosts{needs: n, named: servedHosts(rules, slices.Concat(o.Hosts, n.hosts(defaults)))}
	out.providers = servedHosts(rules, slices.Concat(publicHosts, out.named))
	if len(set) > 0 {
		out.modules = servedHosts(ofModules, slices.Concat(publicHosts, o.Hosts, n.moduleHosts(defaults)))
		return out, nil
	}
	var err error
	out.modules, err = serve.StoredModuleHosts(o.Settings.Repositories.DataFolder)
	out.modules = append(out.modules, o.pulledModuleHosts(slices.Concat(o.Hosts, n.moduleHosts(defaults)))...)
	return out, err
}

// pulledModuleHosts returns the hosts whose modules are pulled through: those that the configuration names, and those of the
// given hosts that a pattern for all hosts covers.
func (o *Options) pulledModuleHosts(hosts []svchost.Hostname) []svchost.Hostname {
	var out []svchost.Hostname
	for _, host := range o.Settings.Config.PulledModuleHosts() {
		out = append(out, host.Name)
	}
	p := o.Settings.Config.PullThrough
	if p == nil || !p.Enabled {
		return out
	}
	if slices.ContainsFunc(p.Selector.Include, func(p subject.Pattern) bool {
		_, named := p.ServiceHost()
		return !named && p.Kind() == subject.Module
	}) {
		out = append(out, hosts...)
	}
	return out
}

// withoutBlocked removes the hosts that the client asks for no provider because of a provider_installation block. It
// keeps named hosts. If no other host remains, it keeps all hosts, so that [cliconfig.Merged.WithHosts] returns an
// error that names the block.
func (o *Options) withoutBlocked(merged *cliconfig.Merged, hosts, named []svchost.Hostname) []svchost.Hostname {
	var out []svchost.Hostname
	blocked := map[svchost.Hostname]error{}
	for _, host := range hosts {
		if err := merged.CheckInstallation(host); err != nil && !slices.Contains(named, host) {
			blocked[host] = err
		} else {
			out = append(out, host)
		}
	}
	if len(out) == 0 {
		return hosts
	}
	for _, host := range slices.Sorted(maps.Keys(blocked)) {
		err := blocked[host]
		o.Log.Warn("the CLI configuration keeps clients from asking the gateway for a host's providers", "host", host.ForDisplay(), "err", err, "hint", hint.Of(err))
	}
	return out
}

// folderOf returns the folder in which a client with the given arguments works.
func folderOf(args []string) string {
	for _, a := range args {
		for _, option := range []string{"-chdir=", "--chdir="} {
			if dir, ok := strings.CutPrefix(a, option); ok {
				return dir
			}
		}
	}
	return "."
}

// plansChanges reports whether status 2 of a client with the given arguments means that a plan has changes.
func plansChanges(args []string) bool {
	return slices.Contains(args, "-detailed-exitcode") || slices.Contains(args, "--detailed-exitcode")
}

// upgrades reports whether a client with the given arguments ignores the versions in the lock file.
func upgrades(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		return slices.Contains([]string{"-upgrade", "--upgrade", "-upgrade=true", "--upgrade=true"}, a)
	})
}

// readMerged reads the CLI configuration of the client that a command runs. For another program, such as a shell, it
// reads Terraform's files, unless only OpenTofu's exist.
func readMerged(command string, env cliconfig.Environment) (*cliconfig.Merged, error) {
	name := clientName(command)
	if name == "tofu" {
		return cliconfig.ReadMerged(env, cliconfig.OpenTofu)
	}
	merged, err := cliconfig.ReadMerged(env, cliconfig.Terraform)
	if err == nil && len(merged.Files) == 0 && name != "terraform" {
		return cliconfig.ReadMerged(env, cliconfig.OpenTofu)
	}
	return merged, err
}
