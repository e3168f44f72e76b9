package origin

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/provider"
)

// expensive is a transport to an origin and a mirror. Its discovery documents are valid,
// and the body of every other response is the given document.
type expensive struct{ document []byte }

func (e expensive) RoundTrip(r *http.Request) (*http.Response, error) {
	body := e.document
	if strings.HasSuffix(r.URL.Path, "terraform.json") {
		body = []byte(`{"providers.v1":"/v1/"}`)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: -1, Request: r}, nil
}

// answer is the start of a document about a package.
var answer = `{"os":"linux","arch":"amd64","filename":"widget.zip","shasum":"` + strings.Repeat("00", 32) +
	`","download_url":"widget.zip","shasums_url":"SHA256SUMS",`

// TestKeptOfDocuments shows how much memory lists and packages take after their documents
// have been read. Pull-through keeps lists and packages for a long time.
func TestKeptOfDocuments(t *testing.T) {
	testkit.LeaveToAll(t)
	a, v := provider.MustParseAddress("registry.example.com/acme/widget"), provider.MustParseVersion("1.0.0")
	list, version := int(listLimits.Bytes), int(versionLimits.Bytes)
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

// TestCostOfDocuments shows how much memory is allocated in total for the most expensive
// documents of each kind, whether they are accepted or refused.
func TestCostOfDocuments(t *testing.T) {
	testkit.LeaveToAll(t)
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
	// 1,030 versions with maxPlatforms platforms each have almost the maximum number of
	// values.
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
		"versions: one long platform":    {cost.Filled(list, `{"versions":[{"version":"1.0.0","platforms":[{"os":"`, "\x7f\x7f\x7f\x7f\x7f\x7f", `"}]}]}`), versions, true},
		"versions: a warning no UTF-8":   {cost.Filled(list, `{"versions":[],"warnings":["`, "\xff\xff\xff\xff\xff\xff", `"]}`), versions, false},
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

// TestKeptOfDiscovery shows how much memory the discovery client takes after it has read
// the documents of many hosts, which it caches.
func TestKeptOfDiscovery(t *testing.T) {
	testkit.LeaveToAll(t)
	document := []byte(`{"providers.v1":"/v1/","x":"` + strings.Repeat("x", 60_000) + `","y":[` + strings.Repeat(`{"":0},`, 400) + `0]}`)
	r := NewRegistry(RegistryOptions{Transport: answers(func(r *http.Request) (int, http.Header, []byte) {
		if strings.HasSuffix(r.URL.Path, "terraform.json") {
			return http.StatusOK, nil, document
		}
		return http.StatusOK, nil, []byte(`{"versions":[]}`)
	})})
	cost.Kept(t, 1<<20, func() any {
		for i := range 64 {
			if _, err := r.Versions(t.Context(), provider.MustParseAddress(fmt.Sprintf("h%d.example.com/acme/widget", i))); err != nil {
				t.Fatal(err)
			}
		}
		return r
	})
}

// TestPackageKeepsNoRegistry shows that a package does not keep its registry in memory.
// Pull-through keeps packages longer than their registry, which has the discovery documents
// of its hosts.
func TestPackageKeepsNoRegistry(t *testing.T) {
	a, v, p := provider.MustParseAddress("registry.example.com/acme/widget"), provider.MustParseVersion("1.0.0"), provider.Platform{OS: "linux", Arch: "amd64"}
	dropped := make(chan struct{})
	r := NewRegistry(RegistryOptions{Transport: expensive{[]byte(answer + `"protocols":[]}`)}})
	runtime.AddCleanup(r.services, func(dropped chan struct{}) { close(dropped) }, dropped)
	pkg, _, err := r.Package(t.Context(), a, v, p)
	if err != nil {
		t.Fatal(err)
	}
	r = nil
	for done := false; !done && t.Context().Err() == nil; {
		runtime.GC()
		select {
		case <-dropped:
			done = true
		default:
			runtime.Gosched()
		}
	}
	runtime.KeepAlive(pkg)
}

// TestErrorsAreShort shows that errors truncate long texts of an origin. The reason is that
// errors are logged and cached.
func TestErrorsAreShort(t *testing.T) {
	a, v, p := provider.MustParseAddress("registry.example.com/acme/widget"), provider.MustParseVersion("1.0.0"), provider.Platform{OS: "linux", Arch: "amd64"}
	const most = 4 << 10
	long := strings.Repeat("\x7f", 1<<20)
	head := func(name, value string) http.Header {
		return http.Header{name: {value}}
	}
	for name, tc := range map[string]struct {
		path   string // the suffix of the paths to which the origin sends this response
		status int
		header http.Header
		body   string
	}{
		"platform":                   {"amd64", 200, nil, `{"os":"` + long + `"}`},
		"file name":                  {"amd64", 200, nil, `{"os":"linux","arch":"amd64","filename":"` + long + `"}`},
		"size":                       {"amd64", 200, nil, `{"packages":{"linux_amd64":{"package_size":` + strings.Repeat("1", 1<<20) + `}}}`},
		"URL":                        {"amd64", 200, nil, answer + `"download_url":"` + long + `"}`},
		"redirect":                   {"amd64", 302, head("Location", "/"+strings.Repeat("x", 1<<20)), ""},
		"media type of discovery":    {"terraform.json", 200, head("Content-Type", "text/"+strings.Repeat("x", 1<<20)), ""},
		"service in discovery":       {"terraform.json", 200, nil, `{"providers.v1":"https://` + strings.Repeat("x", 60_000) + `/"}`},
		"range of a resumed package": {"widget.zip", 206, head("Content-Range", long), "abc"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			r := NewRegistry(RegistryOptions{Transport: answers(func(r *http.Request) (int, http.Header, []byte) {
				switch {
				case tc.status == 206 && strings.HasSuffix(r.URL.Path, tc.path) && r.Header.Get("Range") == "":
					return 200, http.Header{"Content-Length": {"10"}}, []byte("abc")
				case strings.HasSuffix(r.URL.Path, tc.path):
					asked++
					return tc.status, tc.header, []byte(tc.body)
				case strings.HasSuffix(r.URL.Path, "terraform.json"):
					return 200, nil, []byte(`{"providers.v1":"/v1/"}`)
				}
				return 200, nil, []byte(answer + `"protocols":[]}`)
			})})
			pkg, _, err := r.Package(t.Context(), a, v, p)
			if err == nil {
				var body io.ReadCloser
				if body, _, err = pkg.Open(t.Context()); err == nil {
					_, err = io.ReadAll(body)
					body.Close()
				}
			}
			if err == nil || len(err.Error())+len(hint.Of(err)) > most || asked == 0 {
				t.Errorf("%d requests, and then: %.500v", asked, err)
			}
		})
	}
}

// answers is a transport. For each request, the function returns the status, header and
// body of the response.
type answers func(*http.Request) (int, http.Header, []byte)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) {
	code, header, body := f(r)
	if header == nil {
		header = http.Header{}
	}
	if header.Get("Content-Type") == "" {
		header.Set("Content-Type", "application/json")
	}
	length := int64(len(body))
	if n, err := strconv.ParseInt(header.Get("Content-Length"), 10, 64); err == nil {
		length = n
	}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: length, Request: r}, nil
}
