package origin

import (
	"errors"
	"io/fs"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

func TestNetrcPlaces(t *testing.T) {
	for _, tt := range []struct {
		name, goos, home, variable, want string
	}{
		{"Linux", "linux", "/home/u", "", "/home/u/.netrc"},
		{"macOS", "darwin", "/Users/u/", "", "/Users/u/.netrc"},
		{"Windows", "windows", `C:\Users\u`, "", `C:\Users\u\_netrc`},
		{"variable", "linux", "/home/u", "/etc/netrc", "/etc/netrc"},
		{"variable without a home", "windows", "", `D:\x`, `D:\x`},
		{"no home", "linux", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := &Netrc{GOOS: tt.goos, Home: tt.home, Getenv: func(name string) string {
				return map[string]string{"NETRC": tt.variable}[name]
			}}
			if got := env.file(); got != tt.want {
				t.Errorf("file %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNetrcFileThatIsNone(t *testing.T) {
	u := &url.URL{Scheme: "https", Host: "example.com"}
	for _, err := range []error{fs.ErrNotExist, syscall.ENOTDIR, syscall.EISDIR, fs.ErrPermission} {
		n := &Netrc{Home: "/home/u", ReadFile: func(name string) ([]byte, error) {
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		}}
		got, gotErr := n.authorize(u)
		if err == fs.ErrPermission {
			if !errors.Is(gotErr, fs.ErrPermission) || !strings.Contains(gotErr.Error(), "/home/u/.netrc") || hint.Of(gotErr) == "" {
				t.Errorf("%v: %v (hint %q)", err, gotErr, hint.Of(gotErr))
			}
		} else if gotErr != nil || got != u {
			t.Errorf("%v: %v, %v", err, got, gotErr)
		}
	}
}

// TestNetrcChanges shows that a changed password takes effect without a restart.
func TestNetrcChanges(t *testing.T) {
	password := "old"
	n := &Netrc{Home: "/home/u", ReadFile: func(string) ([]byte, error) { return []byte("machine a login u password " + password), nil }}
	for _, password = range []string{"old", "new"} {
		if u, err := n.authorize(&url.URL{Scheme: "https", Host: "a"}); err != nil || u.User.String() != "u:"+password {
			t.Errorf("%v, %v", u, err)
		}
	}
}

// loginIn returns the login for a host in a file with the content src, as
// USER:PASSWORD. It returns "" if the file has no login for the host.
func loginIn(src, host string) (string, error) {
	n := &Netrc{Home: "/home/u", ReadFile: func(string) ([]byte, error) { return []byte(src), nil }}
	u, err := n.authorize(&url.URL{Scheme: "https", Host: host})
	if err != nil || u.User == nil {
		return "", err
	}
	password, _ := u.User.Password()
	return u.User.Username() + ":" + password, nil
}

func TestParseNetrc(t *testing.T) {
	tests := []struct {
		name, src string
		want      string // the logins for the hosts a, d, a:8443 and machine
		err       string
	}{
		{"empty", " \n\t\n", "", ""},
		{"one line", "machine a login b password c", "b:c", ""},
		{"many lines, Windows' ends, byte order mark", "\xef\xbb\xbfmachine a\r\n\tlogin b\r\n\tpassword c\r\n", "b:c", ""},
		{"any order, account", "machine a password c account d login b", "b:c", ""},
		{"several", "machine a login b password c machine d login e\ndefault login f password g", "b:c e: f:g f:g", ""},
		{"comments", "# first\nmachine a # of a\n login b\n#password x\n password c#d", "b:c#d", ""},
		{"values like keywords and comments", "machine machine login login password #password", "login:#password", ""},
		{"dollar and colon", "machine a:8443 login robot$x+y password $HOME:${x}", "robot$x+y:$HOME:${x}", ""},
		{"macro", "machine a login b password c\nmacdef init\n cd x\n machine y\n\nmachine d login e password f", "b:c e:f", ""},
		{"macro to the end", "machine a login b\nmacdef init\n machine s3cr3t", "b:", ""},
		{"nothing of a machine", "machine a", "", ""},
		{"machine without a name", "machine", "", ""},
		{"login without a value", "machine a\nlogin", "", ""},

		{"unknown word", "machine a login b\nuser s3cr3t", "", "line 2 is not"},
		{"password with a space", "machine a login b password s3cr3t\n more", "", "line 2 is not"},
		{"password without a machine", "\n\npassword s3cr3t", "", "line 3 is not"},
		{"two passwords", "machine a password s3cr3t password s3cr3t", "", "line 1 is not"},
		{"two defaults", "default login a default", "", "line 1 is not"},
		{"machine after default", "default login a\nmachine s3cr3t", "", "line 2 is not"},
		{"long word", strings.Repeat("s3cr3t", 20_000), "", "it is not"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var logins []string
			for _, host := range []string{"a", "d", "a:8443", "machine"} {
				login, err := loginIn(tt.src, host)
				if (err == nil) != (tt.err == "") || err != nil && (!strings.Contains(err.Error(), "/home/u/.netrc: "+tt.err) || strings.Contains(err.Error(), "s3cr3t")) {
					t.Fatalf("%v, want %q", err, tt.err)
				}
				if login != "" {
					logins = append(logins, login)
				}
			}
			if got := strings.Join(logins, " "); got != tt.want {
				t.Errorf("logins %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzParseNetrc(f *testing.F) {
	for _, src := range []string{
		"machine a login b password marked-secret", "default\nlogin u\n", "macdef x\n\n\nmachine y", "# c\nmachine a#b account c", "machine a password marked-secret marked-secret", "login",
	} {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		login, err := loginIn(src, "a.example:8443")
		if err != nil && strings.Contains(err.Error(), "marked-secret") {
			t.Errorf("the error quotes the file: %v", err)
		}
		if login != "" && !strings.Contains(src, "a.example:8443") && !strings.Contains(src, "default") {
			t.Errorf("the file does not have the login %q", login)
		}
		for part := range strings.SplitSeq(login, ":") {
			if !strings.Contains(src, part) {
				t.Errorf("the file does not have %q", part)
			}
		}
	})
}
