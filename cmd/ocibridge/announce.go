package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/internal/app/clientsetup"
	"github.com/ocibridge/ocibridge/internal/app/serve"
	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// announce prints the URL of a gateway with the settings s, and the settings that its clients need. It prints JSON
// if asJSON is set.
func announce(w io.Writer, a serve.Address, s serve.Settings, asJSON bool) error {
	mirror := a.URL.JoinPath(gateway.MirrorPath).String()
	alone := len(s.Config.ModuleTexts()) > 0 && len(s.Repositories.Templates.Of(subject.Provider)) == 0
	if asJSON {
		pulls, ofProviders := "", mirror
		if pulled(a, s, alone) != "" {
			pulls = "on"
		}
		if alone {
			ofProviders = ""
		}
		return json.NewEncoder(w).Encode(struct {
			Address  string `json:"address,omitempty"`
			CAFile   string `json:"ca_file,omitempty"`
			Gateway  string `json:"gateway_url"`
			Pulls    string `json:"pull_through,omitempty"`
			Template string `json:"repository_template,omitempty"`
			URL      string `json:"url,omitempty"`
		}{a.Listens, a.CAFile, a.URL.String(), pulls, a.Template(), ofProviders})
	}
	listens := ""
	if a.Listens != "" {
		listens = "Listening on " + a.Listens + "\n"
	}
	modules := &clientsetup.Setup{URL: a.URL.String(), Modules: s.Config.ModuleTexts(), Pulled: s.Config.PulledModuleHosts(), Tokens: a.Tokens}
	if a.Embedded {
		// If the folder cannot be read, only a line of the text is missing.
		modules.Stored, _ = serve.StoredModuleHosts(s.Repositories.DataFolder)
	}
	if alone {
		fmt.Fprintf(w, "Serving modules at %s\n%sWeb page: %s\n\n", a.URL, listens, a.URL)
	} else {
		fmt.Fprintf(w, "Serving providers at %s\n%sWeb page: %s\n\n", mirror, listens, a.URL)
	}
	if what := pulled(a, s, alone); what != "" {
		fmt.Fprintf(w, "If the registry lacks %s, serve fetches it from its origin, verifies it and stores it. To turn this off: --no-pull-through\n\n", what)
	}
	if a.AsClients {
		fmt.Fprintf(w, "If registry.opentofu.org has no key of a publisher, checksums alone verify the provider, as in OpenTofu. A trust block in ocibridge.hcl can change that.\n\n")
	}
	if a.URL.Scheme == "http" {
		fmt.Fprintf(w, "Clients speak TLS only: put a proxy that speaks TLS in front, and set public_url in the gateway block to the address of the proxy.\n\n")
		return nil
	}
	if alone {
		if err := announceHosts(w, modules); err != nil {
			return err
		}
	} else {
		announceProviders(w, a, mirror)
		if len(modules.ModuleHosts()) > 0 {
			fmt.Fprintf(w, "For modules, clients need the host blocks that ocibridge config client --for host prints.\n\n")
		}
	}
	if _, err := modules.Module(); err == nil && len(modules.Modules)+len(modules.Stored) > 0 {
		fmt.Fprintf(w, "%s\n\n", clientsetup.OwnModules)
	}
	if a.Tokens {
		fmt.Fprintf(w, "Clients need a token: ocibridge config client --for credentials prints where to put it.\n\n")
	}
	if a.CAFile != "" {
		fmt.Fprintf(w, "The CA in the data folder signed the certificate. That CA stays the same at every start. Clients on Linux trust it by\n\n  export SSL_CERT_FILE=%s\n\n", a.CAFile)
		fmt.Fprintf(w, "They also trust the system's CAs in /etc/ssl/certs and /etc/pki/tls/certs, unless SSL_CERT_DIR names other folders.\n")
		fmt.Fprintf(w, "On macOS and Windows, add that file to the system's trusted certificates.\n\n")
	}
	return nil
}

// pulled says what the gateway pulls through. It returns "" if that is nothing. alone means that it serves modules alone.
func pulled(a serve.Address, s serve.Settings, alone bool) string {
	p := s.Config.PullThrough // nil without a block: pull-through is then for providers
	providers := a.Pulls && !alone && (p == nil || p.Pulls(subject.Provider))
	modules := a.Pulls && p != nil && p.Pulls(subject.Module)
	switch {
	case providers && modules:
		return "a provider or a module"
	case modules:
		return "a module"
	case providers:
		return "a provider"
	}
	return ""
}

// announceProviders prints the settings that clients need for providers.
func announceProviders(w io.Writer, a serve.Address, mirror string) {
	fmt.Fprintf(w, "Clients need, in ~/.tofurc or ~/.terraformrc:\n\n")
	fmt.Fprintf(w, "  provider_installation {\n    network_mirror {\n      url = %q\n    }\n  }\n\n", mirror)
	if t := a.Template(); t != "" {
		only := ""
		if a.Pulls {
			only = ", which serves the providers that it already has"
		}
		fmt.Fprintf(w, "or, for OpenTofu 1.10 and later, straight from the registry%s:\n\n", only)
		fmt.Fprintf(w, "  provider_installation {\n    oci_mirror {\n      repository_template = \"%s\"\n    }\n  }\n\n", t)
	}
}

// announceHosts prints the host blocks that clients need for modules.
func announceHosts(w io.Writer, modules *clientsetup.Setup) error {
	text, err := modules.Hosts()
	if err != nil {
		return err
	}
	_, own := modules.Module()
	switch {
	case text != "":
		text = strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ")
		fmt.Fprintf(w, "Clients need, in ~/.tofurc or ~/.terraformrc:\n\n  %s\n\n", text)
	case own != nil:
		fmt.Fprintf(w, "Clients need a host block for each host of the modules. To have serve print the blocks, name the hosts in include of the module_mirror blocks.\n\n")
	}
	return nil
}
