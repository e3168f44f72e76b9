//go:build !windows

package privatefolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// maxLinks is the maximum number of links in a path, as in Linux.
const maxLinks = 40

// checkAbove is like [Check], but checks only the folders that lead to path.
func (p process) checkAbove(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	return p.check(filepath.Dir(path), true)
}

// forOwner returns a process of the user who owns path, if p is a process of root. Otherwise, it returns p.
func (p process) forOwner(path string) process {
	found, err := os.Stat(path)
	if err != nil {
		return p
	}
	return p.as(owners(found))
}

// as returns a process of the given user and group, if p is a process of root and the given user is not root.
// Otherwise, it returns p.
func (p process) as(user, group int) process {
	if p.isRoot(p.user) && !p.isRoot(user) {
		p.user, p.groups = user, []int{group}
	}
	return p
}

// process describes the user and the groups of a process.
type process struct {
	user   int
	root   int   // the owner of /, which can have another number than 0 in a user namespace
	groups []int // the primary group is the first
	etc    string
}

func thisProcess() process {
	p := process{user: os.Geteuid(), groups: []int{os.Getegid()}, etc: "/etc"}
	if more, err := os.Getgroups(); err == nil {
		p.groups = append(p.groups, more...)
	}
	if top, err := os.Stat("/"); err == nil {
		p.root, _ = owners(top)
	}
	return p
}

// check implements [Check]. If leads is true, path only leads to the folder that matters.
func (p process) check(path string, leads bool) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	at, rest := "/", strings.Split(path[1:], "/")
	for links := 0; ; {
		info, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if why := p.fault(at, info, leads || len(rest) > 0); why != nil && !p.isAlone() {
			return hint.Wrap(fmt.Errorf("other users may change or replace %s: %w", path, why), "name a folder that only this user and root may change")
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(at)
			if err != nil {
				return err
			}
			if links++; links > maxLinks {
				return &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
			}
			rest = append(strings.Split(target, "/"), rest...)
			at = filepath.Dir(at)
			if filepath.IsAbs(target) {
				at = "/"
			}
			continue
		}
		if len(rest) == 0 {
			return nil
		}
		at, rest = filepath.Join(at, rest[0]), rest[1:] // at has no links, so that Join treats .. as the system does
	}
}

// fault returns an error if another user owns the file or link at path, or may write to the file. If leads is true, path only
// leads to the checked folder. Then a sticky folder, such as /tmp, may be writable for others.
func (p process) fault(path string, info fs.FileInfo, leads bool) error {
	owner, group := owners(info)
	mode := info.Mode()
	switch {
	case owner != p.user && !p.isRoot(owner):
		return fmt.Errorf("%s belongs to another user (%d)", path, owner)
	case mode&fs.ModeSymlink != 0, leads && mode&fs.ModeSticky != 0:
		return nil
	case mode&0o002 != 0:
		return hint.Wrap(fmt.Errorf("all users may write to %s", path), "chmod o-w %s, or name another folder", path)
	case mode&0o020 != 0 && !p.isOwnGroup(owner, group):
		return hint.Wrap(fmt.Errorf("a group (%d) may write to %s", group, path), "chmod g-w %s, or name another folder", path)
	}
	return nil
}

func (p process) isRoot(user int) bool { return user == 0 || user == p.root }

// owners returns the numbers of the user and of the group that a file belongs to.
func owners(file fs.FileInfo) (user, group int) {
	stat := file.Sys().(*syscall.Stat_t)
	return int(stat.Uid), int(stat.Gid)
}

// isOwnGroup reports whether a group may have write access to a folder of owner. The group must have no other known
// user. If root is the owner, the group must be root's or one of this process. Otherwise, it must be the user's private
// group, see [Check].
func (p process) isOwnGroup(owner, group int) bool {
	a, err := readAccounts(p.etc)
	if err != nil || slices.ContainsFunc(a.members(group), p.isOther) {
		return false
	}
	if p.isRoot(owner) {
		return group == 0 || slices.Contains(p.groups, group)
	}
	return group == p.groups[0] && (group == p.user || a.haveOneName(p.user, group))
}

// isAlone reports whether no other user exists. This is so in the container image, which lists no users. The user
// nobody does not count, because it runs no programs.
func (p process) isAlone() bool {
	a, err := readAccounts(p.etc)
	return err == nil && !slices.ContainsFunc(a.users, func(u account) bool { return u.id != nobody && p.isOther(u) })
}

// isOther reports whether an account belongs to a user other than this one and root.
func (p process) isOther(u account) bool { return u.id != p.user && !p.isRoot(u.id) }

// nobody is the number of a user that owns no files and runs no programs.
const nobody = 65534

// accounts are the users and groups of this machine, without those of a directory service.
type accounts struct{ users, groups []account }

// account is a user or a group.
type account struct {
	name  string
	id    int      // -1 if the line has no number
	group int      // the primary group of a user
	names []string // the members of a group
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

// lines returns the fields of each line of a file. Missing fields, up to the fourth, are empty.
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
