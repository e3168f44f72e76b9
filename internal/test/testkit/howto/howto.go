// Package howto runs how-tos, the pages in docs/howto, from their own code blocks. A page is run as a reader
// would follow it, in one shell. Only the names of hosts are replaced.
//
// The languages of the blocks have these meanings:
//
//   - sh: commands. All blocks of a page run in one shell, with sh -eu.
//   - text: lines that the sh block before prints, in any order. In them, "..." matches any text.
//   - any other, if the first line is a comment that is a file's name, such as "# ocibridge.hcl" or
//     "// ~/.tofurc": the content of that file, which is written when the shell reaches the block.
//
// [Exempt] lists all other blocks. [RunBy] lists the pages that no [Run] runs. The tests of internal/test/doccheck
// compare these lists with the pages.
package howto

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/docs"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// limit bounds the time of a page, whose loops might wait forever.
const limit = 5 * time.Minute

// mark begins the line that the shell prints before each block.
const mark = "== block "

// Run is a run of a how-to. Before, Fails and After may contain host names of the page, which are replaced too.
type Run struct {
	Page string // the topic's name

	// Replace has pairs: a host name in the page's blocks, with or without a port, and the host to use instead.
	Replace []string

	// Before maps a text to additional commands, which run before the one block that contains the text. These
	// commands can use "refused COMMAND", which fails unless the command fails.
	Before map[string]string

	// Fails has texts. The one block that contains such a text must fail. The block runs in a shell of its own.
	Fails []string

	After string   // additional commands after the last block
	Dir   string   // the shell's first folder, which is also HOME; a new one by default
	Env   []string // variables beyond PATH, HOME and TMPDIR. PATH begins with the tools that make tools installs
}

// Outputs are the standard output and error of a page's commands.
type Outputs struct {
	All    string   // with the output of Before and After, and with lines that name the blocks
	Blocks []string // of each sh block
}

// Do runs the page, but not under the race detector: the page's programs are other processes. It ends the test if a tool that the page runs is missing, if a command fails, or if a
// block prints a warning or an error, or not the text that the page shows. Whatever the page starts in the background has ended when Do returns.
func (r Run) Do(tb testkit.TB) Outputs {
	tb.Helper()
	testkit.WithoutRace(tb)
	topic, ok := docs.Find(r.Page)
	if !ok {
		tb.Fatalf("no topic %s", r.Page)
	}
	for _, name := range r.tools(topic.Text()) {
		clients.Program(tb, name)
	}
	root, err := clients.Root()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	if r.Dir == "" {
		r.Dir = tb.TempDir()
	}
	path := filepath.Join(root, ".tools", "bin") + string(os.PathListSeparator) + os.Getenv("PATH")
	r.Env = append([]string{"PATH=" + path, "HOME=" + r.Dir, "TMPDIR=" + tb.TempDir()}, r.Env...)
	out, err := r.run(topic.Text(), Exempt)
	if err != nil {
		tb.Fatalf("%s: %v\n%s", r.Page, err, out.All)
	}
	return out
}

// tools matches the programs of .tools/bin that a machine might lack, where a command may begin.
var tools = regexp.MustCompile(`(?m)(?:^|[\s(|;&])(tofu|terraform|oras|helm|gpg|zip|jq|openssl|nginx|node)\s`)

// tools returns the programs that the page and the additional commands may run.
func (r Run) tools(text string) []string {
	var all strings.Builder
	blocks, _ := parse(r.Page, text, Exempt) // run returns the error
	for _, b := range blocks {
		if b.kind == commands {
			all.WriteString(b.text)
		}
	}
	for _, text := range slices.Sorted(maps.Values(r.Before)) {
		fmt.Fprintln(&all, text)
	}
	fmt.Fprintln(&all, r.After)
	var out []string
	for _, m := range tools.FindAllStringSubmatch(all.String(), -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// run runs the text of a page.
func (r Run) run(text string, exempt []Exemption) (Outputs, error) {
	// 1. The script.
	blocks, err := parse(r.Page, text, exempt)
	if err != nil {
		return Outputs{}, err
	}
	if err := r.check(blocks); err != nil {
		return Outputs{}, err
	}
	script := r.script(blocks)
	// 2. Its output goes to a file: a pipe would stay open as long as a process in the background.
	file, err := os.CreateTemp("", "howto-")
	if err != nil {
		return Outputs{}, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.Dir, r.Env, file, file
	failed := runGroup(cmd)
	if ctx.Err() != nil {
		failed = fmt.Errorf("the page did not end within %v", limit)
	}
	all, err := os.ReadFile(file.Name())
	if err != nil {
		return Outputs{}, err
	}
	// 3. What the blocks have printed.
	out := Outputs{All: string(all)}
	for part := range strings.SplitSeq(out.All, "\n"+mark) {
		if name, output, _ := strings.Cut(part, "\n"); name == strconv.Itoa(len(out.Blocks)+1) {
			out.Blocks = append(out.Blocks, output)
		}
	}
	if failed != nil {
		return out, fmt.Errorf("in block %d: %w", len(out.Blocks), failed)
	}
	return out, r.compare(blocks, out.Blocks)
}

// hostName matches a host with or without a port. One without a dot must be localhost.
var hostName = regexp.MustCompile(`^(localhost|[a-z0-9-]+(\.[a-z0-9-]+)+)(:[0-9]+)?$`)

// check returns an error if something in r matches no block, or more than one.
func (r Run) check(blocks []block) error {
	var all strings.Builder
	for _, b := range blocks {
		all.WriteString(b.text)
	}
	if len(r.Replace)%2 != 0 {
		return fmt.Errorf("%d texts to replace are no pairs", len(r.Replace))
	}
	for i, host := range r.Replace {
		if !hostName.MatchString(host) {
			return fmt.Errorf("%q is not a host name, and nothing else may be replaced", host)
		}
		if i%2 == 0 && !strings.Contains(all.String(), host) {
			return fmt.Errorf("%q, which is to be replaced, is in no block", host)
		}
	}
	texts := slices.Clone(r.Fails)
	for text := range r.Before {
		texts = append(texts, text)
	}
	for _, text := range texts {
		n := 0
		for _, b := range blocks {
			if b.kind == commands && strings.Contains(b.text, text) {
				n++
			}
		}
		if n != 1 {
			return fmt.Errorf("%q is in %d sh blocks, not in one", text, n)
		}
	}
	return nil
}

// preamble ends what runs in the background when the shell ends: the whole process group except for the shell.
const preamble = `set -eu
trap 'howto_status=$?; trap "" TERM; kill 0; wait; exit $howto_status' EXIT
refused() { if "$@"; then echo "not refused: $*"; exit 1; fi; }
`

func (r Run) script(blocks []block) string {
	var s strings.Builder
	n := 0
	for _, b := range blocks {
		switch b.kind {
		case file:
			fmt.Fprintf(&s, "mkdir -p \"$(dirname %[1]s)\"\ncat > %[1]s <<'END_OF_HOWTO_FILE'\n%[2]sEND_OF_HOWTO_FILE\n", b.file, b.text)
		case commands:
			n++
			for text, before := range r.Before {
				if strings.Contains(b.text, text) {
					fmt.Fprintf(&s, "echo; echo '%sbefore %d'\n%s\n", mark, n, before)
				}
			}
			fmt.Fprintf(&s, "echo; echo '%s%d'\n", mark, n)
			if r.fails(b) {
				fmt.Fprintf(&s, "set +e\n(\nset -e\n%s)\nhowto_status=$?\nset -e\nif [ $howto_status = 0 ]; then echo 'the block did not fail'; exit 1; fi\n", b.text)
			} else {
				s.WriteString(b.text)
			}
		}
	}
	fmt.Fprintf(&s, "echo; echo '%safter'\n%s\n", mark, r.After)
	return preamble + r.replacer().Replace(s.String())
}

func (r Run) fails(b block) bool {
	return slices.ContainsFunc(r.Fails, func(text string) bool { return strings.Contains(b.text, text) })
}

func (r Run) replacer() *strings.Replacer { return strings.NewReplacer(r.Replace...) }

// problems are the texts that a block must not print, unless the page shows them or the block must fail.
var problems = []string{"warning:", "error:", "Error:", `"errors"`}

// compare compares the blocks' outputs with the text blocks.
func (r Run) compare(blocks []block, outputs []string) error {
	var errs []error
	n := 0
	for i, b := range blocks {
		if b.kind != commands {
			continue
		}
		if n++; n > len(outputs) {
			return fmt.Errorf("block %d did not run", n)
		}
		output, want := outputs[n-1], ""
		if i+1 < len(blocks) && blocks[i+1].kind == shown {
			want = r.replacer().Replace(blocks[i+1].text)
		}
		for _, problem := range problems {
			if strings.Contains(output, problem) && !strings.Contains(want, problem) && !r.fails(b) {
				errs = append(errs, fmt.Errorf("block %d prints %q", n, problem))
			}
		}
		for line := range strings.Lines(want) {
			line = strings.TrimSuffix(line, "\n")
			pattern := strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, ".*")
			if !regexp.MustCompile("(?m)^" + pattern + "$").MatchString(output) {
				errs = append(errs, fmt.Errorf("block %d does not print %q", n, line))
			}
		}
	}
	return errors.Join(errs...)
}
