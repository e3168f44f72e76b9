//go:build !windows

package privatefolder

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/files"
)

// nobody is the number of a user that owns no files and runs no programs.
const nobody = 65534

// accounts are the users and groups of this machine, without those of a directory service.
type accounts struct {
	users  []account
	groups []account
}

// account is a user or a group.
type account struct {
	name  string
	id    int      // -1 if the line has no number
	group int      // of a user: the primary group
	names []string // of a group: its members
}

// readAccounts reads the files passwd and group in a folder. It returns no accounts from a missing file.
func readAccounts(etc string) (a accounts, err error) {
	users, err := lines(filepath.Join(etc, "passwd"))
	if err != nil {
		return a, err
	}
	groups, err := lines(filepath.Join(etc, "group"))
	for _, f := range users {
		a.users = append(a.users, account{name: f[0], id: number(f[2]), group: number(f[3])})
	}
	for _, f := range groups {
		a.groups = append(a.groups, account{name: f[0], id: number(f[2]), names: strings.Split(f[3], ",")})
	}
	return a, err
}

// lines returns the fields of each line of a file, at least four.
func lines(name string) (out [][]string, err error) {
	text, err := files.Read(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, strings.Split(line+":::", ":"))
		}
	}
	return out, nil
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// members returns the users in a group. A member that is no known user has the number -1.
func (a accounts) members(group int) (out []account) {
	for _, u := range a.users {
		if u.group == group {
			out = append(out, u)
		}
	}
	for _, g := range a.groups {
		if g.id != group {
			continue
		}
		for _, name := range g.names {
			if i := slices.IndexFunc(a.users, func(u account) bool { return u.name == name }); i >= 0 {
				out = append(out, a.users[i])
			} else if name != "" {
				out = append(out, account{name: name, id: -1})
			}
		}
	}
	return out
}

// haveOneName reports whether a user and a group have the same name.
func (a accounts) haveOneName(user, group int) bool {
	return slices.ContainsFunc(a.users, func(u account) bool {
		return u.id == user && slices.ContainsFunc(a.groups, func(g account) bool { return g.id == group && g.name == u.name })
	})
}
