package origin

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ocibridge/ocibridge/internal/hint"
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
			env := NetrcEnvironment{GOOS: tt.goos, Home: tt.home, Getenv: func(name string) string {
				return map[string]string{"NETRC": tt.variable}[name]
			}}
			if got := env.place(); got != tt.want {
				t.Errorf("place %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNetrcFileThatIsNone(t *testing.T) {
	u := &url.URL{Scheme: "https", Host: "example.com"}
	for _, err := range []error{fs.ErrNotExist, syscall.ENOTDIR, syscall.EISDIR, fs.ErrPermission} {
		reads := 0
		n := NewNetrc(NetrcEnvironment{Home: "/home/u", ReadFile: func(name string) ([]byte, error) {
			reads++
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		}})
		if reads != 0 {
			t.Error("it is read before it is wanted")
		}
		for range 2 {
			got, gotErr := n.authorize(u)
			if err == fs.ErrPermission {
				if !errors.Is(gotErr, fs.ErrPermission) || !strings.Contains(gotErr.Error(), "/home/u/.netrc") || hint.Of(gotErr) == "" {
					t.Errorf("%v: %v (hint %q)", err, gotErr, hint.Of(gotErr))
				}
			} else if gotErr != nil || got != u {
				t.Errorf("%v: %v, %v", err, got, gotErr)
			}
		}
		if reads != 1 {
			t.Errorf("read %d times", reads)
		}
	}
}

func TestParseNetrc(t *testing.T) {
	tests := []struct {
		name, src string
		want      []machine
		err       string
	}{
		{"empty", " \n\t\n", nil, ""},
		{"one line", "machine a login b password c", []machine{{"a", "b", "c", ""}}, ""},
		{"many lines, Windows' ends, byte order mark", "\xef\xbb\xbfmachine a\r\n\tlogin b\r\n\tpassword c\r\n", []machine{{"a", "b", "c", ""}}, ""},
		{"any order, account", "machine a password c account d login b", []machine{{"a", "b", "c", "d"}}, ""},
		{"several", "machine a login b password c machine d login e\ndefault login f password g", []machine{{"a", "b", "c", ""}, {"d", "e", "", ""}, {"", "f", "g", ""}}, ""},
		{"comments", "# first\nmachine a # of a\n login b\n#password x\n password c#d", []machine{{"a", "b", "c#d", ""}}, ""},
		{"values like keywords and comments", "machine machine login login password #password", []machine{{"machine", "login", "#password", ""}}, ""},
		{"dollar and colon", "machine a:8443 login robot$x+y password $HOME:${x}", []machine{{"a:8443", "robot$x+y", "$HOME:${x}", ""}}, ""},
		{"macro", "machine a login b password c\nmacdef init\n cd x\n machine y\n\nmachine d login e password f", []machine{{"a", "b", "c", ""}, {"d", "e", "f", ""}}, ""},
		{"macro to the end", "machine a login b\nmacdef init\n machine s3cr3t", []machine{{"a", "b", "", ""}}, ""},
		{"nothing of a machine", "machine a", []machine{{"a", "", "", ""}}, ""},

		{"unknown word", "machine a login b\nuser s3cr3t", nil, "line 2: a word where"},
		{"password with a space", "machine a login b password s3cr3t\n more", nil, "line 2: a word where"},
		{"machine without a name", "machine", nil, "line 1: machine without a name"},
		{"login without a value", "machine a\nlogin", nil, "line 2: login without"},
		{"password without a machine", "\n\npassword s3cr3t", nil, "line 3: password without a machine"},
		{"two passwords", "machine a password s3cr3t password s3cr3t", nil, "line 1: a second password"},
		{"two defaults", "default login a default", nil, "line 1: default after default"},
		{"machine after default", "default login a\nmachine s3cr3t", nil, "line 2: machine after default"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseNetrc([]byte(tt.src))
			if (err == nil) != (tt.err == "") || err != nil && (!strings.HasPrefix(err.Error(), tt.err) || strings.Contains(err.Error(), "s3cr3t")) {
				t.Fatalf("%v, want %q", err, tt.err)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%d entries that differ from the %d wanted", len(got), len(tt.want))
			}
			if s := fmt.Sprintf("%v %+v %#v %s", got, got, got, got); strings.Contains(s, "robot") {
				t.Errorf("a login shows: %s", s)
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
		machines, err := parseNetrc([]byte(src))
		if err != nil {
			if strings.Contains(err.Error(), "marked-secret") {
				t.Errorf("the error quotes the file: %v", err)
			}
			return
		}
		var again strings.Builder
		for i, m := range machines {
			if m.name == "" && i < len(machines)-1 {
				t.Errorf("default is entry %d of %d", i, len(machines))
			}
			keyword := "default"
			if m.name != "" {
				keyword = "machine " + m.name
			}
			again.WriteString(keyword)
			for _, field := range []string{"login", "password", "account"} {
				if value := *m.field(field); value != "" {
					again.WriteString(" " + field + " " + value)
				}
			}
			again.WriteString("\n")
		}
		if got, err := parseNetrc([]byte(again.String())); err != nil || !slices.Equal(got, machines) {
			t.Errorf("written once more it reads otherwise: %v", err)
		}
	})
}
