package origin_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/origin"
)

// netrc returns a Netrc that reads a file with the given content.
func netrc(content string) *origin.Netrc {
	return &origin.Netrc{
		GOOS: "linux", Home: "/home/u",
		ReadFile: func(name string) ([]byte, error) {
			if name != "/home/u/.netrc" || content == "" {
				return nil, fs.ErrNotExist
			}
			return []byte(content), nil
		},
	}
}

// logins records the login of each request in the form "HOST/NAME USER:PASSWORD".
type logins []string

func (l *logins) watch(name string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); ok {
			*l = append(*l, fmt.Sprintf("%s/%s %s:%s", name, path.Base(r.URL.Path), user, password))
		} else if r.Header.Get("Authorization") != "" {
			*l = append(*l, name+"/"+path.Base(r.URL.Path)+" "+r.Header.Get("Authorization"))
		}
		next.ServeHTTP(w, r)
	})
}

// TestNetrc shows which requests carry a login from the .netrc file.
func TestNetrc(t *testing.T) {
	const login = " login robot$x password p:w#1\n"
	zip := "terraform-provider-widget_1.0.0_linux_amd64.zip"
	tests := []struct {
		name, file string
		url        string // of the package; "" means the origin's own URL
		want       []string
	}{
		{"no file", "", "", nil},
		{"the host", "machine " + host + login, "", []string{host + "/" + zip + " robot$x:p:w#1"}},
		{"every host", "default" + login, "", []string{host + "/" + zip + " robot$x:p:w#1"}},
		{"another host", "machine other.example" + login, "", nil},
		{"a host above", "machine acme.example" + login, "", nil},
		{"the host before every host", "machine " + host + " login a password b\ndefault" + login, "", []string{host + "/" + zip + " a:b"}},
		{"the first of two", "machine " + host + " login a password b\nmachine " + host + login, "", []string{host + "/" + zip + " a:b"}},
		{"a package elsewhere", "machine other.example" + login, "https://other.example/" + zip, []string{"other.example/" + zip + " robot$x:p:w#1"}},
		{"a package elsewhere, a login for the origin", "machine " + host + login, "https://other.example/" + zip, nil},
		{"a port", "machine other.example" + login, "https://other.example:443/" + zip, nil},
		{"a port in both", "machine other.example:443" + login, "https://other.example:443/" + zip, []string{"other.example/" + zip + " robot$x:p:w#1"}},
		{"a user in the URL", "default" + login, "https://me:mine@other.example/" + zip, []string{"other.example/" + zip + " me:mine"}},
		{"plain HTTP", "default" + login, "http://other.example/" + zip, nil},
		{"redirect to another host", "machine " + host + login, "https://" + host + "/away", []string{host + "/away robot$x:p:w#1"}},
		{"redirect to another host with a login of its own", "machine other.example" + login, "https://" + host + "/away", nil},
		{"redirect for which there is a default", "default" + login, "https://" + host + "/away", []string{host + "/away robot$x:p:w#1"}},
		{"relative redirect", "machine " + host + login, "https://" + host + "/aside", []string{host + "/aside robot$x:p:w#1", host + "/" + zip + " robot$x:p:w#1"}},
		{"redirect by plain HTTP", "machine " + host + login, "https://" + host + "/down", []string{host + "/down robot$x:p:w#1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			var seen logins
			files := func(w http.ResponseWriter, r *http.Request) {
				r.URL.Path = "/files/acme/widget/1.0.0/" + zip
				testorigin.New(testorigin.Options{}, b.release).ServeHTTP(w, r)
			}
			mux := http.NewServeMux()
			mux.Handle("/", b.origin)
			mux.HandleFunc("/away", redirect("https://other.example/"+zip))
			mux.HandleFunc("/aside", redirect("/files/acme/widget/1.0.0/"+zip))
			mux.HandleFunc("/down", redirect("http://"+host+"/"+zip))
			b.asked = b.serve(host, seen.watch(host, mux))
			b.serve("other.example", seen.watch("other.example", http.HandlerFunc(files)))
			b.servePlain("other.example", seen.watch("other.example", http.HandlerFunc(files)))
			b.servePlain(host, seen.watch(host, http.HandlerFunc(files)))
			if tt.url != "" {
				b.alter(func(body map[string]any) { body["download_url"] = tt.url })
			}
			b.client = origin.NewRegistry(origin.RegistryOptions{Transport: b.transport(), Netrc: netrc(tt.file)})
			r := b.mustGet("linux_amd64")
			read(t, r.Packages[0])
			if got := strings.Join(seen, "\n"); got != strings.Join(tt.want, "\n") {
				t.Errorf("logins:\n%s\nwant:\n%s", got, strings.Join(tt.want, "\n"))
			}
		})
	}
}

// TestNetrcWithoutDefault shows that NoDefault disables the entry "default", and no
// other entry.
func TestNetrcWithoutDefault(t *testing.T) {
	for file, want := range map[string]string{
		"default login me password secret\n":                                           "",
		"machine " + host + " login a password b\ndefault login me password secret\n":  "a:b",
		"machine other.example login a password b\ndefault login me password secret\n": "",
	} {
		b := newBench(t)
		var seen logins
		b.asked = b.serve(host, seen.watch("", b.origin))
		b.client = origin.NewRegistry(origin.RegistryOptions{Transport: b.transport(), Netrc: &origin.Netrc{
			GOOS: "linux", Home: "/home/u", NoDefault: true, ReadFile: func(string) ([]byte, error) { return []byte(file), nil },
		}})
		read(t, b.mustGet("linux_amd64").Packages[0])
		if got := strings.Join(seen, " "); (got != "") != (want != "") || !strings.HasSuffix(got, want) {
			t.Errorf("%q: logins %q, want %q", file, got, want)
		}
	}
}

func TestNetrcErrors(t *testing.T) {
	for name, file := range map[string]string{
		"damaged file": "machine a login b password s3cr3t\npassword s3cr3t",
		"refused":      "machine " + host + " login u password s3cr3t",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.client = origin.NewRegistry(origin.RegistryOptions{Transport: b.transport(), Netrc: netrc(file)})
			r := b.mustGet("linux_amd64")
			b.answer(".zip", status(http.StatusUnauthorized))
			_, _, err := r.Packages[0].Open(t.Context())
			if name == "refused" {
				checkError(t, err, "answered 401", "")
			} else {
				checkError(t, err, "/home/u/.netrc: line 2 is not in the format of .netrc", "NETRC")
			}
			if s := err.Error() + hint.Of(err); strings.Contains(s, "s3cr3t") {
				t.Errorf("the password shows: %s", s)
			}
		})
	}
}
