package howto

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// md returns Markdown whose fences are written as ”'.
func md(text string) string { return strings.ReplaceAll(text, "'''", "```") }

// good is a page that uses everything the runner has.
var good = md(`# Good

'''hcl
# conf/a.hcl
host = "example.com"
'''

- In a list:

  '''sh
  x=$(cat conf/a.hcl ~/b.rc)
  '''

'''yaml
// ~/c.yml
in: home
'''

'''sh
echo "one: $x"; cat ~/c.yml
'''

'''text
host = "...:8443"
in: ...
'''

'''sh
sleep 1000 &
echo $! > pid
false
echo unreachable
'''

'''sh
sudo reboot
'''

'''text
bye
'''
`)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	r := Run{
		Page: "good", Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir},
		Replace: []string{"example.com", "127.0.0.1:8443"},
		Before:  map[string]string{"x=$(": "echo before > b.rc\nrefused false", "one:": "echo warning: of Before"},
		Fails:   []string{"false"},
		After:   "echo after; sleep 1000 & echo $! > pid-after",
	}
	out, err := r.run(good, []Exemption{{"good", "sudo reboot", "it ends the machine"}})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.All)
	}
	if len(out.Blocks) != 3 || !strings.Contains(out.Blocks[1], "before") || !strings.Contains(out.All, "after") || strings.Contains(out.All, "unreachable") {
		t.Errorf("outputs %q", out)
	}
}

func TestRunRefuses(t *testing.T) {
	page := func(blocks string) string { return md("# Page\n\n" + blocks) }
	hello := page("'''sh\necho hello example.com\n'''\n\n'''text\nhello ...\n'''\n")
	for name, c := range map[string]struct {
		run        Run
		page, want string
	}{
		"nothing":                      {Run{}, hello, ""},
		"another text":                 {Run{}, page("'''sh\necho hello\n'''\n\n'''text\nbye\n'''\n"), `block 1 does not print "bye"`},
		"a part of a line":             {Run{}, page("'''sh\necho hello\n'''\n\n'''text\nhell\n'''\n"), `does not print "hell"`},
		"a dot that is no wildcard":    {Run{}, page("'''sh\necho axb\n'''\n\n'''text\na.b\n'''\n"), `does not print "a.b"`},
		"a failed command":             {Run{}, page("'''sh\necho hello\n'''\n\n'''sh\nfalse\ntrue\n'''\n"), "in block 2: exit status 1"},
		"an unset variable":            {Run{}, page("'''sh\necho $unset_variable\n'''\n"), "in block 1"},
		"a warning":                    {Run{}, page("'''sh\necho warning: old >&2\n'''\n"), `block 1 prints "warning:"`},
		"an error of the background":   {Run{}, page("'''sh\necho 'x\"errors\"' & wait\n'''\n"), `prints "\"errors\""`},
		"a warning that is shown":      {Run{}, page("'''sh\necho warning: old\n'''\n\n'''text\nwarning: ...\n'''\n"), ""},
		"a block that does not fail":   {Run{Fails: []string{"hello"}}, hello, "in block 1"},
		"Fails in no block":            {Run{Fails: []string{"gone"}}, hello, `"gone" is in 0 sh blocks`},
		"Before in no block":           {Run{Before: map[string]string{"gone": "true"}}, hello, `"gone" is in 0 sh blocks`},
		"Before in a text block":       {Run{Before: map[string]string{"hello ...": "true"}}, hello, `is in 0 sh blocks`},
		"Before in two blocks":         {Run{Before: map[string]string{"true": "true"}}, page("'''sh\ntrue\n'''\n\n'''sh\ntrue\n'''\n"), `is in 2 sh blocks`},
		"Before that fails":            {Run{Before: map[string]string{"hello": "refused true"}}, hello, "exit status 1"},
		"After that fails":             {Run{After: "false"}, hello, "exit status 1"},
		"a host":                       {Run{Replace: []string{"example.com", "localhost:1"}}, hello, ""},
		"a host that is not there":     {Run{Replace: []string{"example.org", "localhost"}}, hello, `"example.org", which is to be replaced, is in no block`},
		"a text that is no host":       {Run{Replace: []string{"hello", "bye"}}, hello, `"hello" is not a host name`},
		"half a pair":                  {Run{Replace: []string{"example.com"}}, hello, "no pairs"},
		"a text without commands":      {Run{}, page("'''text\nhello\n'''\n"), `"hello" does not follow an sh block`},
		"a text after a file":          {Run{}, page("'''ini\n# a.ini\n'''\n\n'''text\nhello\n'''\n"), "does not follow"},
		"a file without a name":        {Run{}, page("'''hcl\nhost = 1\n'''\n"), `the hcl block "host = 1" cannot be run`},
		"a sentence that is no name":   {Run{}, page("'''hcl\n# the host\nhost = 1\n'''\n"), "cannot be run"},
		"a file outside of the folder": {Run{}, page("'''hcl\n# /etc/a.hcl\n'''\n"), "cannot be run"},
		"no language":                  {Run{}, page("'''\ntrue\n'''\n"), `the  block "true" cannot be run`},
		"an indented block":            {Run{}, page("Run:\n\n    true\n"), `the  block "true" cannot be run`},
		"an indented part of a list":   {Run{}, page("1. Run\n\n    this\n"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.run.Page, c.run.Dir, c.run.Env = "page", t.TempDir(), []string{"PATH=" + os.Getenv("PATH")}
			out, err := c.run.run(c.page, nil)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q:\n%s", err, c.want, out.All)
			}
		})
	}
}

func TestCheckBlocks(t *testing.T) {
	pages := map[string]string{"a": md("'''sh\ntrue\n'''\n\n    make it\n"), "b": ""}
	of := func(page, line, reason string) Exemption { return Exemption{page, line, reason} }
	for name, c := range map[string]struct {
		exempt []Exemption
		want   string
	}{
		"exempt":         {[]Exemption{of("a", "make it", "no make")}, ""},
		"not exempt":     {nil, `a: the  block "make it" cannot be run`},
		"another page":   {[]Exemption{of("a", "make it", "no make"), of("b", "make it", "no make")}, "matches no block"},
		"no such page":   {[]Exemption{of("a", "make it", "no make"), of("c", "make it", "no make")}, "matches no block"},
		"no reason":      {[]Exemption{of("a", "make it", "")}, "has no reason"},
		"no such line":   {[]Exemption{of("a", "make it", "no make"), of("a", "make", "no make")}, "matches no block"},
		"too many lines": {[]Exemption{of("a", "make it", "1"), of("a", "make it", "2"), of("a", "make it", "3"), of("a", "make it", "4"), of("a", "make it", "5"), of("a", "true", "6")}, "8 blocks or pages are exempt"},
	} {
		got := strings.Join(CheckBlocks(pages, c.exempt), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestDocker shows that logins to several hosts are kept in one file.
func TestDocker(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	for _, host := range []string{"a.example", "b.example"} {
		if err := addLogin(file, host, "me", "secret"); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	want := `{"auths":{"a.example":{"auth":"bWU6c2VjcmV0"},"b.example":{"auth":"bWU6c2VjcmV0"}}}`
	if err != nil || string(data) != want {
		t.Errorf("%v, %s, want %s", err, data, want)
	}
}
