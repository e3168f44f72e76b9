package gateway

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Document is a document of a release, apart from its packages.
type Document struct {
	Name        string // the file name
	ContentType string
	Data        []byte
}

// Documents returns the checksum document of a version and its signature. If the version is signed, it also returns the
// publisher's keys in ASCII armour. The error means that the keys cannot be parsed.
func Documents(a provider.Address, v provider.Version, e *artifact.Evidence) ([]Document, error) {
	sums := sumsName(a, v)
	out := []Document{{sums, "text/plain; charset=utf-8", e.SHA256SUMS}, {sums + ".sig", "application/pgp-signature", e.Signature}}
	if !e.Signed() {
		return out, nil // OpenTofu downloads both documents even if there is no signature
	}
	keys, err := trust.ParseSigningKeys(e.SigningKeys)
	if err != nil {
		return out, err
	}
	name := fmt.Sprintf("terraform-provider-%s_%s_keys.asc", a.Type(), v)
	return append(out, Document{name, "application/pgp-keys", []byte(strings.Join(keys, "\n"))}), nil
}

// sumsName returns the file name of the checksum document.
func sumsName(a provider.Address, v provider.Version) string {
	return "terraform-provider-" + a.Type() + "_" + v.String() + "_SHA256SUMS"
}

// DocumentLink returns the URL of a signed version's document. root is the relative URL from the request's path to the
// gateway. If access is controlled, the URL contains a capability for the request's subject.
func (o *Options) DocumentLink(r *http.Request, root string, a provider.Address, v provider.Version, d Document) string {
	base := fmt.Sprintf("%s%s/%s/%s/", strings.TrimPrefix(RegistryURL("", a.Hostname()), "/"), a.Namespace(), a.Type(), v)
	return o.Access.Link(r, a, fileURL(root+base, documentFile(d.Name, d.Data)), digest.FromBytes(d.Data))
}

// PackageLink is like [Options.DocumentLink], for a package of any version.
func (o *Options) PackageLink(r *http.Request, root string, a provider.Address, v provider.Version, p artifact.Package) string {
	base := fmt.Sprintf("%s%s/%s/", strings.TrimPrefix(MirrorPath, "/"), a.Path(), v)
	return o.Access.Link(r, a, fileURL(root+base, packageFile(p)), p.Digest)
}
