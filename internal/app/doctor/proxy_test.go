package doctor

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestProxies shows the check of each kind of proxy. Each case runs in a process of its own, because net/http reads the
// variables only once.
func TestProxies(t *testing.T) {
	if at := os.Getenv("OCIBRIDGE_TEST_URL"); at != "" {
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		r := &Report{Checks: []Check{}}
		r.proxy(t.Context(), u)
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			t.Fatal(err)
		}
		return
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Proxy-Authorization") == "":
			w.WriteHeader(http.StatusProxyAuthRequired)
		case r.Method == http.MethodConnect:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer proxy.Close()
	at := proxy.Listener.Addr().String()
	const far = "registry.example:5000"
	for name, tc := range map[string]struct {
		env    []string
		url    string
		status Status // "" means that there is no check
		detail string
		hint   string
	}{
		"none":              {nil, "https://" + far, OK, "none: no variable names one for " + far, ""},
		"none to this host": {[]string{"HTTPS_PROXY=http://" + at}, "https://localhost:8443", "", "", ""},
		"exempt":            {[]string{"HTTPS_PROXY=http://" + at, "NO_PROXY=.example"}, "https://" + far, OK, "none: NO_PROXY exempts " + far + " from HTTPS_PROXY", ""},
		"connects":          {[]string{"http_proxy=http://u:s3cr3t@" + at}, "http://" + far, OK, "http_proxy names " + at + " for " + far + ": it connects", ""},
		"407":               {[]string{"HTTP_PROXY=http://" + at}, "http://" + far, Fail, "the proxy answers 407 Proxy Authentication Required", "wants a login"},
		"407 to CONNECT":    {[]string{"HTTPS_PROXY=http://" + at}, "https://" + far, Fail, "HTTPS_PROXY names " + at + " for " + far + ": proxy " + at + " answered 407", "wants a login"},
		"403 to CONNECT":    {[]string{"HTTPS_PROXY=http://u:s3cr3t@" + at}, "https://" + far, Fail, "answered 403 Forbidden", "does not connect to " + far},
		"not there":         {[]string{"HTTPS_PROXY=http://u:s3cr3t@127.0.0.1:1"}, "https://" + far, Fail, "HTTPS_PROXY names 127.0.0.1:1 for " + far, "is not reached: correct the variable"},
		"no URL":            {[]string{"HTTPS_PROXY=http://u:s3cr3t%zz@" + at}, "https://" + far, Fail, "HTTPS_PROXY does not hold the URL of a proxy", "write HTTPS_PROXY as"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxies$")
			cmd.Env = append(tc.env, "OCIBRIDGE_TEST_URL="+tc.url)
			data, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, data)
			}
			if strings.Contains(string(data), "s3cr3t") {
				t.Errorf("the login shows: %s", data)
			}
			var r Report
			if err := json.NewDecoder(strings.NewReader(string(data))).Decode(&r); err != nil {
				t.Fatalf("%v: %s", err, data)
			}
			if tc.status == "" {
				if len(r.Checks) > 0 {
					t.Errorf("%+v", r)
				}
				return
			}
			got := checks(t, &r)
			want(t, got, "proxy", tc.status, tc.detail)
			if h := got["proxy"].Hint; !strings.Contains(h, tc.hint) {
				t.Errorf("hint %q, want %q", h, tc.hint)
			}
		})
	}
}
