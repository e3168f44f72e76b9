package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/internal/serve"
)

// announce prints the URL of a gateway and the settings that its clients need. It prints JSON
// if asJSON is set.
func announce(w io.Writer, a serve.Address, asJSON bool) error {
	mirror := a.URL.JoinPath(gateway.MirrorPath).String()
	if asJSON {
		pulls := ""
		if a.Pulls {
			pulls = "on"
		}
		return json.NewEncoder(w).Encode(struct {
			Address  string `json:"address,omitempty"`
			CAFile   string `json:"ca_file,omitempty"`
			Pulls    string `json:"pull_through,omitempty"`
			Template string `json:"repository_template,omitempty"`
			URL      string `json:"url"`
		}{a.Listens, a.CAFile, pulls, a.Template(), mirror})
	}
	listens := ""
	if a.Listens != "" {
		listens = "Listening on " + a.Listens + "\n"
	}
	fmt.Fprintf(w, "Serving providers at %s\n%sWeb page: %s\n\n", mirror, listens, a.URL)
	if a.Pulls {
		fmt.Fprintf(w, "If the registry lacks a provider, serve fetches it from its origin, verifies it and stores it. To turn this off: --no-pull-through\n\n")
	}
	if a.AsClients {
		fmt.Fprintf(w, "If registry.opentofu.org has no key of a publisher, checksums alone verify the provider, as in OpenTofu. A trust block in ocibridge.hcl can change that.\n\n")
	}
	if a.URL.Scheme == "http" {
		fmt.Fprintf(w, "Clients speak TLS only: put a proxy that speaks TLS in front, and set public_url in the gateway block to the address of the proxy.\n\n")
		return nil
	}
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
	if a.Tokens {
		fmt.Fprintf(w, "Clients need a token: ocibridge config client prints where to put it.\n\n")
	}
	if a.CAFile != "" {
		fmt.Fprintf(w, "The CA in the data folder signed the certificate. That CA stays the same at every start. Clients on Linux trust it by\n\n  export SSL_CERT_FILE=%s\n\n", a.CAFile)
		fmt.Fprintf(w, "They also trust the system's CAs in /etc/ssl/certs and /etc/pki/tls/certs, unless SSL_CERT_DIR names other folders.\n")
		fmt.Fprintf(w, "On macOS and Windows, add that file to the system's trusted certificates.\n\n")
	}
	return nil
}
