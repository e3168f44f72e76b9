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

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// Netrc provides the logins in the user's .netrc file (on Windows, _netrc), or in the file
// that the environment variable NETRC names. The logins are used only to download packages.
//
// The rules and the parser are those of the command "providers mirror" of OpenTofu and
// Terraform. Their other commands do not use the file for providers. A machine entry matches
// the host of a URL, with the port if the URL has one. The entry "default" matches all other
// hosts. A user in the URL itself takes precedence. The login is sent with the first request,
// and after relative redirects. Unlike "providers mirror", Netrc sends a login only over TLS or
// to this machine. The file is read before each download.
type Netrc struct {
	// Getenv and ReadFile behave like the functions of the same names in package os, and
	// return the same errors. Each may be nil.
	Getenv   func(string) string
	ReadFile func(string) ([]byte, error)
	Home     string // the home directory; empty if there is none
	GOOS     string // the operating system, as in runtime.GOOS
	// NoDefault makes Netrc ignore the entry "default". It is for programs in which clients,
	// and not the owner of the file, choose the hosts.
	NoDefault bool
}

// authorize returns the URL of a package with the login for its host, if there is one. A nil Netrc
// has no logins.
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

// byteOrderMark is the start of the text files that some Windows programs write.
var byteOrderMark = []byte("\xef\xbb\xbf")

// read parses the file. If the file does not exist, the result has no logins. Errors do not
// quote the file's content.
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
		if invalid, ok := errors.AsType[*netrc.Error](err); ok {
			at = fmt.Sprintf("line %d", invalid.LineNum)
		}
		return nil, hint.New(fmt.Sprintf("logins for downloads: %s: %s is not in the format of .netrc", name, at), "correct the file, or name another one in NETRC")
	}
	return out, nil
}

// file returns the path of the file, or "" if neither NETRC nor Home is set.
func (n *Netrc) file() string {
	name := ""
	if n.Getenv != nil {
		name = n.Getenv("NETRC")
	}
	switch {
	case name != "" || n.Home == "":
		return name
	case n.GOOS == "windows":
		return files.Paths(n.GOOS).Join(n.Home, "_netrc")
	}
	return files.Paths(n.GOOS).Join(n.Home, ".netrc")
}
