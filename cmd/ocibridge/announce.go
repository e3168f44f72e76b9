package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/internal/registry/embedded"
)

// whereabouts are where clients find a gateway, and what they need there.
type whereabouts struct {
	url      *url.URL // ends in a slash
	listens  string   // the address, where the URL does not say it
	caFile   string   // of the local CA that signed the certificate; "" if the certificate has another issuer
	embedded bool     // the embedded registry is there
	tokens   bool     // clients are asked for tokens
	pulls    bool     // what the registry lacks is fetched from origins
}

// whereabouts returns where clients find the gateway: at its public URL, if it has
// one, or else where it listens.
func (f *serveFlags) whereabouts(addr net.Addr, public string) (whereabouts, error) {
	if public != "" {
		u, err := url.Parse(public)
		return whereabouts{url: u, listens: addr.String()}, err
	}
	_, port, err := net.SplitHostPort(addr.String())
	u := &url.URL{Scheme: "https", Host: net.JoinHostPort(f.publicHost(), port), Path: "/"}
	if f.http {
		u.Scheme = "http"
	}
	return whereabouts{url: u}, err
}

func (a whereabouts) host() string { return a.url.Hostname() }

// template is the repository template for the embedded registry; "" if clients
// cannot read it, because it is not at the root of its host or not behind TLS.
func (a whereabouts) template() string {
	if !a.embedded || a.url.Path != "/" || a.url.Scheme != "https" {
		return ""
	}
	return a.url.Host + "/" + embedded.Template
}

// announce prints where the gateway is and what a client needs to use it.
func (a whereabouts) announce(w io.Writer, asJSON bool) error {
	mirror := a.url.JoinPath(gateway.MirrorPath).String()
	if asJSON {
		out := map[string]string{"url": mirror}
		if a.listens != "" {
			out["address"] = a.listens
		}
		if a.caFile != "" {
			out["ca_file"] = a.caFile
		}
		if t := a.template(); t != "" {
			out["repository_template"] = t
		}
		if a.pulls {
			out["pull_through"] = "on"
		}
		return json.NewEncoder(w).Encode(out)
	}
	listens := ""
	if a.listens != "" {
		listens = "Listening on " + a.listens + "\n"
	}
	fmt.Fprintf(w, "Serving providers at %s\n%s\n", mirror, listens)
	if a.pulls {
		fmt.Fprintf(w, "Those that are not in the registry are fetched from their origins, verified and stored. To turn that off: --no-pull-through\n\n")
	}
	if a.url.Scheme == "http" {
		fmt.Fprintf(w, "Clients speak TLS only: they need a proxy before it, and public_url in the gateway block should say where that is.\n\n")
		return nil
	}
	fmt.Fprintf(w, "Clients need, in ~/.tofurc or ~/.terraformrc:\n\n")
	fmt.Fprintf(w, "  provider_installation {\n    network_mirror {\n      url = %q\n    }\n  }\n\n", mirror)
	if t := a.template(); t != "" {
		only := ""
		if a.pulls {
			only = ", which has what was pushed or fetched before"
		}
		fmt.Fprintf(w, "or, for OpenTofu 1.10 and later, straight from the registry%s:\n\n", only)
		fmt.Fprintf(w, "  provider_installation {\n    oci_mirror {\n      repository_template = \"%s\"\n    }\n  }\n\n", t)
	}
	if a.tokens {
		fmt.Fprintf(w, "It asks for a token: ocibridge config client prints where that goes.\n\n")
	}
	if a.caFile != "" {
		fmt.Fprintf(w, "The CA in the data folder signed the certificate. That CA stays the same at every start. Clients on Linux trust it by\n\n  export SSL_CERT_FILE=%s\n\n", a.caFile)
		fmt.Fprintf(w, "They also trust the system's CAs in /etc/ssl/certs and /etc/pki/tls/certs, unless SSL_CERT_DIR names other folders.\n")
		fmt.Fprintf(w, "On macOS and Windows, add that file to the system's trusted certificates.\n\n")
	}
	return nil
}
