package origin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// NetrcEnvironment is the part of the machine that determines the location of the .netrc
// file. Getenv and ReadFile behave like their namesakes in package os, errors included;
// each may be nil.
type NetrcEnvironment struct {
	Getenv   func(string) string
	ReadFile func(string) ([]byte, error)
	Home     string // the home directory; empty if there is none
	GOOS     string // as runtime.GOOS
	// NoDefault ignores the entry "default". It is for programs whose hosts are chosen by
	// others than the owner of the file.
	NoDefault bool
}

// Netrc provides the logins in the user's .netrc file (on Windows, _netrc), or in the file
// that the variable NETRC names. They are used for downloads of packages.
//
// The rules are those of "providers mirror" of OpenTofu and Terraform, the only command
// of theirs that uses the file for providers. A machine is a URL's host, including the
// port if the URL has one. The entry "default" matches all other hosts. A URL with a user
// of its own keeps it. The login is sent with the first request. A redirect drops it,
// unless the redirect is relative and thus stays on the host. Unlike those commands, Netrc
// sends a login only over TLS or to this machine.
//
// The file is read once, before the first download.
type Netrc struct{ machines func() ([]machine, error) }

// NewNetrc returns the logins of the user's file. It does not read the file yet.
func NewNetrc(env NetrcEnvironment) *Netrc {
	return &Netrc{sync.OnceValues(env.machines)}
}

// authorize returns the URL of a package with its login, or unchanged if it has none. A
// nil Netrc has no logins.
func (n *Netrc) authorize(u *url.URL) (*url.URL, error) {
	if n == nil || u.User != nil && u.User.Username() != "" || u.Scheme != "https" && !isLoopback(u.Hostname()) {
		return u, nil
	}
	machines, err := n.machines()
	if err != nil {
		return nil, err
	}
	for _, m := range machines { // default is last
		if m.name == u.Host || m.name == "" {
			if m.login == "" && m.password == "" {
				return u, nil
			}
			with := *u
			with.User = url.UserPassword(m.login, m.password)
			return &with, nil
		}
	}
	return u, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// machines reads the file. It is not an error if the file does not exist.
func (env NetrcEnvironment) machines() ([]machine, error) {
	name := env.place()
	if name == "" || env.ReadFile == nil {
		return nil, nil
	}
	src, err := env.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return nil, nil
	case err != nil:
		return nil, hint.Wrap(fmt.Errorf("logins for downloads: %w", err), "make the file readable, or name another one in NETRC")
	}
	machines, err := parseNetrc(src)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("logins for downloads: %s: %w", name, err), "correct the file, or name another one in NETRC")
	}
	if env.NoDefault {
		machines = slices.DeleteFunc(machines, func(m machine) bool { return m.name == "" })
	}
	return machines, nil
}

// place returns the path of the file, or "".
func (env NetrcEnvironment) place() string {
	if env.Getenv != nil {
		if name := env.Getenv("NETRC"); name != "" {
			return name
		}
	}
	switch {
	case env.Home == "":
		return ""
	case env.GOOS == "windows":
		return strings.TrimRight(env.Home, `\`) + `\_netrc`
	}
	return strings.TrimRight(env.Home, "/") + "/.netrc"
}

// machine is an entry of a .netrc file. Its value is never printed.
type machine struct {
	name                     string // "" for default
	login, password, account string
}

// Format implements [fmt.Formatter] for every verb.
func (machine) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[redacted]") }

// field returns the field that a keyword sets.
func (m *machine) field(keyword string) *string {
	switch keyword {
	case "login":
		return &m.login
	case "password":
		return &m.password
	}
	return &m.account
}

// parseNetrc parses a .netrc file. Its errors quote nothing from the file.
func parseNetrc(src []byte) ([]machine, error) {
	src = bytes.ReplaceAll(bytes.TrimPrefix(src, []byte("\xef\xbb\xbf")), []byte("\r\n"), []byte("\n"))
	s := &netrcScanner{rest: src, line: 1}
	var out []machine
	for {
		keyword := s.next(true)
		if keyword == "" {
			return out, nil
		}
		if err := s.entry(&out, keyword); err != nil {
			return nil, fmt.Errorf("line %d: %w", s.line, err)
		}
	}
}

// entry parses the words after a keyword.
func (s *netrcScanner) entry(machines *[]machine, keyword string) error {
	n := len(*machines)
	switch keyword {
	case "machine", "default":
		if n > 0 && (*machines)[n-1].name == "" {
			return fmt.Errorf("%s after default, which is the last entry", keyword)
		}
		m := machine{}
		if keyword == "machine" {
			if m.name = s.next(false); m.name == "" {
				return errors.New("machine without a name")
			}
		}
		*machines = append(*machines, m)
	case "login", "password", "account":
		value := s.next(false)
		if n == 0 || value == "" {
			return fmt.Errorf("%s without a machine or without a value", keyword)
		}
		into := (*machines)[n-1].field(keyword)
		if *into != "" {
			return fmt.Errorf("a second %s for one machine", keyword)
		}
		*into = value
	case "macdef":
		s.skipTo("\n\n") // a macro ends with an empty line
	default:
		return errors.New("a word where machine, default, login, password, account or macdef is wanted")
	}
	return nil
}

// netrcScanner yields the words of a .netrc file.
type netrcScanner struct {
	rest []byte
	line int
}

const netrcSpace = " \t\n\r\v\f"

// next returns the next word, or "" at the end. If a keyword is expected, a # begins a
// comment up to the end of the line.
func (s *netrcScanner) next(keyword bool) string {
	for {
		s.skip(len(s.rest) - len(bytes.TrimLeft(s.rest, netrcSpace)))
		if !keyword || !bytes.HasPrefix(s.rest, []byte("#")) {
			break
		}
		s.skipTo("\n")
	}
	end := bytes.IndexAny(s.rest, netrcSpace)
	if end < 0 {
		end = len(s.rest)
	}
	word := string(s.rest[:end])
	s.skip(end)
	return word
}

// skipTo skips to a text, or to the end if the text is not found.
func (s *netrcScanner) skipTo(text string) {
	end := bytes.Index(s.rest, []byte(text))
	if end < 0 {
		end = len(s.rest)
	}
	s.skip(end)
}

func (s *netrcScanner) skip(n int) {
	s.line += bytes.Count(s.rest[:n], []byte("\n"))
	s.rest = s.rest[n:]
}
