package origin

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"syscall"

	"github.com/bgentry/go-netrc/netrc"

	"github.com/ocibridge/ocibridge/internal/files"
	"github.com/ocibridge/ocibridge/internal/hint"
)

// Netrc provides the logins in the user's .netrc file (on Windows, _netrc), or in the file
// that the variable NETRC names. They are used for downloads of packages.
//
// The rules and the parser are those of "providers mirror" of OpenTofu and Terraform, their
// only command that uses the file for providers. A machine entry matches the host of a URL,
// including the port if the URL has one. The entry "default" matches all other hosts. A
// user in the URL itself takes precedence. The login is sent with the first request. A
// redirect drops the login, unless the redirect is relative and thus stays on the host.
// Unlike those commands, Netrc sends a login only over TLS or to this machine.
//
// The file is read before each download.
type Netrc struct {
	// Getenv and ReadFile behave like their namesakes in package os, errors included; each
	// may be nil.
	Getenv   func(string) string
	ReadFile func(string) ([]byte, error)
	Home     string // the home directory; empty if there is none
	GOOS     string // as runtime.GOOS
	// NoDefault ignores the entry "default". It is for programs in which the hosts are not
	// chosen by the owner of the file.
	NoDefault bool
}

// authorize returns the URL of a package with its login, or unchanged if it has none. A
// nil Netrc has no logins.
func (n *Netrc) authorize(u *url.URL) (*url.URL, error) {
	if n == nil || u.User != nil && u.User.Username() != "" || u.Scheme != "https" && !isLoopback(u.Hostname()) {
		return u, nil
	}
	file, err := n.read()
	if err != nil {
		return nil, err
	}
	m := file.FindMachine(u.Host)
	if m == nil || m.IsDefault() && n.NoDefault || m.Login == "" && m.Password == "" {
		return u, nil
	}
	with := *u
	with.User = url.UserPassword(m.Login, m.Password)
	return &with, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// byteOrderMark begins a text file of some Windows programs.
var byteOrderMark = []byte("\xef\xbb\xbf")

// read parses the file. A file that does not exist has no logins. Errors quote nothing from
// the file.
func (n *Netrc) read() (*netrc.Netrc, error) {
	name := n.file()
	if name == "" || n.ReadFile == nil {
		return &netrc.Netrc{}, nil
	}
	src, err := n.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return &netrc.Netrc{}, nil
	case err != nil:
		return nil, hint.Wrap(fmt.Errorf("logins for downloads: %w", err), "make the file readable, or name another one in NETRC")
	}
	out, err := netrc.Parse(bytes.NewReader(bytes.TrimPrefix(src, byteOrderMark)))
	if err != nil {
		at := "it"
		var invalid *netrc.Error
		if errors.As(err, &invalid) {
			at = fmt.Sprintf("line %d", invalid.LineNum)
		}
		return nil, hint.New(fmt.Sprintf("logins for downloads: %s: %s is not in the format of .netrc", name, at), "correct the file, or name another one in NETRC")
	}
	return out, nil
}

// file returns the path of the file, or "".
func (n *Netrc) file() string {
	if n.Getenv != nil {
		if name := n.Getenv("NETRC"); name != "" {
			return name
		}
	}
	switch {
	case n.Home == "":
		return ""
	case n.GOOS == "windows":
		return files.Paths(n.GOOS).Join(n.Home, "_netrc")
	}
	return files.Paths(n.GOOS).Join(n.Home, ".netrc")
}
