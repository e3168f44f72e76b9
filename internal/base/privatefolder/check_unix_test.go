//go:build !windows

package privatefolder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// The numbers of users and groups in the tests that simulate them.
const (
	me, other = 1000, 1001
	volumes   = 2000 // a group of this process that has no name, such as an fsGroup
	staff     = 50   // a group of this process and of another user
)

// simulated returns a process of the user me on a machine with other users.
func simulated(t *testing.T, passwd, group string) process {
	t.Helper()
	p := process{user: me, groups: []int{me, volumes, staff}, etc: t.TempDir()}
	err := errors.Join(os.WriteFile(filepath.Join(p.etc, "passwd"), []byte(passwd), 0o600), os.WriteFile(filepath.Join(p.etc, "group"), []byte(group), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const (
	manyUsers  = "# users\nroot:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\nother:x:1001:100::/home/other:/bin/sh\n"
	manyGroups = "root:x:0:\nusers:x:100:\nme:x:1000:me,root\nstaff:x:50:me,other\ndocker:x:60:other\n"
)

// file is a file of any owner.
type file struct {
	fs.FileInfo
	user, group uint32
	mode        fs.FileMode
}

func (f file) Mode() fs.FileMode { return f.mode }
func (f file) Sys() any          { return &syscall.Stat_t{Uid: f.user, Gid: f.group} }

// TestForOwner shows that root examines a folder of a service as the service would. Other users do not, and root's own
// folders stay root's.
func TestForOwner(t *testing.T) {
	p := simulated(t, manyUsers, manyGroups)
	root := p
	root.user, root.groups = 0, []int{0}
	service := root.as(5000, 5000)
	for name, tc := range map[string]struct {
		process process
		file    file
		want    string
	}{
		"the service's":        {service, file{nil, 5000, 5000, 0o700}, ""},
		"root's":               {service, file{nil, 0, 0, 0o755}, ""},
		"another user's":       {service, file{nil, other, other, 0o700}, "belongs to another user"},
		"open to all users":    {service, file{nil, 5000, 5000, 0o777}, "all users"},
		"another user's, root": {root, file{nil, 5000, 5000, 0o700}, "belongs to another user"},
		"root's, root":         {root.as(0, 0), file{nil, other, 0, 0o700}, "belongs to another user"},
	} {
		if err := tc.process.fault("/folder", tc.file, false); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if got := p.as(other, other); got.user != me {
		t.Errorf("another user than root acts as %d", got.user)
	}
}

// TestWhoMayWrite shows which owners and modes of a folder pass.
func TestWhoMayWrite(t *testing.T) {
	p := simulated(t, manyUsers, manyGroups)
	primaryUsers, named, directory := p, p, p
	primaryUsers.groups = []int{100}
	named.groups = []int{1005}
	named.etc = simulated(t, manyUsers, "me:x:1005:\n").etc
	directory.user, directory.groups = 70_000, []int{80_000, volumes} // an account of a directory service
	for name, tc := range map[string]struct {
		process process
		file    file
		leads   bool
		want    string
	}{
		"own":                                  {p, file{nil, me, me, 0o755}, false, ""},
		"root's":                               {p, file{nil, 0, 0, 0o755}, false, ""},
		"another user's":                       {p, file{nil, other, me, 0o700}, false, "belongs to another user"},
		"another user's, sticky":               {p, file{nil, other, me, 0o777 | fs.ModeSticky}, true, "belongs to another user"},
		"open":                                 {p, file{nil, me, me, 0o702}, false, "all users"},
		"root's, open":                         {p, file{nil, 0, 0, 0o777}, true, "all users"},
		"sticky above":                         {p, file{nil, 0, 0, 0o777 | fs.ModeSticky}, true, ""},
		"sticky":                               {p, file{nil, 0, 0, 0o777 | fs.ModeSticky}, false, "all users"},
		"own, sticky for its group, above":     {p, file{nil, me, staff, 0o770 | fs.ModeSticky}, true, ""},
		"link":                                 {p, file{nil, me, me, 0o777 | fs.ModeSymlink}, false, ""},
		"another user's link":                  {p, file{nil, other, me, 0o777 | fs.ModeSymlink}, true, "belongs to another user"},
		"own, umask 002":                       {p, file{nil, me, me, 0o775}, true, ""},
		"own, umask 002, group of one name":    {named, file{nil, me, 1005, 0o775}, true, ""},
		"own, umask 002, primary group users":  {primaryUsers, file{nil, me, 100, 0o775}, true, "a group (100)"},
		"own, shared group":                    {p, file{nil, me, staff, 0o770}, true, "a group (50)"},
		"own, group without names":             {p, file{nil, me, volumes, 0o770}, true, "a group (2000)"},
		"own, directory's primary group":       {directory, file{nil, 70_000, 80_000, 0o775}, true, "a group (80000)"},
		"root's, volume":                       {p, file{nil, 0, volumes, 0o775 | fs.ModeSetgid}, false, ""},
		"root's, volume, of a directory":       {directory, file{nil, 0, volumes, 0o775 | fs.ModeSetgid}, false, ""},
		"root's, private group":                {p, file{nil, 0, me, 0o775}, false, ""},
		"root's, root's group":                 {p, file{nil, 0, 0, 0o775}, false, ""},
		"root's, group with another user":      {p, file{nil, 0, staff, 0o775 | fs.ModeSetgid}, false, "a group (50)"},
		"root's, another user's primary group": {p, file{nil, 0, 100, 0o775}, false, "a group (100)"},
		"root's, group of another user alone":  {p, file{nil, 0, 60, 0o775}, false, "a group (60)"},
		"root's, unknown group":                {p, file{nil, 0, 3000, 0o775}, false, "a group (3000)"},
	} {
		if err := tc.process.fault("/folder", tc.file, tc.leads); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	unreadable := p
	unreadable.etc = t.TempDir()
	if err := os.Mkdir(filepath.Join(unreadable.etc, "passwd"), 0o700); err != nil {
		t.Fatal(err)
	}
	if unreadable.isOwnGroup(me, me) || unreadable.isAlone() {
		t.Error("with a passwd that cannot be read, no other user exists")
	}
}

// TestWithoutOtherUsers shows where all folders pass: in an image that lists no other user than root, this one and nobody.
func TestWithoutOtherUsers(t *testing.T) {
	open := filepath.Join(t.TempDir(), "volume")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		passwd string
		want   bool
	}{
		"none":         {"", true},
		"own and root": {"root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/:/bin/false\nnobody:x:65534:65534::/:/bin/false\n", true},
		"another":      {"me:x:1000:1000::/:/bin/false\ndaemon:x:1:1::/:/bin/false\n", false},
		"unclear":      {"+::::::\n", false},
	} {
		p := simulated(t, tc.passwd, "")
		if p.isAlone() != tc.want {
			t.Errorf("%s: %v", name, !tc.want)
		}
		p.user = os.Geteuid()
		if err := p.check(open, false); p.isAlone() && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := simulated(t, "", "")
	p.etc = filepath.Join(p.etc, "missing")
	if !p.isAlone() {
		t.Error("without a passwd, there are other users")
	}
}

// TestCheck shows that a folder is refused if another user could replace it or a folder that leads to it.
func TestCheck(t *testing.T) {
	top := t.TempDir()
	make := func(mode fs.FileMode, elem ...string) string {
		t.Helper()
		path := filepath.Join(append([]string{top}, elem...)...)
		if err := errors.Join(os.MkdirAll(path, 0o700), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := func(target, name string) string {
		t.Helper()
		path := filepath.Join(top, name)
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	open, sticky := make(0o777, "open"), make(0o777|fs.ModeSticky, "sticky")
	own, inOpen, inSticky := make(0o700, "own"), make(0o700, "open", "middle", "own"), make(0o700, "sticky", "own")
	target := make(0o700, "links", "target")
	for name, tc := range map[string]struct {
		path string
		want string // the folder that others may write to, or ""
	}{
		"own":                       {own, ""},
		"open":                      {open, open},
		"below an open one":         {inOpen, open},
		"missing, below an open":    {filepath.Join(open, "missing", "too"), open},
		"missing":                   {filepath.Join(own, "missing", "too"), ""},
		"sticky":                    {sticky, sticky},
		"below a sticky one":        {inSticky, ""},
		"missing, below a sticky":   {filepath.Join(sticky, "missing"), ""},
		"link":                      {link(own, "to-own"), ""},
		"link to an open one":       {link(open, "to-open"), open},
		"link to below an open one": {link("open/middle", "to-middle"), open},
		"link in an open one":       {link(target, "open/link"), open},
		"link above":                {link("links", "to-links") + "/target", ""},
		"link with dots":            {link("links/../links/./target/", "to-dots"), ""},
		"link through an open one":  {link("open/../links/target", "through"), open},
		"link that leads nowhere":   {link("nowhere", "nowhere-link"), ""},
	} {
		err := Check(tc.path)
		if (err == nil) != (tc.want == "") || err != nil && (!strings.HasSuffix(err.Error(), "all users may write to "+tc.want) || !strings.Contains(hint.Of(err), "chmod o-w "+tc.want)) {
			t.Errorf("%s: %v, want one about %q", name, err, tc.want)
		}
	}
	if err := Check(link("loop", "loop")); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("an endless link: %v", err)
	}
	foreign := thisProcess()
	foreign.user, foreign.root = os.Geteuid()+1, os.Geteuid()+2
	if err := foreign.check(own, false); os.Geteuid() != 0 && (err == nil || !strings.Contains(err.Error(), "belongs to another user")) {
		t.Errorf("a folder of another user: %v", err)
	}
	t.Chdir(open)
	if err := Check("middle"); err == nil {
		t.Error("a relative path below an open folder passes")
	}
}

// TestMakeRefuses shows that Make and MakeAsIs create nothing where another user could replace it.
func TestMakeRefuses(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(open, "middle", "folder")
	for name, make := range map[string]func() error{
		"Make":     func() error { return Make(path, nil) },
		"MakeAsIs": func() error { return MakeAsIs(path) },
	} {
		if err := make(); err == nil || hint.Of(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if entries, err := os.ReadDir(open); len(entries) > 0 || err != nil {
		t.Errorf("%v were created: %v", entries, err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(open, link); err != nil {
		t.Fatal(err)
	}
	if err := Make(link, nil); err == nil {
		t.Error("Make accepts a link to an open folder")
	}
	if err := MakeAsIs(open); err == nil {
		t.Error("MakeAsIs accepts an open folder")
	}
	if err := Make(open, nil); err != nil {
		t.Errorf("Make of a folder that it can narrow: %v", err)
	}
}
