package origin

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/cost"
	"github.com/ocibridge/ocibridge/provider"
)

// expensive is an origin and a mirror whose discovery is in order, and whose every
// other answer is the document.
type expensive struct{ document []byte }

func (e expensive) RoundTrip(r *http.Request) (*http.Response, error) {
	body := e.document
	if strings.HasSuffix(r.URL.Path, "terraform.json") {
		body = []byte(`{"providers.v1":"/v1/"}`)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: -1, Request: r}, nil
}

// TestKeptOfDocuments: pull-through keeps lists and packages long after it has read the
// documents that they come from.
func TestKeptOfDocuments(t *testing.T) {
	a, v := provider.MustParseAddress("registry.example.com/acme/widget"), provider.MustParseVersion("1.0.0")
	list, version := int(listLimits.Bytes), int(versionLimits.Bytes)
	answer := `{"os":"linux","arch":"amd64","filename":"widget.zip","shasum":"` + strings.Repeat("00", 32) +
		`","download_url":"widget.zip","shasums_url":"SHA256SUMS",`
	versions := func(r *Registry) (any, error) { return r.Versions(t.Context(), a) }
	pkg := func(r *Registry) (any, error) {
		p, _, err := r.Package(t.Context(), a, v, provider.Platform{OS: "linux", Arch: "amd64"})
		return p, err
	}
	for name, tc := range map[string]struct {
		document []byte
		ask      func(*Registry) (any, error)
	}{
		"a warning and spaces":    {[]byte(`{"versions":[],"warnings":["x` + strings.Repeat(" ", list-100) + `"]}`), versions},
		"a long protocol":         {cost.Filled(version, answer+`"protocols":["`, `xxxxxxxxxxxxxxx`, `"]}`), pkg},
		"keys of an installation": {cost.Filled(version, answer+`"signing_keys":{"x":"`, `xxxxxxxxxxxxxxx`, `"}}`), pkg},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRegistry(RegistryOptions{Transport: expensive{tc.document}})
			cost.Kept(t, 1<<20, func() any {
				kept, err := tc.ask(r)
				if err != nil {
					t.Error(err)
				}
				return kept
			})
		})
	}
}

// TestCostOfDocuments measures what the most expensive documents of each kind
// allocate in all, whether they are refused or not.
func TestCostOfDocuments(t *testing.T) {
	a, v := provider.MustParseAddress("registry.example.com/acme/widget"), provider.MustParseVersion("1.0.0")
	list, version := int(listLimits.Bytes), int(versionLimits.Bytes)
	versions := func(r *Registry) error { _, err := r.Versions(t.Context(), a); return err }
	metadata := func(r *Registry) error {
		_, err := r.metadata(t.Context(), a, v, []provider.Platform{{OS: "linux", Arch: "amd64"}})
		return err
	}
	mirror := func(r *Registry) *NetworkMirror {
		return r.NetworkMirror(&url.URL{Scheme: "https", Host: "mirror.example.com", Path: "/"})
	}
	index := func(r *Registry) error { _, err := mirror(r).Versions(t.Context(), a); return err }
	contents := func(r *Registry) error { _, _, err := mirror(r).version(t.Context(), a, v); return err }
	// 1,030 versions with so many platforms have almost as many values as the limits allow.
	platforms := string(cost.Counted(maxPlatforms, "", `{"os":"x","arch":"y%d"}`, ""))
	for name, tc := range map[string]struct {
		document []byte
		ask      func(*Registry) error
		accepted bool
	}{
		"versions: empty ones":           {cost.Filled(list, `{"versions":[`, `{}`, `]}`), versions, false},
		"versions: 32 MiB of them":       {cost.Filled(32<<20, `{"versions":[`, `{}`, `]}`), versions, false},
		"versions: as many as there may": {cost.Counted(maxVersions, `{"versions":[`, `{"version":"1.0.%d"}`, `]}`), versions, true},
		"versions: platforms":            {cost.Counted(1_030, `{"versions":[`, `{"version":"1.0.%d","platforms":[`+platforms+`]}`, `]}`), versions, true},
		"versions: empty platforms":      {cost.Filled(list, `{"versions":[{"version":"1.0.0","platforms":[`, `{}`, `]}]}`), versions, false},
		"versions: warnings":             {cost.Filled(list, `{"versions":[],"warnings":[`, `""`, `]}`), versions, false},
		"versions: one long warning":     {cost.Filled(list, `{"versions":[],"warnings":["`, `xxxxxxxxxxxxxxx`, `"]}`), versions, true},
		"versions: one name again":       {cost.Filled(list, `{`, `"versions":[{},{}]`, `}`), versions, false},
		"versions: unknown names":        {cost.Filled(list, `{`, `"x%d":{}`, `}`), versions, false},
		"package: packages":              {cost.Filled(version, `{"packages":{`, `"x%d":{}`, `}}`), metadata, false},
		"package: hashes":                {cost.Filled(version, `{"packages":{"linux_amd64":{"package_size":1,"hashes":[`, `""`, `]}}}`), metadata, false},
		"package: protocols":             {cost.Filled(version, `{"protocols":[`, `""`, `]}`), metadata, false},
		"package: keys":                  {cost.Filled(version, `{"signing_keys":{"gpg_public_keys":[`, `{}`, `]}}`), metadata, false},
		"mirror: versions":               {cost.Filled(list, `{"versions":{`, `"%d":{}`, `}}`), index, false},
		"mirror: joined versions":        {cost.Filled(list, `{`, `"versions":{"1.0.%d":0,"2.0.0":0}`, `}`), index, false},
		"mirror: archives":               {cost.Filled(version, `{"archives":{`, `"%d":{}`, `}}`), contents, false},
		"mirror: hashes":                 {cost.Filled(version, `{"archives":{"linux_amd64":{"hashes":[`, `""`, `]}}}`), contents, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRegistry(RegistryOptions{Transport: expensive{tc.document}})
			cost.Check(t, len(tc.document), !tc.accepted, func() error { return tc.ask(r) })
		})
	}
}
