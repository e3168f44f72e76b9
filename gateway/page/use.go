package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/provider"
)

// requirement returns the required_providers block for a version.
func requirement(a provider.Address, v provider.Version) string {
	var out strings.Builder
	fmt.Fprintf(&out, "terraform {\n  required_providers {\n    %s = {\n", a.Type())
	fmt.Fprintf(&out, "      source  = %q\n      version = %q\n    }\n  }\n}\n", a.String(), v.String())
	return out.String()
}

// sourceView is a source address as users of a client write it.
type sourceView struct{ Title, Address string }

// sources returns a source address in the words of each client. A client has a default host, which its users leave out.
// full is the whole address, and short is the address without the host.
func sources(hostname, short, full string) []sourceView {
	switch hostname {
	case "registry.opentofu.org":
		return []sourceView{{"Source in OpenTofu", short}, {"Source in Terraform", full}}
	case "registry.terraform.io":
		return []sourceView{{"Source in Terraform", short}, {"Source in OpenTofu", full}}
	}
	return []sourceView{{"Source address", full}}
}

// constraint returns a ~> constraint that allows a version and its compatible successors: the next minor versions, or for
// a version 0.x the next patches. It returns "" for a prerelease, which no such constraint selects.
func constraint(v provider.Version) string {
	if v.IsPrerelease() {
		return ""
	}
	core, _, _ := strings.Cut(v.String(), "+")
	if minor, _ := cutLast(core, "."); !strings.HasPrefix(core, "0.") {
		return "~> " + minor
	}
	return "~> " + core
}

// cutLast cuts s at the last separator.
func cutLast(s, separator string) (before, after string) {
	i := strings.LastIndex(s, separator)
	return s[:i], s[i+1:]
}

// lockEntry returns the block of a dependency lock file for a version, as clients write it with the constraint of
// [requirement]. It returns "" if no package has a hash.
func lockEntry(a provider.Address, v provider.Version, packages []packageView) string {
	var hashes []string
	for _, p := range packages {
		if p.Missing != "" || p.Unvouched != "" {
			continue
		}
		hashes = append(hashes, p.ZipHash().String())
		if !p.H1.IsZero() {
			hashes = append(hashes, p.H1.String())
		}
	}
	if len(hashes) == 0 {
		return ""
	}
	slices.Sort(hashes)
	var out strings.Builder
	fmt.Fprintf(&out, "provider %q {\n  version     = %q\n  constraints = %q\n  hashes = [\n", a.String(), v.String(), v.String())
	for _, h := range slices.Compact(hashes) {
		fmt.Fprintf(&out, "    %q,\n", h)
	}
	out.WriteString("  ]\n}\n")
	return out.String()
}
